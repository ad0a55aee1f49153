"""Undoes what a failed flow had done: the node that the store releases once nothing of the flow is active any more.

It adds a chain of nodes, one for each node that is done and says how it is undone, from the last to the first. If one
fails, the next ones run all the same.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from tarry.client.flows import map_part
from tarry.client.flows.node import AddedNodes
from tarry.client.tasks.fan_out import insert_nodes
from tarry.model.flow.node_ids import flow_of, index_of, node_id
from tarry.model.flow.wiring import GO_ON, UNDO_TASK, Gate, NodeLinks, added_result, unwrap, wrap
from tarry.model.flow_rules import wiring_of
from tarry.model.job import Job, State
from tarry.store.rules.base import Store
from tarry.tasks.arguments.options import with_labels
from tarry.tasks.definition import TaskDefinition
from tarry.tasks.running import current_job
from tarry.tasks.shield import shielded
from tarry.worker.run.inputs import NodeInputs

_AT_ONCE = 1000


def _undo() -> AddedNodes | None:
    running = current_job().running
    assert isinstance(running.inputs, NodeInputs)
    store, job = running.inputs.store, running.job
    flow = flow_of(job.id)
    done = [node for node in _nodes(store, flow) if node.state is State.DONE and wiring_of(node).undo]
    if not done:
        return None
    with shielded:
        first = store.flows.grow(flow, len(done))
    if first is None:
        raise RuntimeError("what the flow had done cannot be undone: it would have too many nodes")
    insert_nodes(store, list(_chain(job, first, done[::-1])))
    return AddedNodes(added_result(first, len(done), opened=1))


def _nodes(store: Store, flow: bytes) -> Iterator[Job]:
    after = 0
    while page := store.flows.nodes(flow, after, _AT_ONCE):
        yield from page
        after = index_of(page[-1].id)


def _chain(job: Job, first: int, done: Sequence[Job]) -> Iterator[Job]:
    """The nodes that undo these, one after the other."""
    for index, node in enumerate(done, first):
        undo = wiring_of(node).undo
        assert undo is not None
        task, queue, body = undo
        takes, arguments = unwrap(body)
        tells = (Gate(index + 1, 1, 1),) if index + 1 < first + len(done) else ()
        wiring = replace(takes or NodeLinks(), tells=tells, on_failure=GO_ON, label=f"undo {index_of(node.id)}")
        yield Job(
            node_id(flow_of(job.id), index), task, wrap(wiring, arguments), queue, state=State.BLOCKED,
            state_since=job.state_since, headers=with_labels(task, b"", node.labels),
        )  # fmt: skip


_undo_task: TaskDefinition[Any, Any] = TaskDefinition(_undo, name=UNDO_TASK)


def find_internal(name: str, tasks: Mapping[str, TaskDefinition[Any, Any]]) -> TaskDefinition[Any, Any] | None:
    """The task of this name that every worker has besides those of the app; None: it is none of these. tasks:
    those of the app."""
    return _undo_task if name == UNDO_TASK else map_part.find(name, tasks)
