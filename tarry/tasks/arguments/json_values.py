"""Values as JSON and back: the encoder, decoders by annotation, and checks whether values survive JSON."""

import math
import sys
from collections.abc import Callable
from typing import Any

import msgspec

from tarry.model.checks.decoders import new_json_decoder
from tarry.tasks.arguments import pydantic_values
from tarry.tasks.arguments.pydantic_values import to_msgspec_type

__all__ = ["decoder", "encode", "exact_types", "survives_json", "to_msgspec_type"]

MOST_LEVELS = 10_000
"""Of a value that is written. Python 3.12 and 3.13 have this bound themselves, and 3.11 has some 900."""
# Python 3.14 writes as many as the stack of a thread has room for, and not every reader has as much room.
_HAS_NO_DEPTH = sys.version_info >= (3, 14)

_encode: Callable[[Any], bytes] = msgspec.json.Encoder(enc_hook=pydantic_values.to_json).encode

# Not float: nan and infinity do not survive.
_PLAIN: frozenset[type] = frozenset({str, int, bool, type(None)})
_BY_HINT: dict[Any, frozenset[type]] = {
    Any: _PLAIN | {float},
    str: frozenset({str}),
    int: frozenset({int}),
    bool: frozenset({bool}),
    float: frozenset({float}),
    None: frozenset({type(None)}),
    type(None): frozenset({type(None)}),
    str | None: frozenset({str, type(None)}),
    int | None: frozenset({int, type(None)}),
    bool | None: frozenset({bool, type(None)}),
    float | None: frozenset({float, type(None)}),
}


def exact_types(hint: Any) -> frozenset[type]:
    """The types whose values all fit the annotation and come back from JSON as they were. Others may or may not."""
    try:
        return _BY_HINT.get(hint, frozenset())
    except TypeError:  # a Literal of something unhashable
        return frozenset()


def encode(value: Any) -> bytes:
    """The value as JSON; TypeError or ValueError if it cannot be JSON, as nan, infinity and what is nested too deep."""
    # msgspec writes null for them, which would come back as None.
    body = _encode(value)
    # A look for "null" is cheap, and only such a body can have nan or infinity.
    if b"null" in body and not _is_finite(msgspec.to_builtins(value, enc_hook=pydantic_values.to_builtins)):
        raise ValueError("JSON has no nan and no infinity")
    if _HAS_NO_DEPTH and len(body) > 2 * MOST_LEVELS:
        from tarry.tasks.arguments.json_depth import is_too_deep  # noqa: PLC0415 - few values are so long

        if is_too_deep(body, MOST_LEVELS):
            raise ValueError(f"nested in more than {MOST_LEVELS} levels")
    return body


def decoder(hint: Any) -> msgspec.json.Decoder[Any]:
    """A decoder for an annotation that `to_msgspec_type` returned; TypeError if it cannot be read from JSON."""
    return new_json_decoder(hint, dec_hook=pydantic_values.from_json)


def is_one_of(value: Any, kinds: frozenset[type]) -> bool:
    """Whether the value is an instance of one of these types. An int is a float too, and a str enum is a str."""
    return isinstance(value, tuple(kinds)) or (isinstance(value, int) and float in kinds)


def survives_json(value: Any) -> bool:
    """Whether the value comes back from JSON as it was, without an annotation."""
    if type(value) in _PLAIN:
        return True
    if type(value) is float:
        return math.isfinite(value)
    # Exact types: a subclass, such as a str enum, comes back as its base.
    if type(value) in (list, tuple):
        return all(map(survives_json, value))
    return type(value) is dict and all(type(k) is str and survives_json(v) for k, v in value.items())


def _is_finite(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, dict):
        return all(map(_is_finite, value.values()))
    return not isinstance(value, list | tuple) or all(map(_is_finite, value))
