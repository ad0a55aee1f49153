"""Stores a flow that was built: its nodes pass the middleware, then all of it is stored at once."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tarry.client.flows.build import FlowBuilder, PlannedNode
from tarry.client.flows.root import RootBody
from tarry.client.handle import Handle, require_handle
from tarry.model.flow.node_ids import node_id
from tarry.tasks.new_job import NewJob

if TYPE_CHECKING:
    from tarry.client.client import Client


def store(client: "Client", builder: FlowBuilder, body: RootBody) -> Handle[Any]:
    """Stores the flow; returns the handle of its root, or that of the unfinished flow that holds its key. StoreError;
    what middleware raises."""
    id = client.store.flows.new_id(builder.name, builder.options.key, builder.lanes)
    make_all(client, builder, id)
    new_flow = builder.finish(id, client.clock.now(), client.rules, body)
    return client.insert_flow(new_flow, builder.options.connection)


def make_all(client: "Client", builder: FlowBuilder, flow: bytes, first: int = 1) -> None:
    """Passes the nodes that have no job yet through the middleware. first: the index of the first node."""
    for node, new in _unmade(client, builder, flow, first, False):
        require_handle(node.call.task.app_hooks.enqueue_chain[False](new))
        _require_made(node)


async def astore(client: "Client", builder: FlowBuilder, body: RootBody) -> Handle[Any]:
    """The same, awaited."""
    id = client.store.flows.new_id(builder.name, builder.options.key, builder.lanes)
    for node, new in _unmade(client, builder, id, 1, True):
        require_handle(await node.call.task.app_hooks.enqueue_chain[True](new))
        _require_made(node)
    new_flow = builder.finish(id, client.clock.now(), client.rules, body)
    return await client.ainsert_flow(new_flow, builder.options.connection)


def _unmade(
    client: "Client", builder: FlowBuilder, flow: bytes, first: int, is_async: bool
) -> Iterator[tuple[PlannedNode, NewJob]]:
    """The nodes that have to pass the middleware, each with the call that does."""
    for index, node in enumerate(builder.planned, first):
        if node.job is None:
            send = _FlowSender(client, builder, node, node_id(flow, index))
            end = send.asend if is_async else send.send
            yield node, NewJob(node.call.task, node.call.args, node.call.kwargs, node.call.options, end, is_async)


class _FlowSender:
    """The end of the middleware chain for one node."""

    def __init__(self, client: "Client", builder: FlowBuilder, node: PlannedNode, id: bytes) -> None:
        self._client, self._builder, self._node, self._id = client, builder, node, id

    def send(self, new: NewJob) -> Handle[Any]:
        self._builder.check(self._node, new.args, new.kwargs, new.options)
        self._builder.make(self._node, new.args, new.kwargs, new.options, new.encode_headers())
        # It is not stored yet, and may never be.
        return Handle(self._client, self._id, None)

    async def asend(self, new: NewJob) -> Handle[Any]:
        return self.send(new)


def _require_made(node: PlannedNode) -> None:
    if node.job is None:
        task = node.call.task.name
        raise TypeError(
            f"{task}: a middleware left out a job of a flow, for which others wait: `return call_next(job)`"
        )
