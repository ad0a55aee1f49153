"""Arguments and results as Django's contract has them: plain JSON, whatever a function's annotations say."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from tarry.django import compat
from tarry.errors import ArgumentError
from tarry.tasks.arguments import json_values
from tarry.tasks.arguments.codec import Arguments, Codec

REST = "*"
"""The name of the positional arguments in an object, as in every body of tarry's."""


class DjangoCodec(Codec):
    """As `Codec`, for a function that takes any arguments; it refuses results that Django's JSON has not."""

    def encode(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
        """The body of a call whose arguments are JSON already; ArgumentError."""
        if REST in kwargs:
            raise ArgumentError(f"no argument can be named {REST!r}")
        try:
            return json_values.encode(args if not kwargs else {REST: args, **kwargs} if args else kwargs)
        except ValueError as error:
            raise ArgumentError(f"the arguments cannot travel as JSON: {error}") from None

    def decode(self, body: bytes) -> Arguments:
        """The arguments in a body; ArgumentError."""
        return decode_arguments(body)

    def encode_result(self, value: Any) -> bytes:
        """The result as JSON; TypeError or ValueError."""
        return json_values.encode(compat.normalize_json(value))


def decode_arguments(body: bytes) -> Arguments:
    """The arguments in a body; ArgumentError."""
    try:
        content = msgspec.json.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ArgumentError(f"the arguments are no JSON: {error}") from None
    if isinstance(content, list):
        return content, {}
    rest = content.pop(REST, []) if isinstance(content, dict) else None
    if not isinstance(rest, list):
        raise ArgumentError("the arguments are no JSON array or object")
    return rest, content
