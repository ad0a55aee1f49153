"""A node of a flow that is being built, and nodes that a job adds while it runs."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar, cast

from tarry.model.flow.wiring import Ref
from tarry.tasks.arguments.pending_results import NodeResult
from tarry.tasks.call import Call

R_co = TypeVar("R_co", covariant=True)


class Node(Generic[R_co]):
    """What `f.add` returns: a job of the flow. Those of `f.add_all`, `f.map` and `f.flow` are many jobs."""

    __slots__ = ("_flow", "_refs", "_waits")

    def __init__(self, flow: object, refs: tuple[Ref, ...], waits: tuple[Ref, ...] = ()) -> None:
        self._flow, self._refs, self._waits = flow, refs, waits

    @property
    def flow(self) -> object:
        """What all nodes of one flow have in common; for tarry's own use."""
        return self._flow

    @property
    def refs(self) -> tuple[Ref, ...]:
        """Where its results will be; several are parts of one list. For tarry's own use."""
        return self._refs

    @property
    def waits(self) -> tuple[Ref, ...]:
        """What has ended, besides, when it has; for tarry's own use."""
        return self._waits

    @property
    def index(self) -> int | None:
        """The index of the job whose result it is; None: it is a list of results. For tarry's own use."""
        return self._refs[0].first if self._refs and not self._refs[0].count else None

    @property
    def result(self) -> R_co:
        """What the node will return: give it to other nodes as an argument, or within a list that is one."""
        # For type checkers it is the value itself, so that they check the call that gets it.
        return cast("R_co", NodeResult(self._flow, self._refs, self._waits))

    def __repr__(self) -> str:
        ranges = [f"{ref.nodes[0]} to {ref.nodes[-1]}" if len(ref.nodes) > 1 else f"{ref.first}" for ref in self._refs]
        return f"<Node {', '.join(ranges)}>" if ranges else "<Node of nothing>"


class FanOut:
    """What `fan_out` returns, for the worker."""

    __slots__ = ("calls",)

    def __init__(self, calls: Sequence[Call[Any]]) -> None:
        self.calls = calls


class AddedNodes:
    """Nodes that were added. result: what their parent keeps as its result; it stands for the list of theirs."""

    __slots__ = ("result",)

    def __init__(self, result: bytes) -> None:
        self.result = result


def nodes_among(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[Node[Any]]:
    """The nodes that stand where their results should, also in lists."""
    for value in (*args, *kwargs.values()):
        for each in value if type(value) in (list, tuple) else (value,):
            if isinstance(each, Node):
                yield each


def require_nodes(nodes: Iterable[Any], flow: object) -> Iterator[Node[Any]]:
    """The nodes; TypeError, or ValueError for a node of another flow."""
    for node in nodes:
        if not isinstance(node, Node):
            raise TypeError(f"after={node!r}: a list of nodes, as `add` returns them")
        if node.flow is not flow:
            raise ValueError(f"after={node!r}: a node of another flow")
        yield node


def waits_of(nodes: Iterable[Any], flow: object) -> list[Ref]:
    """What has to end before what waits for these nodes starts; errors as `require_nodes`."""
    return [ref for node in require_nodes(nodes, flow) for ref in (*node.refs, *node.waits)]


def join_results(nodes: Iterable[Node[Any]]) -> list[Ref]:
    """Where the results of these nodes will be, one after the other."""
    found: list[Ref] = []
    for ref in (ref for node in nodes for ref in node.refs):
        if found and min(ref.count, found[-1].count) >= 0 and ref.first == found[-1].nodes.stop:
            found[-1] = Ref(found[-1].first, len(found[-1].nodes) + len(ref.nodes))
        else:
            found.append(ref)
    return found
