"""`chain`, `group` and `chord`: Celery's canvas as flows of tarry."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tarry.client.flows.block import Flow
from tarry.compat.celery.calls import (
    JOIN,
    KINDS,
    NO_VALUE,
    Before,
    CanvasElement,
    Signature,
    collect,
    nodes_of,
    signature,
)
from tarry.compat.celery.differences import CeleryNotSupported
from tarry.compat.celery.result import EagerGroup

__all__ = ["CanvasElement", "Signature", "chain", "chord", "group", "signature"]


class chain(CanvasElement):  # noqa: N801 - Celery's name
    """Calls one after the other; each gets the result of the one before."""

    def __init__(self, *tasks: Any, app: Any = None) -> None:
        super().__init__("chain", "celery.chain", {"tasks": _flatten_chain(_given(tasks), app)}, app)

    @property
    def tasks(self) -> list[Any]:
        """Its elements, one after the other."""
        found: list[Any] = self["kwargs"]["tasks"]
        return found

    def with_arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> "chain":
        given = [(args, kwargs), *[((), {})] * len(self.tasks)]
        return chain([task.with_arguments(*more) for task, more in zip(self.tasks, given, strict=False)], app=self.app)

    def calls(self) -> list[Signature]:
        return [call for task in self.tasks for call in task.calls()]

    def is_nothing(self) -> bool:
        return not self.tasks

    def set_options(self, options: Mapping[str, Any]) -> None:
        for task in self.tasks[:1]:
            task.set_options(options)

    def link(self, other: Any) -> Any:
        """Adds a call at the end; returns it."""
        self.tasks[-1].link(other)
        return other

    def steps(self, flow: Flow, app: Any, before: Before) -> list[Before]:
        placed: list[Before] = []
        for task in self.tasks:
            placed += task.steps(flow, app, placed[-1] if placed else before)
        return placed

    def run_now(self, app: Any, before: Any = NO_VALUE) -> Any:
        result = None
        for task in self.tasks:
            earlier, result = result, task.run_now(app, before)
            result.parent = earlier
            if not result.successful():
                break
            before = result.result
        return result

    def __repr__(self) -> str:
        return " | ".join(map(repr, self.tasks))


class group(CanvasElement):  # noqa: N801 - Celery's name
    """Calls side by side; the result is the list of theirs. Those of a group within are among them."""

    def __init__(self, *tasks: Any, app: Any = None) -> None:
        super().__init__("group", "celery.group", {"tasks": [signature(task, app=app) for task in _given(tasks)]}, app)

    @property
    def tasks(self) -> list[Any]:
        """Its elements, side by side."""
        found: list[Any] = self["kwargs"]["tasks"]
        return found

    def with_arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> "group":
        return group([task.with_arguments(args, kwargs) for task in self.tasks], app=self.app)

    def calls(self) -> list[Signature]:
        return [call for task in self.tasks for call in task.calls()]

    def set_options(self, options: Mapping[str, Any]) -> None:
        for task in self.tasks:
            task.set_options(options)

    def skew(self, start: float = 1.0, stop: float | None = None, step: float = 1.0) -> "group":
        """Lets its elements start one after the other: after `start` seconds, `start + step` and so on; those that
        would be later than `stop` seconds with the last before it. Returns it."""
        most = (stop - start) // step if stop else len(self.tasks)
        for number, task in enumerate(self.tasks):
            task.set(countdown=start + min(number, most) * step)
        return self

    def members(self) -> list[Any]:
        """Its elements, with those of the groups among them, as Celery has it."""
        return [each for task in self.tasks for each in (task.members() if isinstance(task, group) else [task])]

    def steps(self, flow: Flow, app: Any, before: Before) -> list[Before]:
        members = self.members()
        if all(isinstance(task, Signature) and not task.options.get("link") for task in members):
            return [flow.add_all((task.call(app, before) for task in members), after=nodes_of(before))]
        placed = [task.place(flow, app, before) for task in members]
        # A list of results may have no list in it, so a group at the end of a chain becomes one node.
        return [[flow.add(collect(app, last)) if _is_list(last) else last for last in placed]]

    def run_now(self, app: Any, before: Any = NO_VALUE) -> Any:
        return EagerGroup([task.run_now(app, before) for task in self.members()])

    def __len__(self) -> int:
        return len(self.tasks)

    def __repr__(self) -> str:
        return f"group({self.tasks!r})"


class Chunks(group):
    """Calls in portions, each of which is one job: what `task.chunks(...)` gives."""

    def group(self) -> group:
        """The portions as a group."""
        return group(self.tasks, app=self.app)


class chord(CanvasElement):  # noqa: N801 - Celery's name
    """Calls side by side, and one that gets the list of their results: `chord(header)(body)`."""

    def __init__(self, header: Any, body: Any = None, app: Any = None) -> None:
        calls = header if isinstance(header, group) else group(header, app=app)
        taken = body if body is None else signature(body, app=app)
        super().__init__("chord", "celery.chord", {"header": calls, "body": taken, "kwargs": {}}, app)

    @property
    def header(self) -> group:
        """The calls side by side."""
        found: group = self["kwargs"]["header"]
        return found

    @property
    def body(self) -> Any:
        """What gets their results; None: nothing yet."""
        return self["kwargs"]["body"]

    @property
    def tasks(self) -> list[Any]:
        """The calls side by side."""
        return self.header.tasks

    def __call__(self, body: Any = None, **options: Any) -> Any:
        """Enqueues it, with this body."""
        return chord(self.header, self.body if body is None else body, app=self.app).apply_async(**options)

    def with_arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> "chord":
        body = None if self.body is None else self.body.with_arguments((), {})
        return chord(self.header.with_arguments(args, kwargs), body, app=self.app)

    def calls(self) -> list[Signature]:
        return [*self.header.calls(), *(self.body.calls() if self.body is not None else ())]

    def set_options(self, options: Mapping[str, Any]) -> None:
        # As with Celery: a countdown is for the body alone.
        self.header.set_options({name: value for name, value in options.items() if name != "countdown"})
        if self.body is not None:
            self.body.set_options({name: value for name, value in options.items() if name != "immutable"})

    def link(self, other: Any) -> Any:
        """Adds a call after the body; returns it."""
        self._require_body().link(other)
        return other

    def link_error(self, errback: Any) -> Any:
        for call in self.calls():
            # Several of the header may fail, and Celery calls it once.
            call.link_error(errback.clone().set(tarry_once=True))
        return errback

    def steps(self, flow: Flow, app: Any, before: Before) -> list[Before]:
        placed = self.header.steps(flow, app, before)
        return [*placed, *self._require_body().steps(flow, app, placed[-1])]

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


def _chord_of(kwargs: Mapping[str, Any], app: Any) -> chord:
    header = kwargs["header"]
    return chord(signature(header, app=app) if isinstance(header, Mapping) else header, kwargs.get("body"), app=app)


KINDS.update(
    chain=lambda kwargs, app: chain(kwargs["tasks"], app=app),
    group=lambda kwargs, app: group(kwargs["tasks"], app=app),
    chord=_chord_of,
)
JOIN.append(join)


def _is_list(last: Any) -> bool:
    return isinstance(last, list) or last.result.is_list


def _given(tasks: Sequence[Any]) -> Iterable[Any]:
    """The elements, which may be given as one list."""
    return tasks[0] if len(tasks) == 1 and not isinstance(tasks[0], Mapping) else tasks


def _flatten_chain(tasks: Iterable[Any], app: Any) -> list[Any]:
    """The elements of a chain, without chains in it."""
    flat: list[Any] = []
    for given in tasks:
        task = _unpack_single(signature(given, app=app))
        flat += task.tasks if isinstance(task, chain) else [task]
    return flat


def _unpack_single(task: Any) -> Any:
    """As Celery has it, a group of one within a chain is that one, whose result is no list."""
    while type(task) is group and len(task.tasks) == 1:
        task = task.tasks[0]
    return task
