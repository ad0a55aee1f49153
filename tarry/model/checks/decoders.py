"""Decoders of msgspec, made by one thread at a time.

msgspec notes what it knows of a class at the class itself, when a decoder is first made for it, and another thread that
decodes the class at that moment reads a part of it: the process ends by SIGSEGV (0.22, `tests/model/test_decoders.py`).
All that tarry decodes by a type goes through here.
"""

import threading
from functools import lru_cache
from typing import Any, TypeVar, overload

import msgspec

from tarry.platform import at_fork

T = TypeVar("T")
# Not Lock: a collection while a decoder is made may run code that makes another.
_lock = threading.RLock()


def new_json_decoder(kind: Any, **options: Any) -> msgspec.json.Decoder[Any]:
    """A decoder of its own, with options, or for a type that is not ours to keep."""
    with _lock:
        return msgspec.json.Decoder(kind, **options)


def _new_msgpack_decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    with _lock:
        return msgspec.msgpack.Decoder(kind)


_kept, _kept_msgpack = lru_cache(maxsize=1000)(new_json_decoder), lru_cache(maxsize=1000)(_new_msgpack_decoder)


@overload
def json_decoder(kind: type[T]) -> msgspec.json.Decoder[T]: ...
@overload
def json_decoder(kind: Any) -> msgspec.json.Decoder[Any]: ...
def json_decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """The decoder of JSON into this type."""
    try:
        return _kept(kind)
    except TypeError:
        # Not every type has a hash: a Meta with a schema has none.
        return new_json_decoder(kind)


@overload
def msgpack_decoder(kind: type[T]) -> msgspec.msgpack.Decoder[T]: ...
@overload
def msgpack_decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]: ...
def msgpack_decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    """The decoder of msgpack into this type."""
    return _kept_msgpack(kind)


@overload
def decode_json(text: bytes | str, kind: type[T]) -> T: ...
@overload
def decode_json(text: bytes | str, kind: Any) -> Any: ...
def decode_json(text: bytes | str, kind: Any) -> Any:
    """What the text says, of this type; the errors of msgspec."""
    return json_decoder(kind).decode(text)


@overload
def convert_to(kind: type[T], value: Any, **options: Any) -> T: ...
@overload
def convert_to(kind: Any, value: Any, **options: Any) -> Any: ...
def convert_to(kind: Any, value: Any, **options: Any) -> Any:
    """The plain value as one of this type; the errors of msgspec."""
    # Made for what it notes at the classes.
    json_decoder(kind)
    return msgspec.convert(value, kind, **options)


def _after_fork() -> None:
    """A thread that the child does not have may have the lock."""
    global _lock
    _lock = threading.RLock()


at_fork(after_in_child=_after_fork)
