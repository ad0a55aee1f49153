"""What must hold of each state and step of the model of flows."""

from collections.abc import Mapping, Sequence

from tarry.model.flow.node_ids import index_of, is_root
from tarry.model.flow.wiring import COMPENSATE, GO_ON, STOP
from tarry.model.flow_row import FlowRow, GateRow, Phase
from tarry.model.flow_rules import FLOW_CANCELLED, wiring_of
from tarry.model.job import Job, State
from tests.exhaustive.explorer import first_fault

_ACTIVE = (State.READY, State.SCHEDULED, State.RUNNING)
Seen = tuple[FlowRow, Sequence[Job]]
"""A flow: its row, its root and its nodes."""


def has_told(node: Job, policies: Mapping[int, int]) -> bool:
    """Whether those behind it need not wait for it any more: it ended well, or goes on whatever happens; or it did, and
    runs once more by itself."""
    if node.state is State.DONE or wiring_of(node).alone:
        return True
    goes_on = policies.get(index_of(node.id), STOP) == GO_ON
    return goes_on and node.state.finished and FLOW_CANCELLED.encode() not in node.note


def has_failed(node: Job, policies: Mapping[int, int]) -> bool:
    """Whether it has ended so that it stops its flow."""
    return node.state.finished and not has_told(node, policies)


def _asks_for_undo(node: Job, policies: Mapping[int, int]) -> bool:
    """Whether it has failed so that the others are to be undone."""
    asks = policies.get(index_of(node.id), STOP) == COMPENSATE and FLOW_CANCELLED.encode() not in node.note
    return asks and has_failed(node, policies)


def fault_of_flow(
    row: FlowRow, jobs: Sequence[Job], gates: Sequence[GateRow], policies: Mapping[int, int], undo: int, reopening: bool
) -> str:
    """What is wrong with a flow. reopening: somebody retries it, or did and died."""
    nodes = [job for job in jobs if not is_root(job.id)]
    others = [node for node in nodes if index_of(node.id) != undo]
    root = next((job for job in jobs if is_root(job.id)), None)
    left = sum(gate.first + gate.count - gate.next for gate in gates if gate.next >= 0)
    active = sum(node.state in _ACTIVE and not wiring_of(node).alone for node in nodes) + left
    blocked = sum(node.state is State.BLOCKED for node in others) - left
    failed = sum(has_failed(node, policies) for node in nodes)
    armed = sum(_asks_for_undo(node, policies) for node in nodes)
    gone = row.size - 1 - len(nodes)
    is_over = row.phase is Phase.ENDED
    return first_fault(
        (
            ("`active` is not what is there", lambda: active <= row.active <= active + reopening),
            ("`blocked` is not what is there", lambda: blocked <= row.blocked <= blocked + gone),
            ("`failed` is not what is there", lambda: failed <= row.failed <= failed + gone),
            ("`armed` is not what is there", lambda: armed <= row.armed <= armed + gone),
            ("the root has not ended with its flow", lambda: root is None or root.state.finished == is_over),
            ("a flow goes on with nothing active", lambda: is_over or row.active > 0),
            ("a flow is done though not all of it is", lambda: _is_well_done(row, root, others, policies, gone)),
        )
    )


def _is_well_done(row: FlowRow, root: Job | None, nodes: Sequence[Job], policies: Mapping[int, int], gone: int) -> bool:
    is_done = row.phase is Phase.ENDED and root is not None and root.state is State.DONE
    return not is_done or bool(gone) or all(has_told(node, policies) for node in nodes)


def fault_of_step(
    before: Seen,
    after: Seen,
    parents: Mapping[int, Sequence[int]],
    policies: Mapping[int, int],
    undo: int,
    is_late: bool,
) -> str:
    """What is wrong with a step of a flow. is_late: it is the flow's deadline."""
    old = {index_of(job.id): job for job in before[1]}
    new = {index_of(job.id): job for job in after[1]}
    released = [at for at in new if at and _is_released(old[at], new[at])]
    started = [at for at in released if at != undo]
    return first_fault(
        (
            ("a node waits again", lambda: not any(_is_released(new[at], old[at]) for at in new if at)),
            (
                "a node was released before its parents had ended",
                lambda: all(_may_go(new, parents[at], policies) for at in started),
            ),
            (
                "a node was released in a flow that goes on no more",
                lambda: not started or _releases(before[0], after[0]),
            ),
            ("the undoing began before all was quiet", lambda: undo not in released or _is_quiet(new, undo)),
            ("what was done is undone unasked", lambda: undo not in released or _is_asked(new, policies)),
            ("a flow is dead though nothing failed", lambda: is_late or not _dies(before[0], after[0], new)),
            ("a flow that had ended ended again", lambda: not _ends_twice(before[0], after[0], old, new)),
        )
    )


def _is_released(old: Job, new: Job) -> bool:
    return old.state is State.BLOCKED and new.state is not State.BLOCKED


def _may_go(nodes: Mapping[int, Job], parents: Sequence[int], policies: Mapping[int, int]) -> bool:
    return all(at not in nodes or has_told(nodes[at], policies) for at in parents)


def _releases(before: FlowRow, after: FlowRow) -> bool:
    return before.phase in (Phase.RUNNING, Phase.UNDOING) or after.phase is Phase.RUNNING


def _is_quiet(nodes: Mapping[int, Job], undo: int) -> bool:
    return not any(
        job.state in _ACTIVE and not wiring_of(job).alone for at, job in nodes.items() if at not in (0, undo)
    )


def _is_asked(nodes: Mapping[int, Job], policies: Mapping[int, int]) -> bool:
    """Whether a node has failed that asks for the undoing, and was not mended."""
    return any(at and _asks_for_undo(job, policies) for at, job in nodes.items())


def _dies(before: FlowRow, after: FlowRow, nodes: Mapping[int, Job]) -> bool:
    """Whether it ends as dead and no node has failed. What is undone is dead, also if what failed is run again
    meanwhile."""
    has_ended = before.phase is Phase.RUNNING and after.phase is Phase.ENDED
    return has_ended and not after.failed and 0 in nodes and nodes[0].state is State.DEAD


def _ends_twice(before: FlowRow, after: FlowRow, old: Mapping[int, Job], new: Mapping[int, Job]) -> bool:
    is_over = before.phase is after.phase is Phase.ENDED
    return is_over and 0 in old and 0 in new and old[0].state is not new[0].state
