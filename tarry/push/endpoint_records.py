"""The endpoints of HTTP tasks as people and programs see them: health, answers, last exchanges. Acts on circuits."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from tarry.model.checks.decoders import decode_json
from tarry.model.checks.unreadable import UNREADABLE
from tarry.model.duration import DAY, HOUR, MINUTE, SECOND
from tarry.model.job import Job, State
from tarry.push.delivery.delivery_record import AttemptOutcome, AttemptRecord, format_time, records_of
from tarry.push.endpoint.endpoint_cells import FLOW_CELL, decode_flow, disabled_reasons, forget_flow
from tarry.push.health import EndpointHealth, endpoint_health
from tarry.store.queries.history_reading import Period, view
from tarry.store.queries.job_search import id_of_moment
from tarry.store.rules import ids
from tarry.store.rules.base import Query, Store
from tarry.store.rules.cell import change_cell
from tarry.store.rules.history.sums import HOURS, MINUTES

if TYPE_CHECKING:
    from tarry.push.endpoint.endpoint_settings import Endpoint

MOST_EXCHANGES = 20
"""Exchanges that are shown of an endpoint."""
_EXAMINED = 200
"""Jobs that are looked at in one window of time."""
_WINDOWS = (MINUTE, HOUR, DAY)


class EndpointRecord(Struct, frozen=True):
    """The endpoint of an HTTP task. Times are seconds since the epoch."""

    task: str
    to: str
    """Its URL without parts that may be secret."""
    queue: str
    enabled: bool
    """False: deliveries are paused, and its jobs wait."""
    circuit: str
    """`closed`, `open`, `half open` (one request at a time) or `asked to wait`."""
    since: float | None
    """Since when the circuit is not closed; null: it is closed, or it is not known."""
    opens: float | None
    """When requests are sent again; null: they are sent now."""
    trouble: str
    """The last error; empty: none. If the endpoint said that it is gone, and so disabled the task: what it said."""
    in_flight: int
    at_once: int | None
    """How many requests it may get at once now, over all hosts; null: not known yet."""
    bound: int | None
    """How many at most, by the task's settings; null: as many as the workers have room for."""
    waiting: int
    """Jobs that are ready or scheduled, in queues that the caller may see."""
    shared_with: list[str]
    """Other HTTP tasks that send to the same host, as far as the caller may see them."""


class HttpAttempt(Struct, frozen=True):
    """One attempt to deliver a job."""

    id: str
    """The job."""
    attempt: int
    at: str
    """When it began."""
    outcome: AttemptOutcome
    status: int
    """0: no answer came."""
    elapsed: float
    """Seconds."""
    address: str
    size: int
    """Bytes of the answer that are kept."""
    cut: bool
    """The answer had more."""
    reason: str


class EndpointDetail(Struct, frozen=True):
    """An endpoint, with what it answered."""

    endpoint: EndpointRecord
    hour: dict[int, int]
    """How many deliveries were answered with which HTTP status in the last 60 minutes."""
    day: dict[int, int]
    """The same of the last 24 hours."""
    is_counted: bool
    """Whether the history has counted the answers; else they are those on record of some hundred jobs that were put
    lately."""
    exchanges: list[HttpAttempt]
    """The newest attempts, the newest first: 20 at most, of jobs that were put lately. `GET /v1/jobs/{id}` has what is
    kept of the answers."""


def _any_queue(queue: str) -> bool:
    return True


def endpoint_records(
    store: Store,
    endpoints: "Mapping[str, Endpoint]",
    waiting: Mapping[str, int],
    now: int,
    allows: Callable[[str], bool] = _any_queue,
) -> list[EndpointRecord]:
    """All endpoints, by the names of their tasks. waiting: by task. now: microseconds by the store's clock. allows:
    whether others of a queue may be named. StoreError."""
    sharing: dict[str, list[str]] = {}
    for name, endpoint in sorted(endpoints.items()):
        named = sharing.setdefault(endpoint.url.origin, [])
        if allows(endpoint.queue):
            named.append(name)
    gone = disabled_reasons(store) if endpoints else {}
    return [
        _record(health, endpoints[health.task], waiting.get(health.task, 0), sharing, gone, now)
        for health in endpoint_health(store, endpoints, now)
    ]


def _record(
    health: EndpointHealth,
    endpoint: "Endpoint",
    waiting: int,
    sharing: Mapping[str, list[str]],
    gone: Mapping[str, str],
    now: int,
) -> EndpointRecord:
    return EndpointRecord(
        health.task,
        health.to,
        endpoint.queue,
        health.enabled,
        health.circuit,
        health.since,
        None if health.opens is None else now / SECOND + health.opens,
        gone.get(health.task, health.trouble),
        health.in_flight,
        health.at_once,
        endpoint.concurrency,
        waiting,
        [name for name in sharing[endpoint.url.origin] if name != health.task],
    )


def endpoint_detail(
    store: Store, record: EndpointRecord, now: int, allows: Callable[[str], bool] = _any_queue
) -> EndpointDetail:
    """An endpoint with its answers and last exchanges. allows: whether jobs of a queue may be shown and counted. now:
    microseconds by the store's clock. StoreError."""
    exchanges = _newest_exchanges(store, record.task, now, allows)
    hour, day = (_recent_counts(store, record.task, *last, now, allows) for last in ((MINUTES, 60), (HOURS, 24)))
    is_counted = bool(day)
    if not is_counted:
        hour, day = (_on_record(exchanges, now - length) for length in (HOUR, DAY))
    return EndpointDetail(record, hour, day, is_counted, exchanges[:MOST_EXCHANGES])


def _recent_counts(
    store: Store, task: str, resolution: int, count: int, now: int, allows: Callable[[str], bool]
) -> dict[int, int]:
    """What the history has counted in the last so many minutes or hours."""
    period = Period.last(resolution, count, now)
    return view(store.history, period, lambda queue, name: name == task and allows(queue)).total.statuses


def _on_record(exchanges: Sequence[HttpAttempt], since: int) -> dict[int, int]:
    # Such times have one length, so that they compare as text.
    first = format_time(since / SECOND)
    return dict(sorted(Counter(one.status for one in exchanges if one.status and one.at >= first).items()))


def _newest_exchanges(store: Store, task: str, now: int, allows: Callable[[str], bool]) -> list[HttpAttempt]:
    """The newest first. Few jobs are looked at: those that were put lately, and older ones only where these are few."""
    found: list[HttpAttempt] = []
    for after in (*(id_of_moment(now - window) for window in _WINDOWS), b""):
        jobs = store.find(Query(task=task, after=after, limit=_EXAMINED))
        found = [one for job in jobs if allows(job.queue) for one in exchanges_of(job)]
        if len(found) >= MOST_EXCHANGES or len(jobs) == _EXAMINED:
            break
    return sorted(found, key=lambda one: one.at, reverse=True)


def exchanges_of(job: Job) -> Iterator[HttpAttempt]:
    """The exchanges that are on record of a job of an HTTP task."""
    for record in (*records_of(job), *_delivery_of(job)):
        yield HttpAttempt(
            ids.text(job.id),
            record.attempt,
            record.at,
            record.outcome,
            record.status,
            record.elapsed,
            record.address,
            len(record.answer.encode()),
            record.cut,
            record.reason,
        )


def _delivery_of(job: Job) -> Collection[AttemptRecord]:
    if job.state is not State.DONE or not job.note:
        return ()
    try:
        return (decode_json(job.note, AttemptRecord),)
    except UNREADABLE:
        # A program that took the job has ended it with a result of its own.
        return ()


def close_circuit(store: Store, task: str) -> None:
    """Forgets what is known of the endpoint: it gets requests at once, few at first. StoreError."""
    forget_flow(store, task)


def probe(store: Store, task: str) -> bool:
    """Ends the pause of the endpoint: if its circuit is open, with one request, whose outcome closes it or opens it
    again. False if there was no pause. StoreError."""

    def change(cell: bytes | None) -> bytes | None:
        if cell is None or not (state := decode_flow(cell)).until:
            return cell
        return msgspec.json.encode(replace(state, until=0, probing=state.opened > 0))

    before, after = change_cell(store, FLOW_CELL + task, change)
    return before != after
