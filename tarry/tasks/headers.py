"""What travels beside a job's arguments: text by name, and the context variables that an app carries in it."""

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

import msgspec

from tarry.errors import ArgumentError, BodyTooLarge

MOST = 16_384
"""Bytes that a job's headers may take."""

_decoder = msgspec.json.Decoder(dict[str, str])
_UNSET: Any = object()


def encoded(task: str, headers: Mapping[str, str]) -> bytes:
    """As a job keeps them; ArgumentError if one is no text, BodyTooLarge."""
    if not headers:
        return b""
    for name, value in headers.items():
        if not (isinstance(name, str) and isinstance(value, str)):
            raise ArgumentError(f"{task}: header {name!r} is {type(value).__name__}; names and values must be text")
    body = msgspec.json.encode(headers)
    if len(body) > MOST:
        raise BodyTooLarge(f"{task}: the headers take {len(body)} bytes; at most {MOST}")
    return body


def decoded(headers: bytes) -> dict[str, str]:
    """By name; ArgumentError if another client wrote what is no JSON object of text."""
    if not headers:
        return {}
    try:
        return _decoder.decode(headers)
    except msgspec.MsgspecError as error:
        raise ArgumentError(f"the job's headers are no text by name: {error}") from None


class Carried:
    """A context variable whose value travels with each job, from where it is enqueued to where it runs."""

    __slots__ = ("_decode", "_encode", "name", "var")

    def __init__(
        self,
        var: ContextVar[Any],
        name: str | None = None,
        encode: Callable[[Any], str] | None = None,
        decode: Callable[[str], Any] | None = None,
    ) -> None:
        if not isinstance(var, ContextVar):
            raise TypeError(f"carry() takes a contextvars.ContextVar, not {var!r}")
        if (encode is None) != (decode is None):
            raise TypeError(f"carry({var.name}): encode= and decode= belong together; give both")
        self.var = var
        self.name = name or var.name
        self._encode = encode
        self._decode = decode

    def read(self, headers: dict[str, str]) -> None:
        """Adds the variable's value, if it has one and no header of that name was set by hand."""
        value = self.var.get(_UNSET)
        if value is _UNSET or value is None or self.name in headers:
            return
        text = value if self._encode is None else self._encode(value)
        if not isinstance(text, str):
            why = f"is {type(text).__name__}, not text: app.carry({self.var.name}, encode=..., decode=...)"
            raise ArgumentError(f"the carried variable {self.name} {why}")
        headers[self.name] = text

    def set(self, headers: Mapping[str, str]) -> None:
        """Sets the variable, in the calling context, to what travelled here."""
        text = headers.get(self.name)
        if text is not None:
            self.var.set(text if self._decode is None else self._decode(text))


def with_carried(headers: Mapping[str, str], carried: Sequence[Carried]) -> dict[str, str]:
    """These headers, and those variables as they are now."""
    found = dict(headers)
    for one in carried:
        one.read(found)
    return found
