"""The shape of a task's calls: its parameters, and the types in which their values travel."""

import functools
import inspect
import operator
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from inspect import Parameter
from typing import Any

import msgspec

from tarry.errors import ArgumentError
from tarry.model.verdict import Verdict
from tarry.tasks import wire

_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_SPECIAL = (Parameter.POSITIONAL_ONLY, Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
_UNSET = frozenset({msgspec.UnsetType})


class Shape:
    """Of one function. Annotations are resolved when first needed: one may name what the module defines further down.
    ArgumentError, from whatever needs them, if that cannot be done or they cannot be read from JSON."""

    def __init__(self, task: str, fn: Callable[..., Any]) -> None:
        self.task = task
        self._fn = fn
        self.signature = inspect.signature(fn)
        self.parameters = list(self.signature.parameters.values())
        self.simple = not self.of_kind(*_SPECIAL)
        """Each parameter can be given by its name, and there is no `*` or `**`."""
        self.positional = self.of_kind(*_POSITIONAL)
        self.named_only = self.of_kind(Parameter.KEYWORD_ONLY)
        self.open_ended = bool(self.of_kind(Parameter.VAR_KEYWORD))
        self.defaults = any(parameter.default is not Parameter.empty for parameter in self.positional)
        self.starred = "".join(f"*{parameter.name}" for parameter in self.of_kind(Parameter.VAR_POSITIONAL))
        """`*rest`, as the function calls it; empty if it has none."""

    def of_kind(self, *kinds: Any) -> list[Parameter]:
        """The parameters of these kinds, in order."""
        return [parameter for parameter in self.parameters if parameter.kind in kinds]

    def type_of(self, parameter: Parameter) -> Any:
        """Its annotation as msgspec reads it."""
        return self._types[parameter.name]

    @cached_property
    def rest(self) -> Any | None:
        """The type of each of `*rest`, if the function takes any number."""
        rest = self.of_kind(Parameter.VAR_POSITIONAL)
        return self.type_of(rest[0]) if rest else None

    @cached_property
    def rest_field(self) -> str:
        """A name for `*rest` that no parameter has."""
        return "_".join(["rest", *self.signature.parameters])

    @cached_property
    def returned(self) -> Any:
        """The annotation of the result, as msgspec reads it."""
        return wire.readable(_without_verdicts(self._hints.get("return", Any)))

    @cached_property
    def untyped(self) -> frozenset[str]:
        """The parameters of which no annotation says anything."""
        return frozenset(parameter.name for parameter in self.parameters if self.type_of(parameter) is Any)

    @cached_property
    def plain(self) -> tuple[int, list[frozenset[type]]]:
        """How many positional arguments there are at least, and for each the types that are sure to fit."""
        required = [p for p in self.positional + self.named_only if p.default is Parameter.empty]
        return len(required), [wire.plain(self.type_of(parameter)) for parameter in self.positional]

    @cached_property
    def array(self) -> Any:
        """Positional arguments as a struct that is read from an array."""
        fields = [self._field(parameter) for parameter in self.positional]
        return msgspec.defstruct("Positional", fields, array_like=True, forbid_unknown_fields=True)

    @cached_property
    def named(self) -> Any:
        """A call as a struct: made like the call, and written as the object by parameter name."""
        first = msgspec.defstruct("First", [self._field(parameter) for parameter in self.positional])
        fields = [self._field(parameter) for parameter in self.named_only]
        if self.rest is not None:
            fields.append((self.rest_field, list[self.rest], msgspec.field(name="*", default_factory=list)))  # type: ignore[name-defined]
        return msgspec.defstruct(
            "Named", fields, bases=(first,), kw_only=True, forbid_unknown_fields=not self.open_ended
        )

    @cached_property
    def named_plain(self) -> list[frozenset[type]]:
        """For each field of `named`, the types that are sure to fit."""
        kinds = {
            p.name: wire.plain(self.type_of(p)) | (frozenset() if p.default is Parameter.empty else _UNSET)
            for p in self.parameters
        }
        return [kinds[name] for name in self.named.__struct_fields__]

    def by_name(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The call as it stands in JSON; TypeError in Python's words if it does not fit."""
        bound = self.signature.bind(*args, **kwargs).arguments
        content: dict[str, Any] = {}
        for name, value in bound.items():
            kind = self.signature.parameters[name].kind
            if kind is Parameter.VAR_POSITIONAL:
                content["*"] = value
            elif kind is Parameter.VAR_KEYWORD:
                content |= value
            else:
                content[name] = value
        return content

    def each(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[tuple[Parameter, str, Any]]:
        """Every value of a call: its parameter, its own name, itself."""
        for name, value in self.signature.bind(*args, **kwargs).arguments.items():
            parameter = self.signature.parameters[name]
            match parameter.kind:
                case Parameter.VAR_POSITIONAL:
                    yield from ((parameter, f"*{name}[{index}]", item) for index, item in enumerate(value))
                case Parameter.VAR_KEYWORD:
                    yield from ((parameter, further, item) for further, item in value.items())
                case _:
                    yield parameter, name, value

    @cached_property
    def _hints(self) -> dict[str, Any]:
        try:
            return typing.get_type_hints(_annotated(self._fn), include_extras=True)
        except NameError as error:
            why = f"an annotation cannot be resolved: {error}; import it at run time, not only under TYPE_CHECKING"
            raise ArgumentError(f"{self.task}: {why}") from None

    @cached_property
    def _types(self) -> dict[str, Any]:
        return {parameter.name: self._readable(parameter) for parameter in self.parameters}

    def _readable(self, parameter: Parameter) -> Any:
        try:
            hint = wire.readable(self._hints.get(parameter.name, Any))
            wire.decoder(hint)
        except TypeError as error:
            if isinstance(error, ArgumentError):
                raise
            why = f"argument {parameter.name} cannot travel with its annotation: {error}".replace("`", "")
            raise ArgumentError(f"{self.task}: {why}") from None
        return hint

    def _field(self, parameter: Parameter) -> tuple[Any, ...]:
        field = (parameter.name, self.type_of(parameter))
        return field if parameter.default is Parameter.empty else (*field, msgspec.UNSET)


def _annotated(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Where the annotations stand: for an object that can be called, at its class's `__call__`."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    return fn if inspect.isroutine(fn) else type(fn).__call__


def _without_verdicts(hint: Any) -> Any:
    """A task may return a Snooze beside its result; that is never kept."""
    if typing.get_origin(hint) not in (typing.Union, types.UnionType):
        return hint
    kept = [arg for arg in typing.get_args(hint) if not (isinstance(arg, type) and issubclass(arg, Verdict))]
    return functools.reduce(operator.or_, kept) if kept else None
