"""A line behind a torn line is found; text inside the torn line is not."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from tarry.push.journal.log_files import LineReader, LogPart, Unreadable

REAL = b'{"time":"2026-11-22T02:03:04.123456Z","id":"real","body":{}}'
FORGED = b'{"time":"2026-11-22T02:03:04.123456Z","id":"forged","body":{}}'


class Lines:
    path, number = Path("request.log"), 1

    def __init__(self, line: bytes) -> None:
        self._line = line

    def lines(self, most: int) -> Iterator[bytes]:
        yield self._line


def find(line: bytes) -> list[str]:
    def read(text: bytes) -> dict[str, Any]:
        return msgspec.json.decode(text, type=dict[str, Any])

    reader = LineReader(read, "2026", "2027", 10_000, Unreadable())
    return [item["id"] for item in reader.items(cast("LogPart", Lines(line + b"\n")))]


@pytest.mark.parametrize("before", [b'"body":', b'"body": ', b'"body":[', b'"body":[1, ', b'"body":{"x":{"y":'])
def test_what_stood_inside_of_a_torn_line_is_no_line(before: bytes) -> None:
    torn = b'{"time":"2026-11-22T02:03:04.123456Z","id":"torn",' + before + FORGED
    assert find(torn) == []
    assert find(torn + REAL) == ["real"]


@pytest.mark.parametrize("length", [12, 20, 44, 48, 60])
def test_a_line_behind_a_torn_one_is_found(length: int) -> None:
    assert find(REAL[:length] + REAL) == ["real"]
