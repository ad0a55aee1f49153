"""The codec of batch tasks: a job has one element of the function's list as its argument."""

import functools
import inspect
import operator
import types
import typing
from collections.abc import Callable, Collection, Iterable, MutableSequence, Sequence
from functools import cached_property
from typing import Annotated, Any, TypeVar, Union

from tarry.errors import ArgumentError
from tarry.tasks.arguments.codec import Codec
from tarry.tasks.arguments.signature import TaskSignature

D = TypeVar("D")
R = TypeVar("R")

_LISTS = (list, MutableSequence, Sequence, Collection, Iterable)
_UNIONS = (Union, types.UnionType)


class ElementSignature(TaskSignature):
    """The signature of a batch task. The argument of a job is an element of the list, its result one of the results."""

    def __init__(self, task: str, fn: Callable[..., Any]) -> None:
        super().__init__(task, fn)
        only = self.parameters[0] if len(self.parameters) == 1 else None
        if only is None or self.positional != [only] or self.has_defaults:
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
    """Encodes one element of the function's list, and one of the results."""

    def __init__(self, task: str, fn: Callable[..., Any]) -> None:
        super().__init__(task, fn)
        self._signature = ElementSignature(task, fn)


def _element(hint: Any) -> Any:
    """The type of the elements of a list type; None if it is not a list type."""
    if typing.get_origin(hint) is Annotated:
        hint = typing.get_args(hint)[0]
    if hint is Any:
        return Any
    if (typing.get_origin(hint) or hint) not in _LISTS:
        return None
    # A bare `list` says nothing about its elements.
    return (*typing.get_args(hint), Any)[0]


def _result(hint: Any) -> Any:
    """The type of one job's result. hint: what the function returns: None, or a list of results."""
    # Exceptions and verdicts in the list decide how a job ends; they are not results.
    if hint in (None, type(None)):
        return None
    elements = [_element(kind) for kind in _union_members(hint) if kind is not type(None)]
    if len(elements) != 1 or elements[0] is None:
        return Any
    results = [
        kind for kind in _union_members(elements[0]) if not (inspect.isclass(kind) and issubclass(kind, BaseException))
    ]
    return functools.reduce(operator.or_, results) if results else Any


def _union_members(hint: Any) -> tuple[Any, ...]:
    return typing.get_args(hint) if typing.get_origin(hint) in _UNIONS else (hint,)
