"""What must hold at the end of a run, of what the store has then."""

from collections.abc import Container, Sequence
from itertools import pairwise

from tarry.model.duration import SECOND
from tarry.model.flow.node_ids import index_of
from tarry.model.flow_row import FlowRow
from tarry.model.flow_rules import FLOW_CANCELLED
from tarry.model.job import Job, State
from tarry.store.rules.base import Store
from tarry.store.rules.flows import FLOW_TASK, FlowQuery
from tests.simulation.flow_counts import ASKS, fault_in_counts
from tests.simulation.ledger import TICK
from tests.simulation.world import Violation

UNDOABLE = (1, 2, 3)
"""The nodes of a flow that say how they are undone."""


def check_ticks(due: Sequence[int], now: int) -> None:
    """Each tick since the first has become one job, also while the store was away."""
    period = TICK * SECOND
    ticks = sorted(due)
    if not ticks or now - ticks[-1] > period:
        raise Violation(f"no tick since {ticks[-1:]}")
    for tick, following in pairwise(ticks):
        if following - tick != period:
            raise Violation(f"a tick has two jobs, or is missing: {(following - tick) / SECOND:g} s after another")


def check_flows(store: Store, run_again: Container[bytes]) -> None:
    """A flow whose node has failed that asks for it is undone, and all of it. run_again: flows of which nodes were run
    again, as they may be also while the others are undone."""
    for row in store.flows.find(FlowQuery(limit=10_000)):
        if fault := fault_in_counts(store, row, is_retried=False):
            raise Violation(f"flow {row.id.hex()}: {fault}")
        if row.root is not None and row.root.task == f"{FLOW_TASK}undone" and row.id not in run_again:
            _check_flow(row, {index_of(job.id): job for job in store.flows.nodes(row.id, 0, 10_000)})


def _check_flow(row: FlowRow, nodes: dict[int, Job]) -> None:
    assert row.root is not None
    name = f"flow {row.id.hex()}"
    undo = nodes[abs(row.undo)]
    has_asked = nodes[ASKS].state in (State.DEAD, State.CANCELLED) and FLOW_CANCELLED.encode() not in nodes[ASKS].note
    if row.root.state is State.DEAD and has_asked and undo.state is State.BLOCKED:
        raise Violation(f"{name} has failed, and is not undone")
    if undo.state is State.DONE:
        done = [index for index in UNDOABLE if nodes[index].state is State.DONE]
        undone = [job for index, job in nodes.items() if index > abs(row.undo) and job.state.finished]
        if len(undone) != len(done):
            raise Violation(f"{name}: of {len(done)} nodes that were done {len(undone)} are undone")
