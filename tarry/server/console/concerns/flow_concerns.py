"""What needs attention of flows: those that died lately, and what waits for a decision."""

from collections import Counter
from collections.abc import Iterable, Iterator
from urllib.parse import urlencode

from msgspec.structs import replace

from tarry.client.flows.approvals import PAGE, read_approvals
from tarry.client.queue_records import QueueRecord
from tarry.model.duration import DAY, SECOND
from tarry.model.job import State
from tarry.operate.flows import FlowsQuery, list_flows
from tarry.server.console.concerns.concerns import Concern
from tarry.server.http.method import ApiCall
from tarry.store.base import Tally
from tarry.store.rules.flows import FLOW_TASK

_LATELY = DAY // SECOND
"""Seconds for which a flow that is dead needs attention."""
_MOST_LOOKED_AT = 100
"""Dead flows, the newest first."""


def without_flows(queue: QueueRecord, counts: Iterable[Tally]) -> QueueRecord:
    """The record of a queue without the jobs that stand for dead flows: those have a line of their own."""
    flows = sum(
        tally.count
        for tally in counts
        if tally.queue == queue.queue and tally.state is State.DEAD and tally.task.startswith(FLOW_TASK)
    )
    return replace(queue, dead=max(0, queue.dead - flows)) if flows else queue


def flow_concerns(call: ApiCall, now: float) -> Iterator[Concern]:
    """What needs attention; StoreError. now: seconds since the epoch."""
    dead = list_flows.handler(call, FlowsQuery(State.DEAD, limit=_MOST_LOOKED_AT)).flows
    lately = Counter(flow.name for flow in dead if flow.finished and flow.finished > now - _LATELY)
    for name, count in lately.items():
        yield Concern("flow", name, count, "/flows?" + urlencode({"state": "dead", "name": name}))
    store = call.service.client.store
    found = read_approvals(store, wanted=lambda one: call.allows(one.job.queue), limit=PAGE)
    if found.jobs:
        yield Concern("approval" if found.is_whole else "approvals", "", len(found.jobs), "/approvals")
