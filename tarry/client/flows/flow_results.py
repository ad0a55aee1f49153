"""What a flow gave back, read from its nodes: results are not copied."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from msgspec.structs import replace

from tarry.client.flows import map_part
from tarry.client.flows.root import name_of, read_root
from tarry.errors import FlowFailed, JobCancelled, TarryError
from tarry.model.checks.unreadable import read_note
from tarry.model.flow.node_ids import flow_of, index_of, node_id
from tarry.model.flow.wiring import Ref, added_nodes
from tarry.model.flow_row import FlowRow
from tarry.model.job import Job, State
from tarry.tasks.arguments.codec import plain_result

if TYPE_CHECKING:
    from tarry.client.client import Client

MAX_COLLECTED = 16 * 1024 * 1024
"""Bytes of all results that are collected in one list."""
_AT_ONCE = 1000


def with_root(row: FlowRow, root: Job) -> FlowRow:
    """The row of a flow with its root, as `StoreFlows.find` gives it."""
    return replace(row, root=root)


def value(client: "Client", root: Job) -> Any:
    """The result of a flow that is done; ValueError if its parts are more than MAX_COLLECTED bytes."""
    body = read_root(root)
    if not body.parts:
        return [] if body.is_list else None
    from tarry.store.rules.payload_reference import full_size  # noqa: PLC0415 - few processes ask for it

    taken, found, most = 0, list[Any](), max(MAX_COLLECTED, client.store.most_apart)
    for ref in body.parts:
        for job in nodes_of(client, root.id, ref):
            taken += 0 if job is None else full_size(job.note)
            if taken > most:
                raise ValueError(
                    f"the results of flow {name_of(root)} take more than {most >> 20} MiB: iterate over results()"
                )
            found += _elements(client, ref, job)
    return body.shape(found)


def iterate(client: "Client", root: Job) -> Iterator[Any]:
    """The elements of the result of a flow that is done, if it is a list; else the result."""
    body = read_root(root)
    parts = body.parts
    if body.names:
        yield value(client, root)
        return
    if parts and not parts[0].count:
        job = client.store.get([node_id(root.id, parts[0].first)])[0]
        added = None if job is None else added_nodes(job.note)
        if added is None:
            result = decode(client, job)
            yield from result if isinstance(result, list) else [result]
            return
        parts = (added,)
    for ref in parts:
        for job in nodes_of(client, root.id, ref):
            yield from _elements(client, ref, job)


def _elements(client: "Client", ref: Ref, job: Job | None) -> Sequence[Any]:
    """What a node of this part adds to the list of results."""
    if ref.count >= 0:
        return [decode(client, job)]
    if job is None:
        raise ValueError("a part of the result is gone: somebody deleted its job")
    if job.state is not State.DONE:
        return [None] * map_part.count_items(client.load_arguments(job).body)
    found: Sequence[Any] = decode(client, job)
    return found


def nodes_of(client: "Client", flow: bytes, ref: Ref) -> Iterator[Job | None]:
    """The jobs of these nodes, by index; None for one that is gone."""
    if not ref.count:
        yield from client.store.get([node_id(flow, ref.first)])
        return
    for start in range(ref.nodes.start, ref.nodes.stop, _AT_ONCE):
        count = min(_AT_ONCE, ref.nodes.stop - start)
        page = {index_of(job.id): job for job in client.store.flows.nodes(flow, start - 1, count)}
        yield from (page.get(index) for index in range(start, start + count))


def decode(client: "Client", job: Job | None) -> Any:
    """The result of a node; None if it is gone, or did not end well and its flow went on."""
    if job is None or job.state is not State.DONE:
        return None
    added = added_nodes(job.note)
    if added is not None:
        # Nodes that it has added while it ran stand for its result.
        return [decode(client, each) for each in nodes_of(client, flow_of(job.id), added)]
    job = client.load_result(job)
    task = client.tasks.get(job.task) or map_part.find(job.task, client.tasks)
    return task.codec.decode_result(job.note) if task else plain_result(job)


def failure(client: "Client", root: Job) -> TarryError:
    """The error for a flow that is dead or cancelled."""
    note = read_note(root.note)
    flow = f"flow {name_of(root)} {UUID(bytes=root.id)}"
    if root.state is State.CANCELLED:
        reason = note.get("message")
        return JobCancelled(f"{flow} was cancelled" + (f": {reason}" if reason else ""))
    what = f"{note.get('type')}: {note.get('message')}"
    index = note.get("node", 0)
    job = client.store.get([node_id(root.id, index)])[0] if index else None
    if job is None:
        return FlowFailed(f"{flow} is dead: {what}")
    failed = FlowFailed(f"{flow}: node {index} ({job.task}) is {job.state}: {what}", client.get(job.id))
    # As a note, so that Python prints the traceback of the task under that of the caller.
    failed.add_note(str(read_note(job.note).get("traceback", "")))
    return failed
