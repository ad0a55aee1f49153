"""Pydantic models as arguments and results, for msgspec, which does not know them."""

# Pydantic is not imported here: a program that has a model has imported it already, and the others do not need it.

import sys
import types
import typing
from collections.abc import Callable, Mapping
from functools import cache, reduce
from operator import or_
from typing import Annotated, Any, Union

import msgspec

from tarry.model.checks.decoders import new_json_decoder

_UNIONS = (Union, types.UnionType)
_OLDEST = (2, 11)


def to_json(value: Any) -> msgspec.Raw:
    """A model as JSON, for msgspec's `enc_hook`. TypeError if the value is not a model; ValueError if it would not come
    back equal."""
    kind = type(value)
    if not is_model(kind):
        raise TypeError(f"Encoding objects of type {kind.__name__} is unsupported")
    try:
        body = value.model_dump_json(by_alias=False, round_trip=True).encode()
    except ValueError as error:
        raise ValueError(_one_line(error)) from None
    # Of a SecretStr, for example, only stars would arrive.
    if differing := _first_difference(value, from_json(kind, msgspec.Raw(body))):
        raise ValueError(f"{kind.__name__}.{differing} would not come back from JSON as it is")
    return msgspec.Raw(body)


def to_builtins(value: Any) -> Any:
    """A model as plain data; errors as `to_json`."""
    return msgspec.json.decode(to_json(value))


def from_json(kind: Any, value: Any) -> Any:
    """Converts a value to this type, for msgspec's `dec_hook`; ValueError in one line if it does not fit."""
    validate = kind.validate if isinstance(kind, _ByPydantic) else _model_reader(kind) if is_model(kind) else None
    if validate is None:
        return value
    try:
        return validate(value if isinstance(value, msgspec.Raw) else msgspec.json.encode(value))
    except ValueError as error:
        raise ValueError(_one_line(error)) from None


def is_model(kind: Any) -> bool:
    """Whether this is a class of pydantic models (version 2)."""
    return isinstance(kind, type) and hasattr(kind, "model_validate_json") and hasattr(kind, "__pydantic_validator__")


def to_msgspec_type(hint: Any) -> Any:
    """The annotation as a type for msgspec. Unions with models, and `Annotated` with constraints of pydantic, become
    types that pydantic reads."""
    if "pydantic" not in sys.modules:
        return hint
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return _annotated_type(hint)
    if origin in _UNIONS:
        return _union_type(args)
    if not args or origin is typing.Literal or origin is None:
        return hint
    inner = tuple(map(to_msgspec_type, args))
    return hint if inner == args else origin[inner]


def _annotated_type(hint: Any) -> Any:
    inner, *further = typing.get_args(hint)
    if any(type(one).__module__.partition(".")[0] in ("pydantic", "annotated_types") for one in further):
        return _ByPydantic("Annotated", (), {"validate": staticmethod(_strict_reader(hint))})
    return Annotated[(to_msgspec_type(inner), *further)]


def _strict_reader(hint: Any) -> Callable[[Any], Any]:
    """A function that reads a value by the annotation, as strictly as msgspec does."""
    adapter = sys.modules["pydantic"].TypeAdapter(hint)
    names = _names()
    return lambda body: adapter.validate_json(bytes(body), strict=True, **names)


def _union_type(args: tuple[Any, ...]) -> Any:
    models = [arg for arg in args if is_model(arg)]
    # msgspec can read one model, or None: only where several types are possible must pydantic choose.
    if not models or len([arg for arg in args if arg is not type(None)]) == 1:
        return reduce(or_, map(to_msgspec_type, args))
    others = [to_msgspec_type(arg) for arg in args if not is_model(arg)]
    return _ByPydantic("Union", (), {"validate": staticmethod(_union_reader(models, others))})


def _union_reader(models: list[Any], others: list[Any]) -> Callable[[Any], Any]:
    """A function that reads an object as the model that fits best, and anything else with msgspec."""
    adapter = sys.modules["pydantic"].TypeAdapter(reduce(or_, models))
    rest = new_json_decoder(reduce(or_, others), dec_hook=from_json) if others else None
    names = _names()

    def validate(body: Any) -> Any:
        try:
            return adapter.validate_json(bytes(body), **names)
        except ValueError:
            # An object was meant as a model, and pydantic's error says what is wrong with it.
            if rest is None or (bytes(body)[:1] == b"{" and not _takes_objects(others)):
                raise
        return rest.decode(body)

    return validate


def _takes_objects(kinds: list[Any]) -> bool:
    return any((typing.get_origin(kind) or kind) not in (str, int, float, bool, list, type(None)) for kind in kinds)


class _ByPydantic(type):
    """A type that pydantic reads."""

    # msgspec checks the hook's answer with `isinstance`, but a value of a union is no instance of this type.

    validate: Callable[[Any], Any]

    def __instancecheck__(cls, instance: Any) -> bool:
        return True


@cache
def _model_reader(kind: Any) -> Callable[[Any], Any]:
    names = _names()
    return lambda body: kind.model_validate_json(bytes(body), **names)


@cache
def _names() -> Mapping[str, bool]:
    """Options for pydantic."""
    # We write a model's fields by name; another client may write their aliases.
    version = sys.modules["pydantic"].VERSION
    if tuple(int(part) for part in version.split(".")[:2]) < _OLDEST:
        raise TypeError(f"pydantic {version} is too old; models travel from pydantic 2.11 on")
    return {"by_alias": True, "by_name": True}


def _first_difference(one: Any, other: Any) -> str:
    """The first field in which two models differ; empty: they are equal."""
    before, after = one.model_dump(), other.model_dump()
    if before == after:
        return ""
    if not isinstance(before, dict) or not isinstance(after, dict):
        return "root"
    return str(next(name for name in [*before, *after] if before.get(name, _names) != after.get(name, _names)))


def _one_line(error: ValueError) -> str:
    """Pydantic's error in one line: `name: what is wrong`."""
    if not hasattr(error, "errors"):
        return " ".join(str(error).split())
    first, *others = error.errors(include_url=False)
    where = ".".join(map(str, first["loc"]))
    more = f" (and {len(others)} more)" if others else ""
    return (f"{where}: " if where else "") + f"{first['msg']}{more}"
