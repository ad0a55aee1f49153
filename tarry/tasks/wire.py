"""Values as JSON and back: the one encoder, decoders by annotation, and what would not come back as it went."""

import math
from collections.abc import Callable
from typing import Any

import msgspec

from tarry.tasks import foreign
from tarry.tasks.foreign import readable

__all__ = ["checked", "comes_back", "decoder", "encode", "plain", "readable"]

encode: Callable[[Any], bytes] = msgspec.json.Encoder(enc_hook=foreign.to_json).encode
"""Any value as JSON; nan and infinity as null. TypeError or ValueError if it cannot travel."""

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


def plain(hint: Any) -> frozenset[type]:
    """The types whose every value fits the annotation and comes back as it is; for others one has to look."""
    try:
        return _BY_HINT.get(hint, frozenset())
    except TypeError:  # a Literal of what has no hash
        return frozenset()


def checked(value: Any) -> bytes:
    """The value as JSON. JSON has no nan and no infinity; msgspec writes null, which would come back as None where
    None is allowed."""
    body = encode(value)
    if b"null" in body and not _is_finite(msgspec.to_builtins(value, enc_hook=foreign.to_builtins)):
        raise ValueError("JSON has no nan and no infinity")
    return body


def decoder(hint: Any) -> msgspec.json.Decoder[Any]:
    """What reads values of an annotation that is readable; TypeError if it cannot be read from JSON."""
    return msgspec.json.Decoder(hint, dec_hook=foreign.from_json)


def fits(value: Any, kinds: frozenset[type]) -> bool:
    """Whether the value is of one of these plain types, as Python sees it: an enum of text is text."""
    return isinstance(value, tuple(kinds)) or (isinstance(value, int) and float in kinds)


def comes_back(value: Any) -> bool:
    """Whether JSON gives it back as it is where no annotation says what it was."""
    if type(value) in _PLAIN:
        return True
    if type(value) is float:
        return math.isfinite(value)
    if type(value) in (list, tuple):
        return all(map(comes_back, value))
    return type(value) is dict and all(type(k) is str and comes_back(v) for k, v in value.items())


def _is_finite(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, dict):
        return all(map(_is_finite, value.values()))
    return not isinstance(value, list | tuple) or all(map(_is_finite, value))
