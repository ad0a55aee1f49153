"""Whether what a flow counts is what is there."""

from tarry.model.flow.node_ids import index_of
from tarry.model.flow.wiring import COMPENSATE, GO_ON
from tarry.model.flow_row import FlowRow, GateRow
from tarry.model.job import State
from tarry.store.memory.flows import MemoryFlows
from tarry.store.rules.base import Store
from tests.exhaustive.flow_checks import fault_of_flow

SIZE = 4
"""How many nodes a flow has, besides that which undoes the others, and those that this one adds."""
ASKS = 2
"""The node of a flow that has all undone if it fails."""


def fault_in_counts(store: Store, row: FlowRow, is_retried: bool) -> str:
    """What is wrong with the numbers of a flow; empty: nothing. is_retried: somebody has retried it."""
    # Without what the node that undoes has added and is not linked yet, or never is, as its attempt was broken off.
    nodes = [
        job
        for job in store.flows.nodes(row.id, 0, 10_000)
        if index_of(job.id) <= SIZE + 1 or job.state is not State.BLOCKED
    ]
    (root,) = store.get([row.id])
    gates: list[GateRow] = store.flows.tables.all_gates(row.id) if isinstance(store.flows, MemoryFlows) else []
    added = {index_of(job.id): GO_ON for job in nodes if index_of(job.id) > SIZE + 1}
    policies = added | ({ASKS: COMPENSATE} if row.undo else {})
    jobs = nodes if root is None else [root, *nodes]
    return fault_of_flow(row, jobs, gates, policies, abs(row.undo), is_retried)
