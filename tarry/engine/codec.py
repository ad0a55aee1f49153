"""Arguments and results as JSON, checked against the task's signature at enqueue and again at run. Never pickle.

A body is a JSON array of positional arguments, or, where the call named some, an object by parameter name (what a
function takes as `*rest` stands under `"*"`). Any client, in any language, can write either.
"""

import inspect
import math
import re
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import msgspec

from tarry.errors import ArgumentError

_PATH = re.compile(r"(.*) - at `\$(?:\[(\d+)\]|\.(\w+))?(.*)`$")
_PLAIN = (str, int, bool, type(None))
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)

Arguments = tuple[Sequence[Any], Mapping[str, Any]]


class Codec:
    """How one task's arguments and result travel."""

    def __init__(self, task: str, fn: Callable[..., Any]) -> None:
        self._task = task
        self._fn = fn
        self._signature = inspect.signature(fn)
        self._parameters = list(self._signature.parameters.values())

    def encode(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
        """The body of a call; ArgumentError, naming the argument, if it does not fit or cannot travel."""
        try:
            content = args if not kwargs else self._by_name(args, kwargs)
            body = msgspec.json.encode(content)
            self.decode(body)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise self._explained(error, args, kwargs) from None
        if self._untyped:
            self._check_untyped(args, kwargs)
        return body

    def decode(self, body: bytes) -> Arguments:
        """The arguments in a body, of the types that the signature says; ArgumentError if they do not fit."""
        try:
            if body[:1] == b"[":
                return self._positional(body), {}
            return self._named(body)
        except (msgspec.MsgspecError, ValueError) as error:
            raise ArgumentError(f"{self._task}: {self._located(str(error))}") from None

    def encode_result(self, value: Any) -> bytes:
        """The result as JSON; TypeError or ValueError if it cannot travel."""
        return msgspec.json.encode(value)

    def decode_result(self, note: bytes) -> Any:
        """The result, of the type that the function's return annotation says."""
        return self._result.decode(note)

    @cached_property
    def _hints(self) -> dict[str, Any]:
        """Resolved when first needed: an annotation may name what the module defines further down."""
        return typing.get_type_hints(self._fn, include_extras=True)

    def _hint(self, parameter: inspect.Parameter) -> Any:
        return self._hints.get(parameter.name, Any)

    def _of_kind(self, *kinds: Any) -> list[inspect.Parameter]:
        return [parameter for parameter in self._parameters if parameter.kind in kinds]

    @cached_property
    def _untyped(self) -> list[str]:
        return [parameter.name for parameter in self._parameters if self._hint(parameter) is Any]

    @cached_property
    def _rest(self) -> Any | None:
        """The type of each of `*rest`, if the function takes any number."""
        rest = self._of_kind(inspect.Parameter.VAR_POSITIONAL)
        return self._hint(rest[0]) if rest else None

    @cached_property
    def _array(self) -> msgspec.json.Decoder[Any]:
        fields = [
            _field(parameter, self._hint(parameter), index)
            for index, parameter in enumerate(self._of_kind(*_POSITIONAL))
        ]
        needed = [p for p in self._of_kind(inspect.Parameter.KEYWORD_ONLY) if p.default is p.empty]
        if needed:
            raise ValueError(f"missing a required argument: {needed[0].name!r}")
        struct = msgspec.defstruct("Positional", fields, array_like=True, forbid_unknown_fields=True)
        return msgspec.json.Decoder(struct)

    @cached_property
    def _defaults(self) -> bool:
        return any(parameter.default is not parameter.empty for parameter in self._of_kind(*_POSITIONAL))

    def _positional(self, body: bytes) -> tuple[Any, ...]:
        if self._rest is not None:
            return self._with_rest(msgspec.json.decode(body, type=list[msgspec.Raw]))
        values = msgspec.structs.astuple(self._array.decode(body))
        return tuple(v for v in values if v is not msgspec.UNSET) if self._defaults else values

    def _with_rest(self, raw: list[msgspec.Raw]) -> tuple[Any, ...]:
        types = [self._hint(parameter) for parameter in self._of_kind(*_POSITIONAL)]
        types += [self._rest] * (len(raw) - len(types))
        values = tuple(msgspec.json.decode(item, type=kind) for item, kind in zip(raw, types, strict=False))
        self._signature.bind(*values)
        return values

    @cached_property
    def _object(self) -> msgspec.json.Decoder[Any]:
        named = self._of_kind(*_POSITIONAL, inspect.Parameter.KEYWORD_ONLY)
        fields = [_field(parameter, self._hint(parameter), index) for index, parameter in enumerate(named)]
        rename = {f"p{index}": parameter.name for index, parameter in enumerate(named)}
        if self._rest is not None:
            fields.append(("rest", list[self._rest], msgspec.field(default_factory=list)))  # type: ignore[name-defined]
            rename["rest"] = "*"
        open_ended = bool(self._of_kind(inspect.Parameter.VAR_KEYWORD))
        struct = msgspec.defstruct("Named", fields, rename=rename, kw_only=True, forbid_unknown_fields=not open_ended)
        return msgspec.json.Decoder(struct)

    def _named(self, body: bytes) -> Arguments:
        found = self._object.decode(body)
        given = {parameter.name: value for parameter, value in self._given(found)}
        given |= self._further(body, given)
        args = [given.pop(p.name) for p in self._of_kind(inspect.Parameter.POSITIONAL_ONLY) if p.name in given]
        if self._rest is not None and found.rest:
            args += [given.pop(p.name) for p in self._of_kind(inspect.Parameter.POSITIONAL_OR_KEYWORD)] + found.rest
        return args, given

    def _given(self, found: Any) -> Iterator[tuple[inspect.Parameter, Any]]:
        named = self._of_kind(*_POSITIONAL, inspect.Parameter.KEYWORD_ONLY)
        for index, parameter in enumerate(named):
            value = getattr(found, f"p{index}")
            if value is not msgspec.UNSET:
                yield parameter, value

    def _further(self, body: bytes, known: Mapping[str, Any]) -> dict[str, Any]:
        """What the function takes as `**further`."""
        further = self._of_kind(inspect.Parameter.VAR_KEYWORD)
        if not further:
            return {}
        raw = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        names = [name for name in raw if name not in self._signature.parameters and name != "*" and name not in known]
        return {name: msgspec.json.decode(raw[name], type=self._hint(further[0])) for name in names}

    def _by_name(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        bound = self._signature.bind(*args, **kwargs).arguments
        content: dict[str, Any] = {}
        for name, value in bound.items():
            kind = self._signature.parameters[name].kind
            if kind is inspect.Parameter.VAR_POSITIONAL:
                content["*"] = value
            elif kind is inspect.Parameter.VAR_KEYWORD:
                content |= value
            else:
                content[name] = value
        return content

    @cached_property
    def _result(self) -> msgspec.json.Decoder[Any]:
        hint = self._hints.get("return", Any)
        try:
            return msgspec.json.Decoder(type(None) if hint is None else hint)
        except TypeError:
            return msgspec.json.Decoder(Any)

    def _explained(self, error: Exception, args: Sequence[Any], kwargs: Mapping[str, Any]) -> ArgumentError:
        """The clearest thing that can be said: Python's word on the call, then the value that cannot travel."""
        if isinstance(error, ArgumentError) and "required" not in str(error):
            fits = self._binding_error(args, kwargs)
            return ArgumentError(f"{self._task}: {fits}") if fits else error
        if fits := self._binding_error(args, kwargs):
            return ArgumentError(f"{self._task}: {fits}")
        for name, value in self._by_name(args, kwargs).items():
            try:
                msgspec.json.encode(value)
            except (TypeError, ValueError, OverflowError, RecursionError) as why:
                return ArgumentError(f"{self._task}({name}): cannot travel as JSON: {why}")
        return ArgumentError(f"{self._task}: {error}")

    def _binding_error(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
        try:
            self._signature.bind(*args, **kwargs)
        except TypeError as error:
            return str(error)
        return ""

    def _located(self, message: str) -> str:
        """Msgspec's `... - at $[0].x` with the parameter's name in front."""
        found = _PATH.match(message)
        if not found:
            return message.replace("`", "")
        what, index, name, deeper = found.groups()
        names = [parameter.name for parameter in self._of_kind(*_POSITIONAL)]
        if index is not None:
            name = names[int(index)] if int(index) < len(names) else "*"
        where = f"argument {name}{deeper}: " if name else ""
        return where + what.replace("`", "")

    def _check_untyped(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Without an annotation a value must come back as it went; a datetime would come back as text."""
        for name, value in self._signature.bind(*args, **kwargs).arguments.items():
            if name in self._untyped and not _comes_back(value):
                raise ArgumentError(
                    f"{self._task}({name}): {type(value).__name__} would not come back from JSON as it is; "
                    f"annotate the parameter with its type"
                )


def _field(parameter: inspect.Parameter, hint: Any, index: int) -> tuple[Any, ...]:
    field = (f"p{index}", hint)
    return field if parameter.default is parameter.empty else (*field, msgspec.UNSET)


def _comes_back(value: Any) -> bool:
    if type(value) in _PLAIN:
        return True
    if type(value) is float:
        return math.isfinite(value)
    if type(value) in (list, tuple):
        return all(map(_comes_back, value))
    return type(value) is dict and all(type(k) is str and _comes_back(v) for k, v in value.items())
