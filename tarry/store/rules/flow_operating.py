"""What people do to a whole flow, in bounded parts. Whatever breaks off, the keeper or a second call goes on."""

from collections.abc import Iterator, Mapping

from tarry.model import flow_rules, lifecycle
from tarry.model.flow.node_ids import index_of
from tarry.model.flow_row import FlowRow, Phase
from tarry.model.flow_rules import FLOW_CANCELLED
from tarry.model.job import Job, State
from tarry.model.lifecycle import DEFAULT, NotPossible
from tarry.store.rules.base import Store

PAGE = 500
ACTIVE = (State.SCHEDULED, State.READY, State.RUNNING)
FAILED = (State.DEAD, State.CANCELLED)
_IS: Mapping[Phase, str] = {
    Phase.STORING: "it is being stored",
    Phase.RUNNING: "it is running",
    Phase.CANCELLING: "it is being cancelled",
    Phase.UNDOING: "what it had done is being undone",
    Phase.ENDED: "it has ended",
}


def cancel_flow(store: Store, flow: bytes, now: int, reason: str = "") -> None:
    """Cancels a flow, with what is active in it. NotPossible: it has ended, or is being undone."""
    if not store.flows.change(flow_rules.cancel_flow(flow, reason), now):
        row = store.flows.get(flow)
        # Once more, perhaps after a call that broke off: then there may be nodes left.
        if row is None or row.phase is not Phase.CANCELLING:
            raise NotPossible("it is gone" if row is None else _IS[row.phase])
    cancel_nodes(store, flow, now, reason)


def cancel_nodes(store: Store, flow: bytes, now: int, reason: str = "") -> None:
    """Cancels the active nodes of a flow that is being cancelled."""
    for page in _pages(store, flow, ACTIVE):
        # A change of a node that has ended meanwhile is not valid, as it should be.
        store.apply([lifecycle.cancel(node, DEFAULT, now, reason, FLOW_CANCELLED) for node in page], now)
        if any(node.state is State.RUNNING for node in page):
            store.wake_for_recall()


def retry_flow(store: Store, flow: bytes, now: int) -> int:
    """Lets a flow go on that has ended badly, from its failed nodes; returns how many. NotPossible: it has not ended or
    ended well, what was done is undone, another flow has its key, or failed nodes were deleted."""
    row, (root,) = store.flows.get(flow), store.get([flow])
    _refuse_retry(row, root)
    assert row is not None
    assert root is not None
    if not store.apply([flow_rules.reopen(root, now)], now)[0]:
        raise NotPossible("another unfinished flow has its key, or somebody else retries it")
    count = 0
    for page in _pages(store, flow, FAILED):
        failed = [node for node in page if flow_rules.stops(node)]
        count += sum(store.apply([lifecycle.run_now(node, now) for node in failed], now))
    (root,) = store.get([flow])
    if root is not None:
        store.apply([flow_rules.end_reopening(root)], now)
    if count < row.failed:
        raise NotPossible(f"{row.failed - count} of its failed jobs were deleted, so it cannot end well")
    return count


def _refuse_retry(row: FlowRow | None, root: Job | None) -> None:
    if row is None or root is None:
        raise NotPossible("it is gone")
    if row.phase is not Phase.ENDED:
        raise NotPossible(f"it has not ended: {_IS[row.phase]}")
    if row.ends is State.DONE:
        raise NotPossible("it is done")
    if row.undo < 0:
        raise NotPossible("what it had done is undone")


def _pages(store: Store, flow: bytes, states: tuple[State, ...]) -> Iterator[list[Job]]:
    """The nodes in these states, by pages. Bounded by the size of a flow."""
    after = 0
    while page := store.flows.nodes(flow, after, PAGE, states):
        yield page
        after = index_of(page[-1].id)
