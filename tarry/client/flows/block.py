"""`with app.flow("order") as f:` builds a flow, and stores it when the block ends well."""

from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from tarry.client.flows.build import FlowBuilder
from tarry.client.flows.handle import FlowHandle
from tarry.client.flows.node import Node, results_of
from tarry.client.flows.options import FlowOptions, policy
from tarry.client.flows.root import RootBody
from tarry.client.flows.storing import astore, store
from tarry.model.flow.wiring import Ref
from tarry.tasks.call import Call, Link
from tarry.tasks.options import MAX_NAME

if TYPE_CHECKING:
    from tarry.client.client import Client

R = TypeVar("R")
Stops = Literal["stop", "compensate"]


class Flow:
    """A flow that is being built: jobs, and what each waits for."""

    def __init__(self, client: "Client", name: str, options: FlowOptions) -> None:
        self._client = client
        self._builder = FlowBuilder(client.factory, name, options)
        self._last: Node[Any] | None = None
        self._returns: Node[Any] | None = None
        self._handle: FlowHandle[Any] | None = None
        self._is_open = self._was_opened = False

    @overload
    def add(
        self,
        call: Call[R],
        *,
        after: Iterable[Node[Any]] = (),
        on_failure: Stops | None = None,
        undo: Link[R, Any] | None = None,
        name: str | None = None,
    ) -> Node[R]: ...
    @overload
    def add(
        self,
        call: Call[R],
        *,
        after: Iterable[Node[Any]] = (),
        on_failure: Literal["go_on"],
        undo: Link[R, Any] | None = None,
        name: str | None = None,
    ) -> Node[R | None]: ...
    def add(
        self,
        call: Call[Any],
        *,
        after: Iterable[Node[Any]] = (),
        on_failure: str | None = None,
        undo: Any = None,
        name: str | None = None,
    ) -> Node[Any]:
        """Adds a job. It starts once the nodes have ended whose results it gets, and those of `after`.

        on_failure: "stop": if it does not end well, nothing that waits starts any more, and the flow is dead once all
        that runs has ended; "go_on": the flow goes on, with None for its result; "compensate": as "stop", and before
        the flow is dead, `undo` runs for each job that was done, the last one first. Default: that of the flow.

        undo: a call that undoes the job; if it lacks its first argument, that is the result of the job. name: what
        people see, instead of the task's name. ArgumentError if the arguments do not fit the task.
        """
        self._check_open()
        waits = results_of(after, self._builder)
        added = self._builder.add(call, waits, self._policy(on_failure), _label(name), undo)
        self._last = Node(self._builder, added)
        return self._last

    @overload
    def add_all(
        self, calls: Iterable[Call[R]], *, after: Iterable[Node[Any]] = (), on_failure: Stops | None = None
    ) -> Node[list[R]]: ...
    @overload
    def add_all(
        self, calls: Iterable[Call[R]], *, after: Iterable[Node[Any]] = (), on_failure: Literal["go_on"]
    ) -> Node[list[R | None]]: ...
    def add_all(
        self, calls: Iterable[Call[Any]], *, after: Iterable[Node[Any]] = (), on_failure: str | None = None
    ) -> Node[list[Any]]:
        """Adds a group: jobs that run side by side. Its result is the list of theirs, in order; else as `add`."""
        self._check_open()
        waits, kind = results_of(after, self._builder), self._policy(on_failure)
        added = [self._builder.add(call, waits, kind) for call in calls]
        self._last = Node(self._builder, Ref(added[0].first, len(added)) if added else None)
        return self._last

    def returns(self, node: Node[Any]) -> None:
        """Makes the result of this node that of the flow; else it is that of the node that was added last."""
        self._check_open()
        results_of([node], self._builder)
        self._returns = node

    @property
    def handle(self) -> FlowHandle[Any]:
        """The flow in the store, after the block; RuntimeError before its end, and if it did not end well."""
        if self._handle is None:
            raise RuntimeError("a flow has a handle once its block has ended, and stored it")
        return self._handle

    def __enter__(self) -> "Flow":
        self._open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_open = False
        if kind is None:
            self._handle = FlowHandle(self._client, store(self._client, self._builder, self._body()))

    async def __aenter__(self) -> "Flow":
        self._open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_open = False
        if kind is None:
            self._handle = FlowHandle(self._client, await astore(self._client, self._builder, self._body()))

    def _open(self) -> None:
        if self._was_opened:
            raise RuntimeError(f"flow {self._builder.name}: the block of a flow is run once; make another one")
        self._is_open = self._was_opened = True

    def _check_open(self) -> None:
        if not self._is_open:
            raise RuntimeError("nodes are added in the block of their flow: with app.flow(name) as f: f.add(...)")

    def _policy(self, on_failure: str | None) -> int:
        return policy(self._builder.options.on_failure if on_failure is None else on_failure)

    def _body(self) -> RootBody:
        node = self._returns or self._last
        return RootBody() if node is None else RootBody(node.ref, is_list=node.ref is None)


def _label(name: str | None) -> str:
    if name is not None and not (isinstance(name, str) and 0 < len(name) <= MAX_NAME):
        raise ValueError(f"name={name!r}: text of 1 to {MAX_NAME} characters")
    return name or ""
