"""The body of an HTTP task's job. What was enqueued is sent byte for byte.

A body that is a JSON object is sent as it is. Any other value is kept in an array of one element, as every task keeps
its arguments, and that element is sent.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from tarry.errors import ArgumentError
from tarry.model.checks.decoders import json_decoder
from tarry.tasks.arguments import json_values
from tarry.tasks.arguments.codec import Arguments, Codec

_ONE = 'one JSON value is sent, as in app.enqueue(name, {"order": 7})'
_ELEMENTS = json_decoder(list[msgspec.Raw])


class BodyCodec(Codec):
    """Encodes one value, or its fields given by name."""

    def __init__(self, task: str, fn: Callable[..., Any]) -> None:
        self._task = task

    def encode(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
        """The body of a job; ArgumentError if there is not one value or JSON cannot hold it."""
        value = single_value(self._task, args, kwargs)
        try:
            text = json_values.encode(value)
        except (TypeError, ValueError, RecursionError) as error:
            raise ArgumentError(f"{self._task}: the body cannot travel as JSON: {error}") from None
        # A body in the store is an object or an array, as the arguments of every task.
        return text if text.startswith(b"{") else b"[%s]" % text

    def decode(self, body: bytes) -> Arguments:
        """The value, decoded from JSON; ArgumentError if the body is no JSON or has several values."""
        try:
            found = msgspec.json.decode(body)
        except (ValueError, RecursionError) as error:
            raise ArgumentError(f"{self._task}: the body is no JSON: {error}") from None
        if isinstance(found, dict):
            return [found], {}
        if not isinstance(found, list) or len(found) > 1:
            raise ArgumentError(f"{self._task}: the body is neither an object nor an array of one; {_ONE}")
        # Another client may store a call without arguments as an empty array.
        return found or [{}], {}

    def encode_result(self, value: Any) -> bytes:
        """The result as JSON, as for every task."""
        return json_values.encode(value)

    def decode_result(self, note: bytes) -> Any:
        """The result, decoded from JSON."""
        return msgspec.json.decode(note)


def single_value(task: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The one value of a call; ArgumentError if there are several. No argument at all means an empty object."""
    if len(args) > 1 or (args and kwargs):
        raise ArgumentError(f"{task}: {len(args) + len(kwargs)} arguments were given; {_ONE}")
    return args[0] if args else dict(kwargs)


def payload_of(body: bytes) -> bytes:
    """The bytes to send for a job's body, which must be one that `BodyCodec.decode` accepts."""
    # Another client may write blanks first.
    if body.lstrip()[:1] == b"{":
        return body
    elements = _ELEMENTS.decode(body)
    return bytes(elements[0]) if elements else b"{}"
