"""`chain`, `group` and `chord`: Celery's canvas as flows of tarry."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tarry.client.flows.block import Flow
from tarry.compat.celery.calls import JOIN, NO_VALUE, Before, CanvasElement, Signature, collect, nodes_of, signature
from tarry.compat.celery.differences import CeleryNotSupported
from tarry.compat.celery.result import EagerResult
from tarry.compat.celery.states import SUCCESS

__all__ = ["CanvasElement", "Signature", "chain", "chord", "group", "signature"]


class chain(CanvasElement):  # noqa: N801 - Celery's name
    """Calls one after the other; each gets the result of the one before."""

    def __init__(self, *tasks: Any, app: Any = None) -> None:
        given = tasks[0] if len(tasks) == 1 and not isinstance(tasks[0], CanvasElement) else tasks
        self.tasks, self.app = _joined(given), app

    def with_arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> "chain":
        first = self.tasks[0].with_arguments(args, kwargs)
        return chain(first, *(task.with_arguments((), {}) for task in self.tasks[1:]), app=self.app)

    def calls(self) -> list[Signature]:
        return [call for task in self.tasks for call in task.calls()]

    def link(self, other: Any) -> Any:
        """Adds a call at the end; returns it."""
        self.tasks[-1].link(other)
        return other

    def place(self, flow: Flow, app: Any, before: Before) -> Before:
        for task in self.tasks:
            before = task.place(flow, app, before)
        return before

    def run_now(self, app: Any, before: Any = NO_VALUE) -> Any:
        result = None
        for task in self.tasks:
            result = task.run_now(app, before)
            if not result.successful():
                break
            before = result.result
        return result

    def __repr__(self) -> str:
        return " | ".join(map(repr, self.tasks))


class group(CanvasElement):  # noqa: N801 - Celery's name
    """Calls side by side; the result is the list of theirs."""

    def __init__(self, *tasks: Any, app: Any = None) -> None:
        given: Iterable[Any] = tasks[0] if len(tasks) == 1 and not isinstance(tasks[0], CanvasElement) else tasks
        self.tasks, self.app = list(given), app

    def with_arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> "group":
        return group([task.with_arguments(args, kwargs) for task in self.tasks], app=self.app)

    def calls(self) -> list[Signature]:
        return [call for task in self.tasks for call in task.calls()]

    def place(self, flow: Flow, app: Any, before: Before) -> Before:
        if all(isinstance(task, Signature) and not task.options.get("link") for task in self.tasks):
            return flow.add_all((task.call(app, before) for task in self.tasks), after=nodes_of(before))
        placed = [task.place(flow, app, before) for task in self.tasks]
        # A list of results may have no list in it, so a group within becomes one node.
        return [flow.add(collect(app, last)) if _is_list(last) else last for last in placed]

    def run_now(self, app: Any, before: Any = NO_VALUE) -> Any:
        results = [task.run_now(app, before) for task in self.tasks]
        failed = next((result for result in results if not result.successful()), None)
        if failed is not None:
            return failed
        return EagerResult(results[0].id if results else "", [result.result for result in results], SUCCESS)

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
        body = self.body and self.body.with_arguments((), {})
        return chord(self.header.with_arguments(args, kwargs), body, app=self.app)

    def calls(self) -> list[Signature]:
        return [*self.header.calls(), *(self.body.calls() if self.body is not None else ())]

    def link(self, other: Any) -> Any:
        """Adds a call after the body; returns it."""
        self._require_body().link(other)
        return other

    def link_error(self, errback: Any) -> Any:
        for call in self.calls():
            # Several of the header may fail, and Celery calls it once.
            call.link_error(errback.clone().set(tarry_once=True))
        return errback

    def place(self, flow: Flow, app: Any, before: Before) -> Before:
        placed: Before = self._require_body().place(flow, app, self.header.place(flow, app, before))
        return placed

    def run_now(self, app: Any, before: Any = NO_VALUE) -> Any:
        results = self.header.run_now(app, before)
        return self._require_body().run_now(app, results.result) if results.successful() else results

    def _require_body(self) -> Any:
        if self.body is None:
            raise CeleryNotSupported("chord(header): it needs a body: chord(header)(body)")
        return self.body

    def __repr__(self) -> str:
        return f"chord({self.header!r}, {self.body!r})"


def join(first: CanvasElement, second: CanvasElement) -> CanvasElement:
    """What `|` makes of two elements."""
    if isinstance(first, group) and not isinstance(second, group):
        return chord(first, second)
    return chain(first, second)


JOIN.append(join)


def _is_list(last: Any) -> bool:
    return isinstance(last, list) or last.result.is_list


def _joined(tasks: Any) -> list[Any]:
    """The elements of a chain, without chains in it."""
    flat: list[Any] = []
    for task in tasks:
        flat += task.tasks if isinstance(task, chain) else [task]
    if not flat:
        raise TypeError("chain() needs a call: chain(first.s(...), second.s())")
    return flat
