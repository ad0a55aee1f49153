"""Paths into JSON: `customer.id`, `items.0.name`."""

from typing import Any

ABSENT: Any = object()
"""There is nothing."""


def get_child(value: Any, name: str) -> Any:
    """What an object has under that name, or a list at that position from 0; ABSENT."""
    if isinstance(value, dict):
        return value.get(name, ABSENT)
    # No more digits than a list could ever need; int() takes those of other scripts too.
    if isinstance(value, list) and name.isascii() and name.isdigit() and len(name) < 8 and int(name) < len(value):
        return value[int(name)]
    return ABSENT
