"""The parameters of a task, with their types as msgspec reads and writes them."""

import functools
import inspect
import operator
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from inspect import Parameter
from typing import Any

import msgspec

from tarry.errors import ArgumentError
from tarry.model.verdict import Verdict
from tarry.tasks.arguments import json_values

_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_BY_NAME = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
REST, EXTRA = "*", "**"
"""In a JSON object: the values of `*rest`, and those of `**extra` whose names mean something else there."""
_SPECIAL = (Parameter.POSITIONAL_ONLY, Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
_UNSET = frozenset({msgspec.UnsetType})


def read_signature(what: str, fn: Callable[..., Any]) -> inspect.Signature:
    """The signature of a function; TypeError if Python knows none, as of some that are written in C. what: for the
    message, what the function is for."""
    try:
        return inspect.signature(fn)
    except ValueError:
        raise TypeError(
            f"{what}: Python does not know which arguments {fn!r} takes; write a function around it"
        ) from None


class TaskSignature:
    """The signature of one task.

    Annotations are resolved at their first use. That may raise ArgumentError: an annotation cannot be resolved, or
    cannot be read from JSON.
    """

    # Not resolved at once: they may name what the module defines further down.

    def __init__(self, task: str, fn: Callable[..., Any]) -> None:
        self.task = task
        self._fn = fn
        self.signature = read_signature(task, fn)
        self.parameters = list(self.signature.parameters.values())
        self.is_simple = not self.of_kind(*_SPECIAL)
        """Every parameter can be given by name, and there is no `*` or `**`."""
        self.positional = self.of_kind(*_POSITIONAL)
        self.keyword_only = self.of_kind(Parameter.KEYWORD_ONLY)
        self.names = [p.name for p in self.parameters if p.kind in _BY_NAME]
        """The names that a call may use."""
        self.takes_any_name = bool(self.of_kind(Parameter.VAR_KEYWORD))
        self.has_defaults = any(parameter.default is not Parameter.empty for parameter in self.positional)
        self.rest_name = "".join(f"*{parameter.name}" for parameter in self.of_kind(Parameter.VAR_POSITIONAL))
        """`*rest`, with the function's own name for it; empty if there is none."""
        self.extra_name = "".join(f"**{parameter.name}" for parameter in self.of_kind(Parameter.VAR_KEYWORD))
        """`**extra`, in the same way."""
        self.object_names = frozenset((*self.names, *(p.name for p in self.of_kind(Parameter.POSITIONAL_ONLY)), REST))
        """What a name in a JSON object stands for, if it is none of `**extra`."""

    def of_kind(self, *kinds: Any) -> list[Parameter]:
        """The parameters of these kinds, in order."""
        return [parameter for parameter in self.parameters if parameter.kind in kinds]

    def type_of(self, parameter: Parameter) -> Any:
        """The annotation of the parameter, as msgspec reads it."""
        return self._types[parameter.name]

    @cached_property
    def rest_type(self) -> Any | None:
        """The type of the values of `*rest`; None if there is no such parameter."""
        rest = self.of_kind(Parameter.VAR_POSITIONAL)
        return self.type_of(rest[0]) if rest else None

    @cached_property
    def rest_field(self) -> str:
        """A field name for `*rest` that no parameter has."""
        return "_".join(["rest", *self.signature.parameters])

    @cached_property
    def result_type(self) -> Any:
        """The return annotation, as msgspec reads it."""
        return json_values.to_msgspec_type(_without_verdicts(self._hints.get("return", Any)))

    @cached_property
    def unannotated(self) -> frozenset[str]:
        """The names of the parameters without an annotation, or with `Any`."""
        return frozenset(parameter.name for parameter in self.parameters if self.type_of(parameter) is Any)

    @cached_property
    def exact_types(self) -> tuple[int, list[frozenset[type]]]:
        """How many arguments are required, and for each positional one the types that are sure to fit."""
        required = [p for p in self.positional + self.keyword_only if p.default is Parameter.empty]
        return len(required), [json_values.exact_types(self.type_of(parameter)) for parameter in self.positional]

    @cached_property
    def array_type(self) -> Any:
        """A struct type for the positional arguments, read from a JSON array."""
        fields = [self._field(parameter) for parameter in self.positional]
        return msgspec.defstruct("Positional", fields, array_like=True, forbid_unknown_fields=True)

    @cached_property
    def object_type(self) -> Any:
        """A struct type for a whole call: created with the arguments of the call, and written as a JSON object."""
        # Two structs, since `kw_only` is for all fields of one.
        first = msgspec.defstruct("First", [self._field(parameter) for parameter in self.positional])
        fields = [self._field(parameter) for parameter in self.keyword_only]
        if self.rest_type is not None:
            fields.append((self.rest_field, list[self.rest_type], msgspec.field(name=REST, default_factory=list)))  # type: ignore[name-defined]
        return msgspec.defstruct(
            "Named", fields, bases=(first,), kw_only=True, forbid_unknown_fields=not self.takes_any_name
        )

    @cached_property
    def object_exact_types(self) -> list[frozenset[type]]:
        """For each field of `object_type`, the types that are sure to fit."""
        # UNSET stands for an argument that was left out, which is sure to fit where there is a default.
        kinds = {
            p.name: json_values.exact_types(self.type_of(p)) | (frozenset() if p.default is Parameter.empty else _UNSET)
            for p in self.parameters
        }
        return [kinds[name] for name in self.object_type.__struct_fields__]

    def unknown_names(self, given: Iterable[str]) -> list[str]:
        """Those of these names that the function takes nothing by."""
        return (
            []
            if self.takes_any_name
            else [name for name in given if isinstance(name, str) and name not in self.signature.parameters]
        )

    def bind_by_name(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a call as they are in a JSON object; Python's TypeError if they do not fit."""
        bound = bind(self.signature, args, kwargs).arguments
        content: dict[str, Any] = {}
        for name, value in bound.items():
            kind = self.signature.parameters[name].kind
            if kind is Parameter.VAR_POSITIONAL:
                content[REST] = value
            elif kind is Parameter.VAR_KEYWORD:
                content |= self._extra_by_name(value)
            else:
                content[name] = value
        return content

    def _extra_by_name(self, extra: Mapping[str, Any]) -> dict[str, Any]:
        # Python lets `**extra` have the name of a positional-only parameter, and any other text.
        apart = {name: value for name, value in extra.items() if name in self.object_names or name == EXTRA}
        return {name: value for name, value in extra.items() if name not in apart} | ({EXTRA: apart} if apart else {})

    def shown_name(self, name: str) -> str:
        """A name in a JSON object, as messages have it."""
        return {REST: self.rest_name, EXTRA: self.extra_name}.get(name) or name

    def iterate_values(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[tuple[Parameter, str, Any]]:
        """Every value of a call: the parameter, the name for messages, the value."""
        for name, value in bind(self.signature, args, kwargs).arguments.items():
            parameter = self.signature.parameters[name]
            match parameter.kind:
                case Parameter.VAR_POSITIONAL:
                    yield from ((parameter, f"*{name}[{index}]", item) for index, item in enumerate(value))
                case Parameter.VAR_KEYWORD:
                    yield from ((parameter, key, item) for key, item in value.items())
                case _:
                    yield parameter, name, value

    @cached_property
    def _hints(self) -> dict[str, Any]:
        try:
            return typing.get_type_hints(_annotated_function(self._fn), include_extras=True)
        except NameError as error:
            why = f"an annotation cannot be resolved: {error}; import it at run time, not only under TYPE_CHECKING"
            raise ArgumentError(f"{self.task}: {why}") from None

    @cached_property
    def _types(self) -> dict[str, Any]:
        return {parameter.name: self._message_type(parameter) for parameter in self.parameters}

    def _message_type(self, parameter: Parameter) -> Any:
        try:
            hint = json_values.to_msgspec_type(self._hints.get(parameter.name, Any))
            # Only for its TypeError: the error can then name the argument.
            json_values.decoder(hint)
        except TypeError as error:
            if isinstance(error, ArgumentError):
                raise
            why = f"argument {parameter.name} cannot travel with its annotation: {error}".replace("`", "")
            raise ArgumentError(f"{self.task}: {why}") from None
        return hint

    def _field(self, parameter: Parameter) -> tuple[Any, ...]:
        field = (parameter.name, self.type_of(parameter))
        # The function itself knows its defaults, so they need not travel.
        return field if parameter.default is Parameter.empty else (*field, msgspec.UNSET)


def bind(signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]) -> inspect.BoundArguments:
    """As `signature.bind(*args, **kwargs)`, for all calls that Python itself takes; its TypeError for all others."""
    # Before 3.13 inspect refuses the name of a positional-only parameter with a default as one of `**extra`.
    extra = next((p.name for p in signature.parameters.values() if p.kind is Parameter.VAR_KEYWORD), "")
    apart = {
        name: value
        for name, value in kwargs.items()
        if extra and name in signature.parameters and signature.parameters[name].kind is Parameter.POSITIONAL_ONLY
    }
    bound = signature.bind(*args, **{name: value for name, value in kwargs.items() if name not in apart})
    if apart:
        bound.arguments[extra] = {**bound.arguments.get(extra, {}), **apart}
    return bound


def _annotated_function(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function that has the annotations: of a callable object, its class's `__call__`."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    return fn if inspect.isroutine(fn) else type(fn).__call__


def _without_verdicts(hint: Any) -> Any:
    """The annotation without verdicts."""
    # A task may return a Snooze, which is not a result.
    if typing.get_origin(hint) not in (typing.Union, types.UnionType):
        return hint
    kept = [arg for arg in typing.get_args(hint) if not (isinstance(arg, type) and issubclass(arg, Verdict))]
    return functools.reduce(operator.or_, kept) if kept else None
