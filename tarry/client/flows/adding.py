"""What can be added to a flow that is being built: jobs, groups, chains, maps, and flows within the flow."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, Literal, TypeVar, overload

from tarry.client.flows.build import FlowBuilder
from tarry.client.flows.flow_options import policy
from tarry.client.flows.mapping import Mapped, plan_parts
from tarry.client.flows.node import Node, join_results, require_nodes, waits_of
from tarry.errors import BodyTooLarge
from tarry.model.flow.wiring import Ref
from tarry.tasks.arguments.options import MAX_NAME
from tarry.tasks.arguments.pending_results import as_list
from tarry.tasks.call import Call, Link

R = TypeVar("R")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")
Stops = Literal["stop", "compensate"]


class NodeAdder(ABC):
    """Adds nodes to a flow, in the order of the calls.

    prefix: of the labels that people see. on_failure: of nodes that say nothing else.
    """

    def __init__(self, builder: FlowBuilder, on_failure: str, prefix: str = "") -> None:
        self._builder, self._on_failure, self._prefix = builder, on_failure, prefix
        self._last: Node[Any] | None = None
        self._returns: Node[Any] | None = None
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
        """Adds a job. It starts once the nodes have ended whose results it gets, and those of `after`, whose results it
        may read by `current_job().results()`.

        on_failure: "stop": if it does not end well, nothing that waits starts any more, and the flow is dead once all
        that runs has ended; "go_on": the flow goes on, with None for its result; "compensate": as "stop", and before
        the flow is dead, `undo` runs for each job that was done, the last one first. Default: that of the flow.

        undo: a call that undoes the job; if it lacks its first argument, that is the result of the job. name: what
        people see, instead of the task's name. ArgumentError if the arguments do not fit the task.
        """
        self._check_open()
        nodes = list(after)
        waits, reads = waits_of(nodes, self._builder), join_results(nodes)
        self._last = self._add_one(call, waits, on_failure, checked_label(name), undo, reads)
        return self._last

    @overload
    def add_all(
        self, calls: Iterable[Call[R] | Node[R]], *, after: Iterable[Node[Any]] = (), on_failure: Stops | None = None
    ) -> Node[list[R]]: ...
    @overload
    def add_all(
        self, calls: Iterable[Call[R] | Node[R]], *, after: Iterable[Node[Any]] = (), on_failure: Literal["go_on"]
    ) -> Node[list[R | None]]: ...
    def add_all(
        self, calls: Iterable[Any], *, after: Iterable[Node[Any]] = (), on_failure: str | None = None
    ) -> Node[list[Any]]:
        """Adds a group: jobs that run side by side. Its result is the list of theirs, in order; else as `add`.

        A node stands for what was added before, such as a chain: its result is one of the list, and `after` is not for
        it. ValueError if its result is a list of several nodes' results.
        """
        self._check_open()
        waits = waits_of(after, self._builder)
        nodes = [each if isinstance(each, Node) else self._add_one(each, waits, on_failure) for each in calls]
        indices: list[int] = []
        for node in require_nodes(nodes, self._builder):
            if node.index is None:
                raise ValueError(f"{node!r} in a group: its result is a list of many; add a job that takes it")
            indices.append(node.index)
        self._last = Node(self._builder, tuple(as_list(indices)), tuple(ref for node in nodes for ref in node.waits))
        return self._last

    def map(
        self,
        task: Mapped[A, R],
        items: Iterable[A],
        /,
        *,
        shards: int = 32,
        after: Iterable[Node[Any]] = (),
        on_failure: Stops | None = None,
    ) -> Node[list[R]]:
        """Adds jobs that call the task for each of these items, as `app.map` does. Its result is the list of what the
        calls return, in order; else as `add`."""
        self._check_open()
        waits = waits_of(after, self._builder)
        try:
            parts = [self._add_one(part, waits, on_failure).refs[0] for part in plan_parts(task, items, shards)]
        except BodyTooLarge as error:
            raise BodyTooLarge(f"{error}: make more parts with shards=") from None
        self._last = Node(self._builder, (Ref(parts[0].first, -len(parts)),) if parts else ())
        return self._last

    @overload
    def chain(self, a: Call[A], /, *, after: Iterable[Node[Any]] = ()) -> Node[A]: ...
    @overload
    def chain(self, a: Call[A] | Node[A], b: Link[A, B], /, *, after: Iterable[Node[Any]] = ()) -> Node[B]: ...
    @overload
    def chain(
        self, a: Call[A] | Node[A], b: Link[A, B], c: Link[B, C], /, *, after: Iterable[Node[Any]] = ()
    ) -> Node[C]: ...
    @overload
    def chain(
        self, a: Call[A] | Node[A], b: Link[A, B], c: Link[B, C], d: Link[C, D], /, *, after: Iterable[Node[Any]] = ()
    ) -> Node[D]: ...
    @overload
    def chain(
        self, a: Call[A] | Node[A], b: Link[A, B], c: Link[B, C], d: Link[C, D], e: Link[D, E], /, *,
        after: Iterable[Node[Any]] = (),
    ) -> Node[E]: ...  # fmt: skip
    @overload
    def chain(
        self, a: Call[Any] | Node[Any], b: Link[Any, Any], c: Link[Any, Any], d: Link[Any, Any], e: Link[Any, Any],
        f: Link[Any, Any], /, *more: Link[Any, Any], after: Iterable[Node[Any]] = (),
    ) -> Node[Any]: ...  # fmt: skip
    def chain(self, *calls: Any, after: Iterable[Node[Any]] = ()) -> Node[Any]:
        """Adds calls that run one after the other; each gets the result of the one before as its first argument. The
        first may be a node, such as a group: then the first call gets its result. The result is that of the last.

        Type checkers check the first five of them.
        """
        if all(isinstance(link, Node) for link in calls):
            raise TypeError("chain() needs a call: chain(task.call(...), other.call())")
        before, waits = None, list(after)
        for link in calls:
            if before is None and isinstance(link, Node):
                (before,) = require_nodes([link], self._builder)
                continue
            # What comes later waits for the link before it, and so for these.
            before, waits = self.add(link if before is None else call_after(link, before), after=waits), []
        assert before is not None
        self._last = before
        return before

    def chord(
        self,
        calls: Iterable[Call[A] | Node[A]],
        callback: Link[list[A], R] | Link[Sequence[A], R],
        /,
        *,
        after: Iterable[Node[Any]] = (),
    ) -> Node[R]:
        """Adds a group, and a last call, which gets the list of its results as its first argument."""
        return self.add(call_after(callback, self.add_all(calls, after=after)))

    def returns(self, node: Node[Any]) -> None:
        """Makes the result of this node that of the flow; else it is that of the node that was added last."""
        self._check_open()
        waits_of([node], self._builder)
        self._returns = node

    @abstractmethod
    def _note(self, index: int) -> None:
        """Takes note of a node that was added, here or in a flow within."""

    def _result(self) -> Node[Any] | None:
        return self._returns or self._last

    def _entry_waits(self, parents: Sequence[Ref]) -> Sequence[Ref]:
        """What a node waits for besides these, because of where it is added."""
        return ()

    def _add_one(
        self,
        call: Any,
        waits: Sequence[Ref],
        on_failure: str | None,
        label: str = "",
        undo: Any = None,
        reads: Sequence[Ref] = (),
    ) -> Node[Any]:
        kind = policy(self._on_failure if on_failure is None else on_failure)
        if self._prefix and type(call) is Call:
            label = f"{self._prefix}/{label or call.task.name}"
            waits = [*waits, *self._entry_waits([*waits, *self._builder.refs(call.task, call.args, call.kwargs)])]
        added = self._builder.add(call, waits, kind, label, undo, reads)
        self._note(added.first)
        return Node(self._builder, (added,))

    def _open(self) -> None:
        if self._was_opened:
            raise RuntimeError(f"flow {self._builder.name}: the block of a flow is run once; make another one")
        self._is_open = self._was_opened = True

    def _check_open(self) -> None:
        if not self._is_open:
            raise RuntimeError("nodes are added in the block of their flow: with app.flow(name) as f: f.add(...)")


def call_after(call: Any, node: Node[Any]) -> Call[Any]:
    """The call with the result of that node as its first argument."""
    if type(call) is not Call:
        raise TypeError(f"{call!r} is no call of a task: write task.call(...)")
    return Call(call.task, (node.result, *call.args), call.kwargs, call.options)


def checked_label(name: str | None) -> str:
    """What people see of a node; empty: they see the task. ValueError."""
    if name is not None and not (isinstance(name, str) and 0 < len(name) <= MAX_NAME):
        raise ValueError(f"name={name!r}: text of 1 to {MAX_NAME} characters")
    return name or ""
