"""`chain`, `group`, `chord` and signatures: Celery's canvas as flows of tarry."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tarry.client.flows.block import Flow
from tarry.client.flows.node import Node
from tarry.compat.celery.apps import current_app
from tarry.compat.celery.calling import options_of
from tarry.compat.celery.differences import CeleryNotSupported
from tarry.compat.celery.flow_result import FlowResult
from tarry.compat.celery.values import to_json
from tarry.tasks.call import Call

COLLECT = "tarry.compat.celery.collect"
"""The task that makes one list of several results."""

Before = Node[Any] | list[Node[Any]] | None
"""What an element waits for: a node, or several that stand side by side."""


class CanvasElement:
    """What can be put together with `|`, and enqueued."""

    app: Any = None

    def place(self, flow: Flow, app: Any, before: Before) -> Before:
        """Adds it to a flow, behind these nodes; returns those that come last."""
        raise NotImplementedError

    def delay(self, *args: Any, **kwargs: Any) -> Any:
        """Enqueues it; the arguments are added to those of the first call."""
        return self.apply_async(args, kwargs)

    def apply_async(self, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
        """Enqueues it."""
        if options:
            raise CeleryNotSupported(f"{next(iter(options))}= is for single calls: set it on them, s(...).set(...)")
        first = self.with_arguments(tuple(args or ()), dict(kwargs or {}))
        return first.start(self.app or current_app())

    __call__ = delay

    def with_arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> "CanvasElement":
        """The same with more arguments for what comes first."""
        raise NotImplementedError

    def start(self, app: Any) -> Any:
        """Stores the flow; returns its FlowResult."""
        with app.flow(type(self).__name__) as flow:
            last = self.place(flow, app, None)
            if isinstance(last, list):
                flow.add(_collect(app, last))
        return FlowResult(flow.handle, is_list=isinstance(last, list))

    def __or__(self, other: Any) -> "CanvasElement":
        if not isinstance(other, CanvasElement):
            return NotImplemented
        if isinstance(self, group) and not isinstance(other, group):
            return chord(self, other)
        return chain(self, other)

    def link(self, other: Any) -> None:
        """Refused."""
        raise CeleryNotSupported("link(...): write chain(first, second)")

    def link_error(self, other: Any) -> None:
        """Refused."""
        raise CeleryNotSupported("link_error(...): override on_failure of a Task class, or write @task.native.on_dead")


class Signature(CanvasElement):
    """A call of a task as a value, with options of `apply_async`."""

    def __init__(
        self,
        task: str,
        args: Any = (),
        kwargs: Any = None,
        options: Mapping[str, Any] | None = None,
        *,
        immutable: bool = False,
        app: Any = None,
    ) -> None:
        self.task, self.args, self.kwargs = task, tuple(args or ()), dict(kwargs or {})
        self.options, self.immutable, self.app = dict(options or {}), immutable, app

    def set(self, immutable: bool | None = None, **options: Any) -> "Signature":
        """Sets options, and returns it."""
        self.options.update(options)
        if immutable is not None:
            self.immutable = immutable
        return self

    def clone(self, args: Any = (), kwargs: Any = None, **options: Any) -> "Signature":
        """A copy with more arguments, which come first, and options."""
        if self.immutable:
            args, kwargs = (), None
        merged = {**self.kwargs, **(kwargs or {})}
        more = {**self.options, **options}
        return Signature(self.task, (*args, *self.args), merged, more, immutable=self.immutable, app=self.app)

    def with_arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> "Signature":
        return self.clone(args, kwargs)

    def apply_async(self, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
        """Enqueues it as one job."""
        whole = self.clone(tuple(args or ()), kwargs, **options)
        return (self.app or current_app()).send_task(self.task, whole.args, whole.kwargs, **whole.options)

    def apply(self, args: Any = None, kwargs: Any = None) -> Any:
        """Runs it here and now."""
        whole = self.clone(tuple(args or ()), kwargs)
        return (self.app or current_app()).celery_task(self.task).apply(whole.args, whole.kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the function in this process."""
        whole = self.clone(args, kwargs)
        return (self.app or current_app()).celery_task(self.task)(*whole.args, **whole.kwargs)

    def place(self, flow: Flow, app: Any, before: Before) -> Before:
        return flow.add(self.call(app, before), after=nodes_of(before))

    def call(self, app: Any, before: Before) -> Call[Any]:
        """The call with the result of what comes before as its first argument, unless it is immutable."""
        taken = () if before is None or self.immutable else (_result(before),)
        options = options_of(app, self.task, self.options)
        args = (*taken, *(to_json(value) for value in self.args))
        return Call(app.named(self.task), args, to_json(self.kwargs), options)

    def __repr__(self) -> str:
        return f"{self.task}({', '.join([*map(repr, self.args), *(f'{n}={v!r}' for n, v in self.kwargs.items())])})"


class chain(CanvasElement):  # noqa: N801 - Celery's name
    """Calls one after the other; each gets the result of the one before."""

    def __init__(self, *tasks: Any, app: Any = None) -> None:
        given = tasks[0] if len(tasks) == 1 and not isinstance(tasks[0], CanvasElement) else tasks
        self.tasks, self.app = _joined(given), app

    def with_arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> "chain":
        first = self.tasks[0].with_arguments(args, kwargs)
        return chain(first, *self.tasks[1:], app=self.app)

    def place(self, flow: Flow, app: Any, before: Before) -> Before:
        for task in self.tasks:
            before = task.place(flow, app, before)
        return before

    def __repr__(self) -> str:
        return " | ".join(map(repr, self.tasks))


class group(CanvasElement):  # noqa: N801 - Celery's name
    """Calls side by side; the result is the list of theirs."""

    def __init__(self, *tasks: Any, app: Any = None) -> None:
        given: Iterable[Any] = tasks[0] if len(tasks) == 1 and not isinstance(tasks[0], CanvasElement) else tasks
        self.tasks, self.app = list(given), app

    def with_arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> "group":
        return group([task.with_arguments(args, kwargs) for task in self.tasks], app=self.app)

    def place(self, flow: Flow, app: Any, before: Before) -> Before:
        if all(isinstance(task, Signature) for task in self.tasks):
            calls = (task.call(app, before) for task in self.tasks)
            return flow.add_all(calls, after=nodes_of(before))
        placed = [task.place(flow, app, before) for task in self.tasks]
        # A list of results may have no list in it, so a group within becomes one node.
        return [flow.add(_collect(app, last)) if _is_list(last) else last for last in placed]

    def __len__(self) -> int:
        return len(self.tasks)

    def __repr__(self) -> str:
        return f"group({self.tasks!r})"


class chord(CanvasElement):  # noqa: N801 - Celery's name
    """Calls side by side, and one that gets the list of their results: `chord(header)(body)`."""

    def __init__(self, header: Any, body: Any = None, app: Any = None) -> None:
        self.header = header if isinstance(header, group) else group(header)
        self.body, self.app = body, app

    def __call__(self, body: Any = None, **options: Any) -> Any:
        """Enqueues it, with this body."""
        return chord(self.header, body or self.body, app=self.app).apply_async(**options)

    def with_arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> "chord":
        return chord(self.header.with_arguments(args, kwargs), self.body, app=self.app)

    def place(self, flow: Flow, app: Any, before: Before) -> Before:
        if self.body is None:
            raise CeleryNotSupported("chord(header): it needs a body: chord(header)(body)")
        placed: Before = self.body.place(flow, app, self.header.place(flow, app, before))
        return placed

    def __repr__(self) -> str:
        return f"chord({self.header!r}, {self.body!r})"


def signature(task: Any, args: Any = (), kwargs: Any = None, app: Any = None, **options: Any) -> Signature:
    """A call of the task of that name."""
    if isinstance(task, Signature):
        return task
    immutable = bool(options.pop("immutable", False))
    return Signature(task, args, kwargs, options.pop("options", options), immutable=immutable, app=app)


def nodes_of(before: Before) -> list[Node[Any]]:
    """The nodes that are waited for."""
    if before is None:
        return []
    return before if isinstance(before, list) else [before]


def _result(before: Node[Any] | list[Node[Any]]) -> Any:
    return [node.result for node in before] if isinstance(before, list) else before.result


def _is_list(last: Any) -> bool:
    return isinstance(last, list) or last.result.is_list


def _collect(app: Any, last: Any) -> Call[Any]:
    return Call(app.named(COLLECT), (_result(last),), {})


def _joined(tasks: Any) -> list[Any]:
    """The elements of a chain, without chains in it."""
    flat: list[Any] = []
    for task in tasks:
        flat += task.tasks if isinstance(task, chain) else [task]
    if not flat:
        raise TypeError("chain() needs a call: chain(first.s(...), second.s())")
    return flat
