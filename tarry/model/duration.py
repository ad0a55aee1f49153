"""Durations as people write them, as integers of microseconds."""

import re
from datetime import timedelta

from tarry.model.quantity import MAX_SHORT, Short, shorten

SECOND = 1_000_000
MINUTE, HOUR, DAY = 60 * SECOND, 3600 * SECOND, 86400 * SECOND

_UNITS = {"us": 1, "ms": 1000, "s": SECOND, "m": MINUTE, "h": HOUR, "d": DAY, "w": 7 * DAY}
# 1000 years: then no store's 64-bit integer overflows, whatever is added to a duration.
LONGEST = 365_250 * DAY
"""The longest duration."""
# "ms" stands before "m": the first alternative that fits wins.
_PART = re.compile(r"(\d+(?:\.\d+)?)(us|ms|s|m|h|d|w)")

Duration = float | int | str | timedelta
Span = float | Short
"""A duration from outside: seconds, or text such as "1h30m"."""


def microseconds(duration: Duration, name: str = "") -> int:
    """The microseconds of a number of seconds, a timedelta, or text such as `"90s"`, `"1h30m"`. ValueError if it is no
    duration, or negative. name: the setting, for the error."""
    match duration:
        case timedelta():
            value = duration.total_seconds() * SECOND
        case str():
            value = _parse(duration, name)
        # Before int, since a bool is an int: True is a mistake, and not one second.
        case bool():
            raise _none(duration, name)
        case int() | float():
            value = duration * SECOND
        case _:
            raise _none(duration, name)
    if 0 <= value <= LONGEST:
        return round(value)
    # nan is neither negative nor too long, yet the comparison above is false for it.
    why = "negative" if value < 0 else "too long" if value > LONGEST else "no number"
    raise ValueError(f"{_describe(duration, name)} is {why}: a duration is from 0 to 1000 years")


def _parse(text: str, name: str) -> float:
    parts = _parts(text.strip()) if len(text) <= MAX_SHORT else []
    if not parts:
        said = f"{_describe(text, name)} is no duration: write a number and one of us ms s m h d w"
        raise ValueError(f'{said}, as in "1h30m"')
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def _parts(text: str) -> list[tuple[str, str]]:
    """Each number with its unit; empty if the text is not made of such parts alone."""
    found, at = [], 0
    # Each at the end of the one before, and not wherever one may be: a search begins anew at each digit.
    while part := _PART.match(text, at):
        found.append((part[1], part[2]))
        at = part.end()
    return found if at == len(text) else []


def _none(duration: object, name: str) -> ValueError:
    return ValueError(f'{_describe(duration, name)} is no duration: write seconds (90) or text ("1m30s")')


def _describe(duration: object, name: str) -> str:
    return f"{name}={shorten(duration)}" if name else shorten(duration)


def format_duration(duration: int) -> str:
    """The shortest exact-enough text for people: `4.2ms`, `17s`, `3m20s`, `2d4h`."""
    if duration < SECOND:
        return f"{duration / 1000:.1f}ms"
    if duration < MINUTE:
        return f"{duration / SECOND:.1f}s".replace(".0s", "s")
    for big, small, names in ((DAY, HOUR, "dh"), (HOUR, MINUTE, "hm"), (MINUTE, SECOND, "ms")):
        if duration >= big:
            rest = duration % big // small
            return f"{duration // big}{names[0]}" + (f"{rest}{names[1]}" if rest else "")
    raise AssertionError("unreachable: a minute or more was handled above")
