"""Arguments and results as JSON, checked against the task's signature at enqueue and again at run. Never pickle.

A body is a JSON array of positional arguments, or, where the call named some, an object by parameter name (what a
function takes as `*rest` stands under `"*"`). Any client, in any language, can write either.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from inspect import Parameter
from operator import contains
from typing import Any

import msgspec
from msgspec.structs import asdict, astuple

from tarry.errors import ArgumentError
from tarry.tasks import misfit, wire
from tarry.tasks.shape import Shape

Arguments = tuple[Sequence[Any], Mapping[str, Any]]


class Codec:
    """How one task's arguments and result travel."""

    def __init__(self, task: str, fn: Callable[..., Any]) -> None:
        self._shape = Shape(task, fn)

    def encode(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
        """The body of a call; ArgumentError, naming the argument, if it does not fit or cannot travel."""
        shape = self._shape
        try:
            if not kwargs:
                least, kinds = shape.plain
                content: Any = args
                values: Sequence[Any] = args
                sure = least <= len(args) <= len(kinds)
            elif shape.simple:
                # The struct takes arguments just as the function does, and much faster than inspect can bind them.
                content = shape.named(*args, **kwargs)
                values, kinds, sure = astuple(content), shape.named_plain, True
            else:
                content, values, kinds, sure = shape.by_name(args, kwargs), (), [], False
            body = wire.checked(content)
            # Values that fit by their mere types: nobody has to read the body to find out.
            if sure and all(map(contains, kinds, map(type, values))):
                return body
            self.decode(body)
            if not sure or any(kind and type(value) not in kind for value, kind in zip(values, kinds, strict=False)):
                self._check_plain(args, kwargs)
        except misfit.CAUSES as error:
            raise misfit.of_call(shape, error, args, kwargs) from None
        return body

    def decode(self, body: bytes) -> Arguments:
        """The arguments in a body, of the types that the signature says; ArgumentError if they do not fit."""
        try:
            if body[:1] == b"[" or body.lstrip()[:1] == b"[":
                return self._positional(body), {}
            return self._named(body)
        except ArgumentError:
            raise
        except (msgspec.MsgspecError, ValueError, TypeError, RecursionError) as error:
            raise misfit.of_body(self._shape, error) from None

    def encode_result(self, value: Any) -> bytes:
        """The result as JSON; TypeError or ValueError if it cannot travel."""
        return wire.encode(value)

    def decode_result(self, note: bytes) -> Any:
        """The result, of the type that the function's return annotation says; as JSON has it where the function
        returned another."""
        try:
            return self._result.decode(note)
        except msgspec.ValidationError:
            return msgspec.json.decode(note)

    @cached_property
    def _array(self) -> msgspec.json.Decoder[Any]:
        needed = [parameter for parameter in self._shape.named_only if parameter.default is Parameter.empty]
        if needed:
            raise ValueError(f"missing a required argument: {needed[0].name!r}")
        return wire.decoder(self._shape.array)

    @cached_property
    def _object(self) -> msgspec.json.Decoder[Any]:
        return wire.decoder(self._shape.named)

    @cached_property
    def _result(self) -> msgspec.json.Decoder[Any]:
        try:
            return wire.decoder(self._shape.returned)
        except TypeError:
            return wire.decoder(Any)

    def _positional(self, body: bytes) -> tuple[Any, ...]:
        if self._shape.starred:
            return self._with_rest(msgspec.json.decode(body, type=list[msgspec.Raw]))
        values = astuple(self._array.decode(body))
        return tuple(v for v in values if v is not msgspec.UNSET) if self._shape.defaults else values

    def _with_rest(self, raw: list[msgspec.Raw]) -> tuple[Any, ...]:
        types = [self._shape.type_of(parameter) for parameter in self._shape.positional]
        types += [self._shape.rest] * (len(raw) - len(types))
        pairs = enumerate(zip(raw, types, strict=False))
        values = tuple(self._alone(item, kind, misfit.name_at(self._shape, index)) for index, (item, kind) in pairs)
        self._shape.signature.bind(*values)
        return values

    def _named(self, body: bytes) -> Arguments:
        found = asdict(self._object.decode(body))
        rest = found.pop(self._shape.rest_field) if self._shape.starred else []
        given = {name: value for name, value in found.items() if value is not msgspec.UNSET}
        if self._shape.simple:
            return [], given
        given |= self._further(body, given)
        args = [given.pop(p.name) for p in self._shape.of_kind(Parameter.POSITIONAL_ONLY) if p.name in given]
        if rest:
            before = self._shape.of_kind(Parameter.POSITIONAL_OR_KEYWORD)
            args += [given.pop(p.name, p.default) for p in before] + rest
        return args, given

    def _further(self, body: bytes, known: Mapping[str, Any]) -> dict[str, Any]:
        """What the function takes as `**further`."""
        further = self._shape.of_kind(Parameter.VAR_KEYWORD)
        if not further:
            return {}
        raw = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        fixed = self._shape.signature.parameters
        names = [name for name in raw if name not in fixed and name != "*" and name not in known]
        return {name: self._alone(raw[name], self._shape.type_of(further[0]), name) for name in names}

    def _alone(self, raw: msgspec.Raw, kind: Any, name: str) -> Any:
        """One argument, of a type that msgspec cannot be told together with the others'."""
        try:
            return wire.decoder(kind).decode(raw)
        except msgspec.ValidationError as error:
            raise misfit.of_value(self._shape, error, name) from None

    def _check_plain(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Bytes, a datetime and the like are text in JSON, and would come back as text where the annotation says so, or
        says nothing."""
        for parameter, name, value in self._shape.each(args, kwargs):
            kinds = wire.plain(self._shape.type_of(parameter))
            if parameter.name in self._shape.untyped:
                if not wire.comes_back(value):
                    raise misfit.of_untyped(self._shape, name, value)
            elif kinds and not wire.fits(value, kinds):
                raise misfit.of_kind(self._shape, name, value, kinds)
