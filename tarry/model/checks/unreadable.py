"""Which errors say that something stored is not what it should be, and notes of which anything may be so."""

from typing import Any

import msgspec

UNREADABLE = (ValueError, OverflowError, RecursionError)
"""What decoding raises for bytes that somebody else has written. The errors of msgspec and of UTF-8 are ValueErrors;
numbers of many digits overflow where they are used; deeply nested data recurses."""


def read_note(note: bytes) -> dict[str, Any]:
    """The note of a job that did not end well; without its parts that are not what they should be."""
    try:
        found = msgspec.json.decode(note) if note else {}
    except UNREADABLE:
        return {}
    return found if isinstance(found, dict) else {}


def stored_number(cell: bytes | None) -> int:
    """The number in a cell; 0 if it has none."""
    try:
        return min(int(cell or 0), 2**62)
    except ValueError:
        return 0
