"""Tasks whose function takes the arguments of many jobs at once: `@app.task(batch=100)`."""

import functools
import inspect
import operator
import types
import typing
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, MutableSequence, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, Union

from tarry.errors import ArgumentError
from tarry.model.duration import SECOND, Duration, microseconds
from tarry.model.nearest import did_you_mean
from tarry.tasks.codec import Codec
from tarry.tasks.shape import Shape
from tarry.tasks.task import AsyncTask, SyncTask, Task

if TYPE_CHECKING:
    from tarry.client.client import Client

D = TypeVar("D")
R = TypeVar("R")

WAIT = 0.5
"""Seconds that the first job of a call waits for others, unless the task says otherwise."""
MAX_BATCH = 10_000
_SETTINGS = (
    *(name for name, one in inspect.signature(Task.__init__).parameters.items() if one.kind is one.KEYWORD_ONLY),
    "batch",
    "wait",
)
_LISTS = (list, MutableSequence, Sequence, Collection, Iterable)
_UNIONS = (Union, types.UnionType)


class ElementShape(Shape):
    """The argument of a job is one element of the function's list, its result one of the list returned."""

    def __init__(self, task: str, fn: Callable[..., Any]) -> None:
        super().__init__(task, fn)
        one = self.parameters[0] if len(self.parameters) == 1 else None
        if one is None or self.positional != [one] or self.defaults:
            raise TypeError(
                f"{task}{self.signature}: with batch= a function takes one list and nothing else, "
                f"such as def {getattr(fn, '__name__', 'work')}(items: list[str])"
            )

    @cached_property
    def _hints(self) -> dict[str, Any]:
        hints, name = super()._hints, self.parameters[0].name
        whole = hints.get(name, Any)
        element = _element(whole)
        if element is None:
            raise ArgumentError(f"{self.task}: with batch= it takes a list, such as {name}: list[str], not {whole}")
        return {name: element, "return": _result(hints.get("return", Any))}


class ElementCodec(Codec):
    """How one element of the function's list travels, and one of the list returned."""

    def __init__(self, task: str, fn: Callable[..., Any]) -> None:
        super().__init__(task, fn)
        self._shape = ElementShape(task, fn)


class BatchTask(Task[[D], R]):
    """A function of one list. What is enqueued is an element of it: a job has its own argument, outcome and result."""

    codec_class = ElementCodec

    def __init__(
        self,
        fn: Callable[[list[D]], Any],
        client: "Callable[[], Client]",
        *,
        batch: int,
        wait: Duration = WAIT,
        **settings: Any,
    ) -> None:
        super().__init__(fn, client, **settings)  # type: ignore[arg-type]
        if type(batch) is not int or not 1 <= batch <= MAX_BATCH:
            raise ValueError(f"{self.name}: batch={batch!r}: how many jobs a call gets at most, 1 to {MAX_BATCH}")
        self.batch = batch
        self.wait = microseconds(wait) / SECOND


class SyncBatchTask(BatchTask[D, R]):
    """A batch task made of a `def`."""

    def __call__(self, items: list[D], /) -> Sequence[R | Exception | BaseException] | None:  # type: ignore[override]
        """The plain function, here and now, with the whole list."""
        results: Sequence[R | Exception | BaseException] | None = self.fn(items)  # type: ignore[arg-type]
        return results


class AsyncBatchTask(BatchTask[D, R]):
    """A batch task made of an `async def`."""

    def __call__(self, items: list[D], /) -> Awaitable[Sequence[R | Exception | BaseException] | None]:  # type: ignore[override]
        """The plain coroutine function, here and now, with the whole list."""
        results: Awaitable[Sequence[R | Exception | BaseException] | None] = self.fn(items)  # type: ignore[arg-type]
        return results


def task_class(fn: Callable[..., Any], settings: Mapping[str, Any]) -> type[Task[Any, Any]]:
    """What kind of task the function is to be."""
    is_async = inspect.iscoroutinefunction(fn)
    for name in settings:
        if name not in _SETTINGS:
            near = did_you_mean(name, _SETTINGS) or f"; there are {', '.join(_SETTINGS)}"
            raise TypeError(f"@app.task has no setting {name}{near}")
    if "batch" in settings:
        return AsyncBatchTask if is_async else SyncBatchTask
    if "wait" in settings:
        raise TypeError("wait= says how long a call of many jobs waits to be filled: give batch= too")
    return AsyncTask if is_async else SyncTask


def _element(hint: Any) -> Any:
    """What a list of this type has in it; None if it is no list."""
    if typing.get_origin(hint) is Annotated:
        hint = typing.get_args(hint)[0]
    if hint is Any:
        return Any
    if (typing.get_origin(hint) or hint) not in _LISTS:
        return None
    return (*typing.get_args(hint), Any)[0]


def _result(hint: Any) -> Any:
    """The type of one job's result, by what the function returns for all: None, or a list in which exceptions and
    verdicts may stand for results."""
    if hint in (None, type(None)):
        return None
    elements = [_element(kind) for kind in _kinds(hint) if kind is not type(None)]
    if len(elements) != 1 or elements[0] is None:
        return Any
    results = [kind for kind in _kinds(elements[0]) if not (inspect.isclass(kind) and issubclass(kind, BaseException))]
    return functools.reduce(operator.or_, results) if results else Any


def _kinds(hint: Any) -> tuple[Any, ...]:
    return typing.get_args(hint) if typing.get_origin(hint) in _UNIONS else (hint,)
