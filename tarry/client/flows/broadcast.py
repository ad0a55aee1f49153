"""`task.broadcast(...)`: one job for each master or worker that is there, as a flow whose result says who gave what."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from tarry.client.flows.build import FlowBuilder
from tarry.client.flows.handle import FlowHandle
from tarry.client.flows.live import BroadcastTarget
from tarry.client.flows.options import FlowOptions
from tarry.client.flows.root import RootBody
from tarry.client.flows.storing import astore, store
from tarry.model.flow.own_queues import BROADCAST
from tarry.model.flow.wiring import GO_ON, Ref
from tarry.tasks.call import Call
from tarry.tasks.definition import TaskDefinition
from tarry.tasks.lazy_asyncio import asyncio
from tarry.tasks.options import Options

if TYPE_CHECKING:
    from tarry.client.client import Client

EXPIRES = "1m"
"""For so long the job of a worker that died, or that has no free slot, is waited for."""
_NOT_FOR_ALL = ("key", "queue", "unique_for", "idempotency", "durable")


def broadcast(
    client: "Client", task: TaskDefinition[Any, Any], args: Sequence[Any], kwargs: Mapping[str, Any], options: Options
) -> FlowHandle[dict[str, Any]]:
    """Stores the call once for each target. HostNotFound if there is none; ArgumentError, ValueError, StoreError."""
    _check(task, options)
    builder, body = _build(client, client.find_targets(options.per or "host"), Call(task, args, kwargs, options))
    return FlowHandle(client, store(client, builder, body))


async def abroadcast(
    client: "Client", task: TaskDefinition[Any, Any], args: Sequence[Any], kwargs: Mapping[str, Any], options: Options
) -> FlowHandle[dict[str, Any]]:
    """The same, awaited."""
    _check(task, options)
    targets = await asyncio.to_thread(client.find_targets, options.per or "host")
    builder, body = _build(client, targets, Call(task, args, kwargs, options))
    return FlowHandle(client, await astore(client, builder, body))


def _check(task: TaskDefinition[Any, Any], options: Options) -> None:
    for name in _NOT_FOR_ALL:
        if getattr(options, name) is not None:
            raise ValueError(f"{task.name}: {name}= is not for a broadcast: it has a job for each host or worker")


def _build(client: "Client", targets: Sequence[BroadcastTarget], call: Call[Any]) -> tuple[FlowBuilder, RootBody]:
    options = call.options
    builder = FlowBuilder(client.factory, BROADCAST, FlowOptions(connection=options.connection))
    each = replace(options, per=None, connection=None, expires=EXPIRES if options.expires is None else options.expires)
    for target in targets:
        own = replace(each, queue=target.queue)
        builder.add(Call(call.task, call.args, call.kwargs, own), on_failure=GO_ON, label=target.label)
    return builder, RootBody(Ref(1, len(targets)), names=[target.name for target in targets])
