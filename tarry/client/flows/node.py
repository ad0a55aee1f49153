"""A node of a flow that is being built."""

from collections.abc import Iterable
from typing import Any, Generic, TypeVar, cast

from tarry.model.flow.wiring import Ref
from tarry.tasks.arguments.results import NodeResult

R_co = TypeVar("R_co", covariant=True)


class Node(Generic[R_co]):
    """What `f.add` returns: a job of the flow, or with `f.add_all` all jobs of a group."""

    __slots__ = ("_flow", "_ref")

    def __init__(self, flow: object, ref: Ref | None) -> None:
        self._flow, self._ref = flow, ref

    @property
    def flow(self) -> object:
        """What all nodes of one flow have in common; for tarry's own use."""
        return self._flow

    @property
    def ref(self) -> Ref | None:
        """Where its results will be; None: it is a group of nothing. For tarry's own use."""
        return self._ref

    @property
    def result(self) -> R_co:
        """What the node will return: give it to other nodes as an argument, or within a list that is one."""
        # For type checkers it is the value itself, so that they check the call that gets it.
        return cast("R_co", NodeResult(self._flow, self._ref))

    def __repr__(self) -> str:
        if self._ref is None:
            return "<Node of nothing>"
        last = f" to {self._ref.first + self._ref.count - 1}" if self._ref.count > 1 else ""
        return f"<Node {self._ref.first}{last}>"


def results_of(nodes: Iterable[Any], flow: object) -> list[Ref | None]:
    """Where the results of these nodes will be; TypeError, or ValueError for a node of another flow."""
    found = list(nodes)
    for node in found:
        if not isinstance(node, Node):
            raise TypeError(f"after={node!r}: a list of nodes, as `add` returns them")
        if node.flow is not flow:
            raise ValueError(f"after={node!r}: a node of another flow")
    return [node.ref for node in found]
