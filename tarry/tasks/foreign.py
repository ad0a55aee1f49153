"""Pydantic models as arguments and results: what msgspec does not know by itself. Pydantic is never imported here: who
has a model at hand has imported it."""

import sys
import types
import typing
from collections.abc import Callable, Mapping
from functools import cache, reduce
from operator import or_
from typing import Annotated, Any, Union

import msgspec

_UNIONS = (Union, types.UnionType)
_OLDEST = (2, 11)


def to_json(value: Any) -> msgspec.Raw:
    """A model as JSON, for msgspec's `enc_hook`. TypeError if the value is no model; ValueError if its JSON would not
    be the same model again, as with a SecretStr, of which nothing but stars would arrive."""
    kind = type(value)
    if not is_model(kind):
        raise TypeError(f"Encoding objects of type {kind.__name__} is unsupported")
    try:
        body = value.model_dump_json(by_alias=False, round_trip=True).encode()
    except ValueError as error:
        raise ValueError(_one_line(error)) from None
    if differing := _differing(value, from_json(kind, msgspec.Raw(body))):
        raise ValueError(f"{kind.__name__}.{differing} would not come back from JSON as it is")
    return msgspec.Raw(body)


def to_builtins(value: Any) -> Any:
    """The same as plain data."""
    return msgspec.json.decode(to_json(value))


def from_json(kind: Any, value: Any) -> Any:
    """The value as that type, for msgspec's `dec_hook`; ValueError in one line if it does not fit."""
    validate = kind.validate if isinstance(kind, _ByPydantic) else _validating(kind) if is_model(kind) else None
    if validate is None:
        return value
    try:
        return validate(value if isinstance(value, msgspec.Raw) else msgspec.json.encode(value))
    except ValueError as error:
        raise ValueError(_one_line(error)) from None


def is_model(kind: Any) -> bool:
    """Whether it is a class of pydantic models (of version 2)."""
    return isinstance(kind, type) and hasattr(kind, "model_validate_json") and hasattr(kind, "__pydantic_validator__")


def readable(hint: Any) -> Any:
    """The annotation as msgspec can take it: a union with models in it, or an `Annotated` that says more than msgspec
    understands, stands for a type that pydantic reads."""
    if "pydantic" not in sys.modules:
        return hint
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return _annotated(hint)
    if origin in _UNIONS:
        return _union(args)
    if not args or origin is typing.Literal or origin is None:
        return hint
    inner = tuple(map(readable, args))
    return hint if inner == args else origin[inner]


def _annotated(hint: Any) -> Any:
    inner, *further = typing.get_args(hint)
    if any(type(one).__module__.partition(".")[0] in ("pydantic", "annotated_types") for one in further):
        return _ByPydantic("Annotated", (), {"validate": staticmethod(_strictly(hint))})
    return Annotated[(readable(inner), *further)]


def _strictly(hint: Any) -> Callable[[Any], Any]:
    """Reads what fits the annotation, as strictly as msgspec does."""
    adapter = sys.modules["pydantic"].TypeAdapter(hint)
    names = _names()
    return lambda body: adapter.validate_json(bytes(body), strict=True, **names)


def _union(args: tuple[Any, ...]) -> Any:
    models = [arg for arg in args if is_model(arg)]
    if not models or len([arg for arg in args if arg is not type(None)]) == 1:
        return reduce(or_, map(readable, args))
    others = [readable(arg) for arg in args if not is_model(arg)]
    return _ByPydantic("Union", (), {"validate": staticmethod(_either(models, others))})


def _either(models: list[Any], others: list[Any]) -> Callable[[Any], Any]:
    """Reads an object as the model that fits it best, and what is no model by msgspec."""
    adapter = sys.modules["pydantic"].TypeAdapter(reduce(or_, models))
    rest = msgspec.json.Decoder(reduce(or_, others), dec_hook=from_json) if others else None
    names = _names()

    def validate(body: Any) -> Any:
        try:
            return adapter.validate_json(bytes(body), **names)
        except ValueError:
            if rest is None or (bytes(body)[:1] == b"{" and not _takes_objects(others)):
                raise
        return rest.decode(body)

    return validate


def _takes_objects(kinds: list[Any]) -> bool:
    return any((typing.get_origin(kind) or kind) not in (str, int, float, bool, list, type(None)) for kind in kinds)


class _ByPydantic(type):
    """Stands in an annotation for what pydantic reads; msgspec asks whether what it gave is of that type."""

    validate: Callable[[Any], Any]

    def __instancecheck__(cls, instance: Any) -> bool:
        return True


@cache
def _validating(kind: Any) -> Callable[[Any], Any]:
    names = _names()
    return lambda body: kind.model_validate_json(bytes(body), **names)


@cache
def _names() -> Mapping[str, bool]:
    """We write a model's fields by name; another client may write their aliases."""
    version = sys.modules["pydantic"].VERSION
    if tuple(int(part) for part in version.split(".")[:2]) < _OLDEST:
        raise TypeError(f"pydantic {version} is too old; models travel from pydantic 2.11 on")
    return {"by_alias": True, "by_name": True}


def _differing(one: Any, other: Any) -> str:
    """The first field in which the two differ."""
    before, after = one.model_dump(), other.model_dump()
    if before == after:
        return ""
    if not isinstance(before, dict) or not isinstance(after, dict):
        return "root"
    return str(next(name for name in [*before, *after] if before.get(name, _names) != after.get(name, _names)))


def _one_line(error: ValueError) -> str:
    """`name: what is wrong`, of pydantic's many lines."""
    if not hasattr(error, "errors"):
        return " ".join(str(error).split())
    first, *others = error.errors(include_url=False)
    where = ".".join(map(str, first["loc"]))
    more = f" (and {len(others)} more)" if others else ""
    return (f"{where}: " if where else "") + f"{first['msg']}{more}"
