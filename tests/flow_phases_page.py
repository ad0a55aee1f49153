"""The phases of a flow, for docs/lifecycle.md: every event is tried on a flow in every phase, in a store in memory."""

import contextlib
from collections.abc import Callable, Iterable

from msgspec import Struct

from tarry.model import flow_rules
from tarry.model.duration import DAY
from tarry.model.flow.wiring import COMPENSATE
from tarry.model.flow_row import FlowChange, Phase
from tarry.model.lifecycle import NotPossible
from tarry.store.conformance.cases.flows import BAD, end, flow_of, row_of, run, stored, tend_all
from tarry.store.conformance.cases.jobs import NOW, taken
from tarry.store.memory.store import MemoryStore
from tarry.store.rules import flow_operating
from tarry.store.rules.flows import STORING_TIME, frame_of

INTRO = """\
## The life of a flow

A flow of at most 1,000 jobs is *running* once it is stored; a larger one is *storing* until it is whole. In the end \
it is *ended*, and its job is done, dead or cancelled. Only a flow that is running or undoing releases jobs."""
GONE = "gone"


class FlowEvent(Struct, frozen=True):
    """What may happen to a flow: its name, what happened, and how it is made to happen."""

    name: str
    when: str
    happen: Callable[[MemoryStore, bytes], object]


def _time_out(store: MemoryStore, flow: bytes) -> None:
    row = row_of(store, flow)
    # The keeper looks for these only.
    if row.phase is Phase.RUNNING:
        store.flows.change(flow_rules.time_out(row), NOW)


def _forget(store: MemoryStore, flow: bytes) -> None:
    if row_of(store, flow).phase is Phase.ENDED:
        tend_all(store, NOW + 1000 * DAY)


EVENTS = (
    FlowEvent(
        "stored",
        "All its jobs are stored",
        lambda store, flow: store.flows.change(FlowChange(flow, Phase.STORING, Phase.RUNNING), NOW),
    ),
    FlowEvent(
        "abandoned",
        "It was not whole after ten minutes",
        lambda store, flow: store.flows.tend(NOW + STORING_TIME),
    ),
    FlowEvent("ended", "The last of its active jobs has ended", lambda store, flow: end(store, taken(store))),
    FlowEvent(
        "failed",
        "The same; it has failed, and the others are to be undone",
        lambda store, flow: end(store, taken(store), BAD),
    ),
    FlowEvent(
        "cancelled", "Somebody cancelled it", lambda store, flow: store.flows.change(flow_rules.cancel_flow(flow), NOW)
    ),
    FlowEvent("too late", "Its deadline has come", _time_out),
    FlowEvent(
        "retried",
        "Somebody has its failed jobs run again",
        lambda store, flow: flow_operating.retry_flow(store, flow, NOW),
    ),
    FlowEvent("forgotten", "Its time of keeping has ended", _forget),
)


def _storing(store: MemoryStore) -> bytes:
    return store.flows._insert(frame_of(flow_of(store, [[], []], policies={2: COMPENSATE}), NOW), NOW)


def _running(store: MemoryStore) -> bytes:
    return stored(store, [[], []], policies={1: COMPENSATE}, undo=2)


def _cancelling(store: MemoryStore) -> bytes:
    flow = _running(store)
    store.flows.change(flow_rules.cancel_flow(flow), NOW)
    return flow


def _undoing(store: MemoryStore) -> bytes:
    flow = _running(store)
    run(store, flow, 1, outcome=BAD)
    return flow


def _ended(store: MemoryStore) -> bytes:
    flow = stored(store, [[], [1]])
    run(store, flow, 1, outcome=BAD)
    return flow


FLOWS: dict[Phase, Callable[[MemoryStore], bytes]] = {
    Phase.STORING: _storing,
    Phase.RUNNING: _running,
    Phase.CANCELLING: _cancelling,
    Phase.UNDOING: _undoing,
    Phase.ENDED: _ended,
}
"""A flow in each phase, that has one active job if it has any."""


def ways() -> Iterable[tuple[FlowEvent, Phase, str]]:
    """Every event that changes the phase of a flow: the event, from which phase, and to which."""
    for event in EVENTS:
        for phase, make in FLOWS.items():
            store = MemoryStore(lambda: NOW)
            flow = make(store)
            assert row_of(store, flow).phase is phase
            if (to := _tried(event, store, flow)) != name_of(phase):
                yield event, phase, to


def _tried(event: FlowEvent, store: MemoryStore, flow: bytes) -> str:
    """The phase after the event."""
    with contextlib.suppress(NotPossible):
        event.happen(store, flow)
    row = store.flows.get(flow)
    return GONE if row is None else name_of(row.phase)


def name_of(phase: Phase) -> str:
    """As on the page."""
    return phase.name.lower()


def section() -> str:
    """The section of docs/lifecycle.md."""
    rows: dict[tuple[str, str, str], list[str]] = {}
    for event, phase, to in ways():
        rows.setdefault((event.name, event.when, to), []).append(name_of(phase))
    lines = [f"| {name} | {when} | {', '.join(starts)} | {to} |" for (name, when, to), starts in rows.items()]
    return "\n\n".join([INTRO, "\n".join(["| event | what happened | from | to |", "|---|---|---|---|", *lines])])
