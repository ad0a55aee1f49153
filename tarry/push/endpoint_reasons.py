"""Why a job does not run, also one of an HTTP task, whose endpoint may be the cause."""

from collections.abc import Container, Mapping
from typing import TYPE_CHECKING

from tarry.keeper.waiting_facts import read_facts
from tarry.keeper.waiting_reasons import EndpointState, WaitingReason, waiting_reasons
from tarry.model.duration import SECOND
from tarry.model.job import Job
from tarry.push.health import CLOSED, EndpointHealth, endpoint_health
from tarry.store.rules.base import Store

if TYPE_CHECKING:
    from tarry.push.endpoint.endpoint_settings import Endpoint


def why_waiting(
    store: Store, job: Job, now: int, tasks: Container[str], endpoints: "Mapping[str, Endpoint]"
) -> list[WaitingReason]:
    """Why the job does not run, what matters most first; never empty. now: by the store's clock, in microseconds.
    tasks: those of the app of whoever asks; endpoints: of its HTTP tasks. StoreError."""
    own = {job.task: endpoints[job.task]} if job.task in endpoints and not job.state.finished else {}
    states = [_state(one, now) for one in endpoint_health(store, own, now)]
    return waiting_reasons(read_facts(store, job, now, job.task in tasks, states[0] if states else EndpointState()))


def _state(health: EndpointHealth, now: int) -> EndpointState:
    trouble = "" if health.circuit == CLOSED else f"{health.circuit}{health.trouble and f' ({health.trouble})'}"
    opens = 0 if health.opens is None else now + round(health.opens * SECOND)
    return EndpointState(health.enabled, trouble, opens)
