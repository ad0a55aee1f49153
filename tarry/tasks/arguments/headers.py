"""The headers of a job: text by name that travels beside the arguments, and the context variables in it."""

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

import msgspec

from tarry.errors import ArgumentError, BodyTooLarge
from tarry.model.checks.decoders import json_decoder
from tarry.model.checks.unreadable import UNREADABLE

MAX_BYTES = 16_384
"""Bytes that a job's headers may take."""

# A decoder is made once: every job with headers needs one.
_decoder = json_decoder(dict[str, str])
_UNSET: Any = object()


def encode_headers(task: str, headers: Mapping[str, str]) -> bytes:
    """The headers as JSON; empty if there are none. ArgumentError if one is not text; BodyTooLarge."""
    if not headers:
        return b""
    for name, value in headers.items():
        if not (isinstance(name, str) and isinstance(value, str)):
            raise ArgumentError(f"{task}: header {name!r} is {type(value).__name__}; names and values must be text")
    body = msgspec.json.encode(headers)
    if len(body) > MAX_BYTES:
        why = (
            f"{task}: the headers take {len(body)} bytes; at most {MAX_BYTES}: store the data elsewhere and pass its id"
        )
        raise BodyTooLarge(why)
    return body


def decode_headers(headers: bytes) -> dict[str, str]:
    """The headers by name; ArgumentError if they are not a JSON object of text."""
    if not headers:
        return {}
    try:
        return _decoder.decode(headers)
    except UNREADABLE as error:
        raise ArgumentError(f"the job's headers must map text to text: {error}") from None


class CarriedVariable:
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

    def add_to(self, headers: dict[str, str]) -> None:
        """Adds the value of the variable, unless it has none, or the header is set already."""
        value = self.var.get(_UNSET)
        if value is _UNSET or value is None or self.name in headers:
            return
        # None has no text, and the header may be set on purpose: by middleware, or by the caller.
        text = value if self._encode is None else self._encode(value)
        if not isinstance(text, str):
            why = f"is {type(text).__name__}, not text: app.carry({self.var.name}, encode=..., decode=...)"
            raise ArgumentError(f"the carried variable {self.name} {why}")
        headers[self.name] = text

    def restore(self, headers: Mapping[str, str]) -> None:
        """Sets the variable, in the calling context, to its value in the headers."""
        text = headers.get(self.name)
        if text is not None:
            self.var.set(text if self._decode is None else self._decode(text))


def add_carried(headers: Mapping[str, str], carried: Sequence[CarriedVariable]) -> dict[str, str]:
    """A copy of the headers, with the present values of the variables."""
    found = dict(headers)
    for variable in carried:
        variable.add_to(found)
    return found
