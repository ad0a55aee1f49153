"""What may follow each word of a line that says which jobs."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from tarry.model.duration import microseconds
from tarry.model.job import State
from tarry.model.nearest import did_you_mean
from tarry.model.quantity import shorten
from tarry.store.queries.job_search import parse_moment
from tarry.store.rules import ids

_DIGITS = re.compile(r"[0-9a-fA-F-]{6,36}")


def read_value(word: str, value: str) -> Any:
    """The value of the field of this word; ValueError says what to write."""
    return _READERS.get(word, str)(value)


def _states(value: str) -> list[State]:
    known = [str(state) for state in State]
    for one in value.split(","):
        if one not in known:
            raise ValueError(f"{shorten(one)} is none of {', '.join(known)}{did_you_mean(one, known)}")
    return [State(one) for one in dict.fromkeys(value.split(","))]


def _queue(value: str) -> str:
    if "*" in value:
        raise ValueError("one queue, by its whole name; task: takes a pattern")
    return value


def _moment(value: str) -> float | str:
    found = _seconds(value)
    parse_moment(found, 0)
    return found


def _span(value: str) -> float | str:
    found = _seconds(value)
    microseconds(found, "older")
    return found


def _seconds(value: str) -> float | str:
    try:
        return float(value)
    except ValueError:
        return value


def _job_id(value: str) -> str:
    return ids.text(ids.parse(value))


def _part_of_id(value: str) -> str:
    if _DIGITS.fullmatch(value) is None:
        raise ValueError("write 6 or more hexadecimal digits, with which ids begin or end")
    return value


_READERS: Mapping[str, Callable[[str], Any]] = {
    "error": lambda value: [value],
    "id": _part_of_id,
    "state": _states,
    "queue": _queue,
    "since": _moment,
    "until": _moment,
    "created_since": _moment,
    "created_until": _moment,
    "older": _span,
    "flow": _job_id,
    "parent": _job_id,
}
