"""What is stored and cannot be read here: because it is not what it should be, is sealed, or is kept elsewhere.

A sealed value is JSON, so that all that passes values on goes on to work. It begins with what no encoder writes, so
that no code takes it for something else. `store/sealing` seals and opens.
"""

import re
from typing import Any

import msgspec

UNREADABLE = (ValueError, OverflowError, RecursionError)
"""What decoding raises for bytes that somebody else has written. The errors of msgspec and of UTF-8 are ValueErrors;
numbers of many digits overflow where they are used; deeply nested data recurses."""
# No encoder begins with a space, so no task can return this by itself.
SEALED = b' {"tarry-sealed":"'
"""What a sealed body, result or note begins with; the token follows."""
SEALED_TEXT = "tarry-sealed:"
"""What a sealed text within a record begins with; the token follows."""
SEALED_PROGRESS = b'[null,"' + SEALED_TEXT.encode()
"""What a sealed progress begins with. Without a fraction a progress has no message."""
APART = b' {"tarry-payload":'
"""What stands in place of arguments or a result that are kept outside of the store begins with this; where they are
follows (`store/rules/payload_reference`)."""
ALTERED = "!"
"""Ends the id of the key in a token that this process could not open, though it has the key."""

SAID = ("message", "reason")
"""The texts of a note in whose place a sealed one says that it is sealed."""
_KEY = re.compile(r"([0-9a-f]{8})(!?)\.")


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


def is_sealed(value: bytes) -> bool:
    """Whether a body, result, note or value of a signal is sealed."""
    return value.startswith(SEALED)


def is_apart(value: bytes) -> bool:
    """Whether this stands for arguments or a result that are kept outside of the store."""
    return value.startswith(APART)


def token_of(value: bytes) -> str:
    """The token of a sealed value, or of a sealed progress."""
    start = len(SEALED if is_sealed(value) else SEALED_PROGRESS)
    return value[start : value.find(b'"', start)].decode("ascii", "replace")


def sealed_note(note: bytes) -> dict[str, Any]:
    """What is clear of the sealed note of a job that did not end well; nothing of a sealed result."""
    known = read_note(note)
    why = explain(token_of(note))
    said = {name: why for name in SAID if name in known}
    return {name: value for name, value in known.items() if name not in ("tarry-sealed", "kind")} | said


def explain(token: str) -> str:
    """What people read in place of a sealed value."""
    found = _KEY.match(token)
    if found is None:
        return "sealed, in a form that this version does not know"
    if found[2]:
        return f"sealed with key {found[1]}, and altered since, or taken from another job or field"
    return f"sealed with key {found[1]}, which this process does not have"


def key_of(token: str) -> str:
    """The id of the key of a token."""
    found = _KEY.match(token)
    return found[1] if found else "?"


def is_altered(token: str) -> bool:
    """Whether a process with the key could not open it."""
    return token.partition(".")[0].endswith(ALTERED)


def text_or_why(text: str) -> str:
    """A text of a record, or why it cannot be read."""
    return explain(text.removeprefix(SEALED_TEXT)) if text.startswith(SEALED_TEXT) else text
