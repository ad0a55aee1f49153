"""Arguments and results as JSON, checked against the task's signature at enqueue and again at run. Never pickle.

A body is a JSON array of positional arguments, or, where the call named some, an object by parameter name (what a
function takes as `*rest` stands under `"*"`). Any client, in any language, can write either.
"""

import functools
import inspect
import math
import re
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import msgspec

from tarry.errors import ArgumentError

_PATH = re.compile(r"(.*) - at `\$(?:\[(\d+)\]|\.(\w+|\*))?(.*)`$")
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
            body = _encoded(content)
            self.decode(body)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise self._explained(error, args, kwargs) from None
        if self._untyped:
            self._check_untyped(args, kwargs)
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
            raise ArgumentError(f"{self._task}: {self._located(str(error))}") from None

    def encode_result(self, value: Any) -> bytes:
        """The result as JSON; TypeError or ValueError if it cannot travel."""
        return msgspec.json.encode(value)

    def decode_result(self, note: bytes) -> Any:
        """The result, of the type that the function's return annotation says; as JSON has it where the function
        returned another."""
        try:
            return self._result.decode(note)
        except msgspec.ValidationError:
            return msgspec.json.decode(note)

    @cached_property
    def _hints(self) -> dict[str, Any]:
        """Resolved when first needed: an annotation may name what the module defines further down."""
        try:
            return typing.get_type_hints(_annotated(self._fn), include_extras=True)
        except NameError as error:
            why = f"an annotation cannot be resolved: {error}; import it at run time, not only under TYPE_CHECKING"
            raise ArgumentError(f"{self._task}: {why}") from None

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
    def _starred(self) -> str:
        """`*rest`, as the function calls it."""
        return "".join(f"*{parameter.name}" for parameter in self._of_kind(inspect.Parameter.VAR_POSITIONAL))

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
        pairs = enumerate(zip(raw, types, strict=False))
        values = tuple(self._alone(item, kind, self._name_at(index)) for index, (item, kind) in pairs)
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
            before = self._of_kind(inspect.Parameter.POSITIONAL_OR_KEYWORD)
            args += [given.pop(p.name, p.default) for p in before] + found.rest
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
        return {name: self._alone(raw[name], self._hint(further[0]), name) for name in names}

    def _alone(self, raw: msgspec.Raw, kind: Any, name: str) -> Any:
        """One argument, of a type that msgspec cannot be told together with the others'."""
        try:
            return msgspec.json.decode(raw, type=kind)
        except msgspec.ValidationError as error:
            what, _, deeper = str(error).partition(" - at `$")
            raise ArgumentError(f"{self._task}: argument {name}{deeper}: {what}".replace("`", "")) from None

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
        if misfit := self._binding_error(args, kwargs):
            return ArgumentError(f"{self._task}: {misfit}")
        if isinstance(error, ArgumentError):
            return error
        for name, value in self._by_name(args, kwargs).items():
            try:
                _encoded(value)
            except (TypeError, ValueError, OverflowError, RecursionError) as why:
                own = self._starred if name == "*" else name
                return ArgumentError(f"{self._task}({own}): cannot travel as JSON: {why}")
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
        if index is not None:
            name = self._name_at(int(index))
        where = f"argument {self._starred if name == '*' else name}{deeper}: " if name else ""
        return where + what.replace("`", "")

    def _name_at(self, index: int) -> str:
        names = [parameter.name for parameter in self._of_kind(*_POSITIONAL)]
        return names[index] if index < len(names) else f"{self._starred}[{index - len(names)}]"

    def _check_untyped(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Without an annotation a value must come back as it went; a datetime would come back as text."""
        for parameter, name, value in self._each(args, kwargs):
            if parameter in self._untyped and not _comes_back(value):
                raise ArgumentError(
                    f"{self._task}({name}): {type(value).__name__} would not come back from JSON as it is; "
                    f"annotate the parameter with its type"
                )

    def _each(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
        """Every value of a call: its parameter, its own name, itself."""
        for name, value in self._signature.bind(*args, **kwargs).arguments.items():
            match self._signature.parameters[name].kind:
                case inspect.Parameter.VAR_POSITIONAL:
                    yield from ((name, f"*{name}[{index}]", item) for index, item in enumerate(value))
                case inspect.Parameter.VAR_KEYWORD:
                    yield from ((name, further, item) for further, item in value.items())
                case _:
                    yield name, name, value


def _annotated(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Where the annotations stand: for an object that can be called, at its class's `__call__`."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    return fn if inspect.isroutine(fn) else type(fn).__call__


def _field(parameter: inspect.Parameter, hint: Any, index: int) -> tuple[Any, ...]:
    field = (f"p{index}", hint)
    return field if parameter.default is parameter.empty else (*field, msgspec.UNSET)


def _encoded(value: Any) -> bytes:
    """JSON has no nan and no infinity; msgspec writes null, which would come back as None where None is allowed."""
    body = msgspec.json.encode(value)
    if b"null" in body and not _is_finite(msgspec.to_builtins(value)):
        raise ValueError("JSON has no nan and no infinity")
    return body


def _is_finite(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, dict):
        return all(map(_is_finite, value.values()))
    return not isinstance(value, list | tuple) or all(map(_is_finite, value))


def _comes_back(value: Any) -> bool:
    if type(value) in _PLAIN:
        return True
    if type(value) is float:
        return math.isfinite(value)
    if type(value) in (list, tuple):
        return all(map(_comes_back, value))
    return type(value) is dict and all(type(k) is str and _comes_back(v) for k, v in value.items())
