"""`with app.flow("order") as f:` builds a flow, and stores it when the block ends well."""

from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from tarry.client.flows.adding import NodeAdder, checked_label
from tarry.client.flows.build import FlowBuilder
from tarry.client.flows.flow_handle import FlowHandle
from tarry.client.flows.flow_options import FlowOptions, OnFailure, policy
from tarry.client.flows.node import Node, waits_of
from tarry.client.flows.root import RootBody
from tarry.client.flows.storing import astore, store
from tarry.model.flow.wiring import Ref
from tarry.tasks.arguments.pending_results import as_list

if TYPE_CHECKING:
    from tarry.client.client import Client


class BlockAdder(NodeAdder):
    """A flow or one within it: both may have flows within."""

    _has_failed = False
    """A flow within it did not end well: its nodes are there, and what comes after them may not be."""

    def flow(self, name: str, *, after: Iterable[Node[Any]] = (), on_failure: OnFailure | None = None) -> "NestedFlow":
        """A flow within this one: `with f.flow("pack") as g: g.add(...)`. It becomes part of this flow: people see its
        nodes as `pack/...`. After its block `g.node` stands for it: as a result, which is that of the last node of `g`
        or of what `g.returns` names, or in `after=`. What waits for it waits for all of its nodes.

        after: none of its nodes starts before these have ended. on_failure: of its nodes that say nothing else.
        """
        self._check_open()
        label, waits = checked_label(name), waits_of(after, self._builder)
        default = self._on_failure if on_failure is None else on_failure
        policy(default)
        return NestedFlow(self, self._builder, default, f"{self._prefix}/{label}".lstrip("/"), waits)

    def _end_nested(self, nested: "NestedFlow", has_failed: bool) -> None:
        self._has_failed = self._has_failed or has_failed
        self._last = nested.node


class Flow(BlockAdder):
    """A flow that is being built: jobs, and what each waits for."""

    def __init__(self, client: "Client", name: str, options: FlowOptions) -> None:
        super().__init__(FlowBuilder(client.factory, name, options), options.on_failure)
        self._client = client
        self._handle: FlowHandle[Any] | None = None

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

    def _note(self, index: int) -> None:
        """Nobody asks which nodes are those of the whole flow."""

    def _body(self) -> RootBody:
        if self._has_failed:
            raise RuntimeError(f"flow {self._builder.name}: a flow within it did not end well, so nothing is stored")
        node = self._result()
        if node is None or not node.refs:
            return RootBody(is_list=node is not None)
        return RootBody(node.refs[0], more=node.refs[1:])


class NestedFlow(BlockAdder):
    """A flow within a flow. waits: what its first nodes wait for."""

    def __init__(
        self, outer: BlockAdder, builder: FlowBuilder, on_failure: str, prefix: str, waits: Sequence[Ref]
    ) -> None:
        super().__init__(builder, on_failure, prefix)
        self._outer, self._waits = outer, waits
        self._own: set[int] = set()

    @property
    def node(self) -> Node[Any]:
        """Stands for this flow, after its block, in those around it; RuntimeError before its end."""
        if self._is_open or not self._was_opened:
            raise RuntimeError("a flow within a flow has a node once its block has ended")
        result = self._result()
        refs, more = ((), ()) if result is None else (result.refs, result.waits)
        return Node(self._builder, refs, (*more, *(self._ends() or self._entry_waits(()))))

    def __enter__(self) -> "NestedFlow":
        self._open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_open = False
        self._outer._end_nested(self, has_failed=self._has_failed or kind is not None)

    def _note(self, index: int) -> None:
        self._own.add(index)
        self._outer._note(index)

    def _entry_waits(self, parents: Sequence[Ref]) -> Sequence[Ref]:
        # One that waits for another node of this flow needs no more: that one has waited.
        if not all(self._own.isdisjoint(ref.nodes) for ref in parents):
            return ()
        return [*self._waits, *self._outer._entry_waits([*parents, *self._waits])]

    def _ends(self) -> list[Ref]:
        """Those of its nodes for which no other one of it waits: when they have ended, all have."""
        inner = {
            index
            for own in self._own
            for first, count in self._builder.planned[own - 1].parents
            for index in range(first, first + count)
        }
        return as_list(sorted(self._own - inner))
