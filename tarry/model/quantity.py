"""How many of something, in words; sizes as people write them, as integers of bytes; and how long such texts may be."""

import re
from typing import Annotated

from msgspec import Meta

MAX_SHORT = 100
"""Characters of a duration, a rate, a size, a time, a formula, an id or a cursor."""
# Whatever reads such a text has its bound from here, and so has the OpenAPI document.
Short = Annotated[str, Meta(max_length=MAX_SHORT)]

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")
_LARGEST = 2**53  # beyond, a float is no longer exact

Size = int | str


def quantity(count: int, noun: str = "job") -> str:
    """`1 job`, `1,200 jobs`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def jobs_wait(count: int) -> str:
    """`1 job waits`, `1,200 jobs wait`."""
    return f"{quantity(count)} wait{'s' if count == 1 else ''}"


def format_size(count: float) -> str:
    """`512 B`, `1.2 MB`."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def shorten(value: object, most: int = MAX_SHORT) -> str:
    """How an error shows a text that came from outside: its `repr`, cut to about `most` characters."""
    # The text itself is cut first: `repr` of a long text takes its length in memory again.
    shown = repr(value if not isinstance(value, str | bytes) or len(value) <= most else value[:most])
    is_whole = len(shown) <= most + 3 and shown == repr(value)
    return shown if is_whole else f"{shown[:most]}..."


LARGEST_PAYLOAD = 2**30
"""Bytes of arguments or a result that anybody can allow."""


class MostApart(int):
    """Bytes that `[payloads] most` allows; where another number bounds the data of a job, it is `max_body`."""


def over_max_body(what: str, size: int, most: int) -> str:
    """The error for data of a job that is too large: `mail: the arguments take 101 bytes; max_body is 100: ...`."""
    if isinstance(most, MostApart):
        return (
            f"{what} {size} bytes; [payloads] most is {most}: store the data elsewhere and pass its id, or raise most"
        )
    return f"{what} {size} bytes; max_body is {most}: store the data elsewhere and pass its id, or raise max_body"


def octets(size: Size) -> int:
    """A number of bytes, or text such as `"64KB"` (of 1000) and `"1MiB"` (of 1024); ValueError for all else."""
    # A bool is an int, yet True is no size.
    is_size = isinstance(size, int | str) and not isinstance(size, bool)
    text = str(size) if is_size and (not isinstance(size, str) or len(size) <= MAX_SHORT) else ""
    found = _SIZE.fullmatch(text.strip())
    if found is None or found[2].upper() not in _UNITS:
        raise ValueError(f'{shorten(size)} is no size: write bytes (65536) or text ("64KB", "1MiB")')
    value = float(found[1]) * _UNITS[found[2].upper()]
    if value >= _LARGEST:
        raise ValueError(f"{shorten(size)} is too large: a size is less than 2^53 bytes")
    return round(value)
