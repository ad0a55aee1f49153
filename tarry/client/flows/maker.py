"""What an app has for flows: `flow`, `chain`, `group`, `chord` and `map`."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

from tarry.client.flows.block import Flow
from tarry.client.flows.finding import Flows
from tarry.client.flows.flow_handle import FlowHandle
from tarry.client.flows.flow_options import FlowOptions, OnFailure
from tarry.client.flows.mapping import Mapped
from tarry.client.flows.root import checked_name
from tarry.model.duration import Duration
from tarry.tasks.call import Call, Link

if TYPE_CHECKING:
    from tarry.client.client import Client

R = TypeVar("R")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")


class FlowMaker(ABC):
    """Makes flows, with options for those that follow."""

    _flow_options = FlowOptions()

    @property
    @abstractmethod
    def client(self) -> "Client":
        """Stores what is made."""

    def flow(
        self,
        name: str,
        *,
        key: str | None = None,
        deadline: Duration | None = None,
        on_failure: OnFailure | None = None,
        connection: Any = None,
        labels: Mapping[str, str] | None = None,
    ) -> Flow:
        """A flow to build: `with app.flow("order") as f: f.add(task.call(...))`, or `async with`. When the block ends
        well, all of it is stored at once; else nothing is. `f.handle` is the flow then.

        key: at most one unfinished flow of this name holds it: else `f.handle` is that one, and nothing is stored.
        deadline: a flow that has not ended so long after it was stored is cancelled, and dead. on_failure: that of the
        nodes which have none of their own. connection: as that of `task.using`. labels: of the flow, and of its nodes
        beside their own.
        """
        own = {"key": key, "deadline": deadline, "on_failure": on_failure, "connection": connection, "labels": labels}
        return Flow(self.client, checked_name(name), self._flow_options.with_given(own))

    @property
    def flows(self) -> Flows:
        """The flows in the store."""
        return Flows(self.client)

    @overload
    def chain(self, a: Call[A], /) -> FlowHandle[A]: ...
    @overload
    def chain(self, a: Call[A], b: Link[A, B], /) -> FlowHandle[B]: ...
    @overload
    def chain(self, a: Call[A], b: Link[A, B], c: Link[B, C], /) -> FlowHandle[C]: ...
    @overload
    def chain(self, a: Call[A], b: Link[A, B], c: Link[B, C], d: Link[C, D], /) -> FlowHandle[D]: ...
    @overload
    def chain(self, a: Call[A], b: Link[A, B], c: Link[B, C], d: Link[C, D], e: Link[D, E], /) -> FlowHandle[E]: ...
    @overload
    def chain(
        self, a: Call[Any], b: Link[Any, Any], c: Link[Any, Any], d: Link[Any, Any], e: Link[Any, Any],
        f: Link[Any, Any], /, *more: Link[Any, Any],
    ) -> FlowHandle[Any]: ...  # fmt: skip
    def chain(self, *calls: Any) -> FlowHandle[Any]:
        """Stores a flow of calls that run one after the other; each gets the result of the one before as its first
        argument. Its result is that of the last. Type checkers check the first five of them."""
        with self.flow("chain") as flow:
            flow.chain(*calls)
        return flow.handle

    def group(self, calls: Iterable[Call[R]], /) -> FlowHandle[list[R]]:
        """Stores a flow of calls that run side by side. Its result is the list of theirs, in order."""
        with self.flow("group") as flow:
            flow.add_all(calls)
        return flow.handle

    def chord(self, calls: Iterable[Call[A]], callback: Link[list[A], R] | Link[Sequence[A], R], /) -> FlowHandle[R]:
        """Stores a flow of calls that run side by side, and of a last one, which gets the list of their results as its
        first argument. Its result is that of the last one."""
        with self.flow("chord") as flow:
            flow.chord(calls, callback)
        return flow.handle

    def map(self, task: Mapped[A, R], items: Iterable[A], /, *, shards: int = 32) -> FlowHandle[list[R]]:
        """Stores a flow of a few jobs that call the task for each of these items: `app.map(shrink, pages)`. Its result
        is the list of what the calls return, in order.

        shards: how many jobs share the items, which run side by side; more if one had over 1,000 items. Each calls the
        task for one item after the other. An attempt after a crash or an error goes on after the last 100 items that
        were done. The task's timeout holds for all items of a job together, as often as it has items; middleware and
        hooks are called for a job, and not for an item.

        ValueError for a task with limits, for one that takes many jobs in one call, and for an HTTP task; ArgumentError
        if an item does not fit. What came of the items of one job may be 256 KB.
        """
        with self.flow("map") as flow:
            flow.map(task, items, shards=shards)
        return flow.handle

    @overload
    async def achain(self, a: Call[A], /) -> FlowHandle[A]: ...
    @overload
    async def achain(self, a: Call[A], b: Link[A, B], /) -> FlowHandle[B]: ...
    @overload
    async def achain(self, a: Call[A], b: Link[A, B], c: Link[B, C], /) -> FlowHandle[C]: ...
    @overload
    async def achain(self, a: Call[A], b: Link[A, B], c: Link[B, C], d: Link[C, D], /) -> FlowHandle[D]: ...
    @overload
    async def achain(
        self, a: Call[A], b: Link[A, B], c: Link[B, C], d: Link[C, D], e: Link[D, E], /
    ) -> FlowHandle[E]: ...
    @overload
    async def achain(
        self, a: Call[Any], b: Link[Any, Any], c: Link[Any, Any], d: Link[Any, Any], e: Link[Any, Any],
        f: Link[Any, Any], /, *more: Link[Any, Any],
    ) -> FlowHandle[Any]: ...  # fmt: skip
    async def achain(self, *calls: Any) -> FlowHandle[Any]:
        """`chain`, awaited."""
        async with self.flow("chain") as flow:
            flow.chain(*calls)
        return flow.handle

    async def agroup(self, calls: Iterable[Call[R]], /) -> FlowHandle[list[R]]:
        """`group`, awaited."""
        async with self.flow("group") as flow:
            flow.add_all(calls)
        return flow.handle

    async def achord(
        self, calls: Iterable[Call[A]], callback: Link[list[A], R] | Link[Sequence[A], R], /
    ) -> FlowHandle[R]:
        """`chord`, awaited."""
        async with self.flow("chord") as flow:
            flow.chord(calls, callback)
        return flow.handle

    async def amap(self, task: Mapped[A, R], items: Iterable[A], /, *, shards: int = 32) -> FlowHandle[list[R]]:
        """`map`, awaited."""
        async with self.flow("map") as flow:
            flow.map(task, items, shards=shards)
        return flow.handle

    def using(
        self,
        *,
        key: str | None = None,
        deadline: Duration | None = None,
        on_failure: OnFailure | None = None,
        connection: Any = None,
        queue: str | None = None,
        keep: Duration | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> "FlowMakerUsing":
        """Makes flows with these options: `app.using(key="7", queue="slow").chain(...)`.

        queue: where the nodes wait that say nothing else. keep: how long a flow and its nodes are kept after its end;
        default: as the jobs of that queue. The others: as those of `flow`.
        """
        own = {"key": key, "deadline": deadline, "on_failure": on_failure, "connection": connection, "queue": queue}
        return FlowMakerUsing(self, self._flow_options.with_given(own | {"keep": keep, "labels": labels}))


class FlowMakerUsing(FlowMaker):
    """Makes flows with options; see `FlowMaker.using`."""

    def __init__(self, maker: FlowMaker, options: FlowOptions) -> None:
        self._maker, self._flow_options = maker, options

    @property
    def client(self) -> "Client":
        return self._maker.client
