"""Paths into JSON: `customer.id`, `items.0.name`."""

from typing import Any

ABSENT: Any = object()
"""No value."""


def get_child(value: Any, name: str) -> Any:
    """The value of an object's field, or of a list's position from 0; ABSENT if there is none."""
    if isinstance(value, dict):
        return value.get(name, ABSENT)
    # At most 7 digits, as no list is longer. ASCII only: int() accepts digits of other scripts too.
    if isinstance(value, list) and name.isascii() and name.isdigit() and len(name) < 8 and int(name) < len(value):
        return value[int(name)]
    return ABSENT
