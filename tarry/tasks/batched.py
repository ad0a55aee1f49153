"""Tasks whose function takes the arguments of many jobs at once: `@app.task(batch=100)`."""

import functools
import inspect
import operator
import types
import typing
from collections.abc import Callable, Collection, Iterable, MutableSequence, Sequence
from functools import cached_property
from typing import Annotated, Any, TypeVar, Union

from tarry.errors import ArgumentError
from tarry.tasks.codec import Codec
from tarry.tasks.shape import Shape

D = TypeVar("D")
R = TypeVar("R")

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
