"""Reads a log and its rotated files: `request.log.1`, `request.log.2.gz`, `request.log-20261122`.

The log may be written and rotated meanwhile.
"""

import gzip
import os
import re
import zlib
from collections.abc import Callable, Iterator
from io import BufferedReader
from pathlib import Path
from typing import Generic, TypeVar

from tarry.errors import TarryError

T = TypeVar("T")

MOST_PLACES = 10
"""Places of unreadable lines that are kept. Further ones are only counted."""
_TRIES = 10
_HEAD = b'{"time":"'
# A line that was torn within its time, with another line behind it, does not match.
_WHOLE_TIME = re.compile(_HEAD + rb'[0-9T:.-]{26}Z"')
_INSIDE = (b":", b",", b"[")  # What precedes each value inside a JSON document.
_TIME = slice(len(_HEAD), len(_HEAD) + len("2026-11-22T02:03:04.123456Z"))


class Unreadable:
    """Counts unreadable lines, and keeps the first places."""

    def __init__(self) -> None:
        self.count = 0
        self.places: list[str] = []

    def add(self, place: str) -> None:
        """Counts one."""
        self.count += 1
        if len(self.places) < MOST_PLACES:
            self.places.append(place)


class LogPart:
    """One file; OSError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        raw = path.open("rb")
        # Of the open file: the path may be another one by now.
        found = os.fstat(raw.fileno())
        self.identity, self.written = (found.st_dev, found.st_ino), found.st_mtime
        self._raw: BufferedReader = raw
        self._file = gzip.GzipFile(fileobj=raw) if path.suffix == ".gz" else raw
        self.number = 0
        """The number of the line that was read last."""

    def lines(self, most: int) -> Iterator[bytes]:
        """The lines from where the last call ended. A line longer than `most` bytes is replaced by `...`."""
        # A damaged file may have a line of any length, so a line is not read as a whole.
        while line := self._file.readline(most):
            self.number += 1
            if len(line) == most and not line.endswith(b"\n"):
                self._skip_line(most)
                line = b"...\n"
            yield line

    def unread(self, line: bytes) -> None:
        """Goes back before the last line."""
        # That line may be incomplete, because it is still being written.
        if self._file is self._raw:
            self._raw.seek(-len(line), os.SEEK_CUR)
            self.number -= 1

    def close(self) -> None:
        """Closes the file. May be called twice."""
        self._file.close()
        self._raw.close()

    def _skip_line(self, most: int) -> None:
        while (rest := self._file.readline(most)) and not rest.endswith(b"\n"):
            pass


class LogFiles:
    """The files of one log that were written since then (seconds since the epoch), the oldest first."""

    def __init__(self, path: Path, since: float) -> None:
        self._path, self._since = path, since
        self.parts: list[LogPart] = []
        for _ in range(_TRIES):
            try:
                self._open()
                return
            except FileNotFoundError:  # rotated just now: the names have changed
                self.close()
        raise TarryError(f"{path} is rotated all the time; try again")

    def refresh(self) -> None:
        """Adds the new file if the log was rotated meanwhile."""
        try:
            found = os.stat(self._path)
            if (found.st_dev, found.st_ino) not in {part.identity for part in self.parts}:
                self.parts.append(LogPart(self._path))
        except FileNotFoundError:
            # It is just being rotated: the next call finds the new file.
            return

    def close(self) -> None:
        """Closes all parts."""
        for part in self.parts:
            part.close()
        self.parts = []

    def _open(self) -> None:
        # First the file that is being written: if it is rotated now, it is found again under its new name.
        self.refresh()
        known = {part.identity for part in self.parts}
        rotated = re.compile(re.escape(self._path.name) + r"[.-][\w.-]+")
        for path in self._path.parent.iterdir():
            if rotated.fullmatch(path.name) and path.stat().st_mtime >= self._since:
                part = LogPart(path)
                if part.identity in known:
                    part.close()
                else:
                    self.parts.append(part)
        self.parts.sort(key=lambda part: part.written)


class LineReader(Generic[T]):
    """Parses the lines of a period with `read`, which raises ValueError for an invalid line.

    since, until: times as the lines have them. most: bytes of a line.
    """

    def __init__(self, read: Callable[[bytes], T], since: str, until: str, most: int, bad: Unreadable) -> None:
        self._read = read
        self._since, self._until = since.encode(), until.encode()
        self._most, self._bad = most, bad

    def items(self, part: LogPart) -> Iterator[T]:
        """The parsed lines. A last line without a newline is no error."""
        try:
            for line in part.lines(self._most):
                # All times have one length, so they compare as text, and lines of another time are not parsed.
                if line.isspace() or (_WHOLE_TIME.match(line) and not self._since <= line[_TIME] <= self._until):
                    continue
                try:
                    yield self._parse(line)
                except ValueError:
                    if line.endswith(b"\n"):
                        self._bad.add(f"{part.path}, line {part.number}")
                    else:
                        part.unread(line)
                        return
        except (EOFError, zlib.error, gzip.BadGzipFile):
            self._bad.add(f"{part.path}, after line {part.number}: it breaks off, or is no gzip")

    def _parse(self, line: bytes) -> T:
        """Parses a line, or the line behind one that was torn when the disk was full."""
        at = 0
        while True:
            try:
                return self._read(line[at:])
            except ValueError:
                at = line.find(_HEAD, at + 1)
                # Text inside a torn line is never parsed: a body may look like a line, and would make `tarry replay`
                # create any job that its author likes.
                while at > 0 and line[:at].rstrip().endswith(_INSIDE):
                    at = line.find(_HEAD, at + 1)
                if at < 0:
                    raise
