"""Nodes that a node adds to its flow while it runs: `return fan_out(resize.call(page) for page in pages)`."""

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar, cast

from tarry.client.flows.build import FlowBuilder, stored_node
from tarry.client.flows.flow_options import FlowOptions
from tarry.client.flows.node import AddedNodes, FanOut
from tarry.client.flows.storing import make_all
from tarry.client.tasks.task import Task
from tarry.model.flow.node_ids import MAX_NODES, flow_of, index_of, is_node
from tarry.model.flow.wiring import Gate, Ref, added_result, unwrap
from tarry.model.job import Job
from tarry.store.rules.base import Store
from tarry.store.rules.flows import STORED_AT_ONCE
from tarry.tasks.call import Call
from tarry.tasks.shield import shielded

R = TypeVar("R")


def fan_out(calls: Iterable[Call[R]]) -> list[R]:
    """What a job of a flow returns to go on as many: these calls become jobs of the flow, which run side by side. What
    waits for the job waits for all of them, and its result is the list of theirs, in order.

    They are stored once the job has ended well, so a job that is tried again adds them once.
    """
    found = list(calls)
    for call in found:
        if type(call) is not Call:
            raise TypeError(f"{call!r} is no call of a task: write task.call(...)")
    # A worker takes it apart; to type checkers it is what the others will see.
    return cast("list[R]", FanOut(found))


def add_nodes(job: Job, fan: FanOut) -> AddedNodes | list[Any]:
    """Adds the nodes to the flow of this job, blocked: the end of the job releases them. RuntimeError if it is in no
    flow, or the flow has ended or is full; ArgumentError, ConfigError, StoreError."""
    if not is_node(job.id):
        raise RuntimeError(f"{job.task} returned fan_out(...), but this job is in no flow: enqueue the calls instead")
    if not fan.calls:
        return []
    flow, count = flow_of(job.id), len(fan.calls)
    task = fan.calls[0].task
    assert isinstance(task, Task)
    client = task.client
    wiring, _ = unwrap(job.body)
    assert wiring is not None
    builder = FlowBuilder(client.factory, job.task, FlowOptions())
    for call in fan.calls:
        # With a parent, so that its times count from its release.
        builder.add(call, [Ref(index_of(job.id))], wiring.on_failure)
    # Not within the next block: it may ask a limit_by=.
    lanes = builder.lanes
    with shielded:
        client.store.flows.check_lanes(flow, lanes)
        first = client.store.flows.grow(flow, count)
    if first is None:
        raise RuntimeError(f"{job.task}: its flow has ended, or would have more than {MAX_NODES:,} jobs")
    make_all(client, builder, flow, first)
    # A gate with one parent has no row; the raised one has, and its count says that it must be looked for.
    tells = [Gate(gate.first, gate.count, gate.parents + count - 1) for gate in wiring.tells]
    insert_nodes(client.store, [stored_node(flow, at, node, tells) for at, node in enumerate(builder.planned, first)])
    return AddedNodes(added_result(first, count))


def insert_nodes(store: Store, jobs: Sequence[Job]) -> None:
    """Stores nodes that are added to a flow, blocked."""
    for start in range(0, len(jobs), STORED_AT_ONCE):
        with shielded:
            store.flows.add_nodes(jobs[start : start + STORED_AT_ONCE])
