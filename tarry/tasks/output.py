"""What a task prints and logs, as much of its end as is kept with the job."""

import re
from collections import deque
from contextlib import suppress

from msgspec import Struct

LINES = 64
"""So many are kept at most."""

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))")
"""Colours and titles of terminals: they say nothing in a record, and could play tricks on who reads it."""
_CONTROLS = dict.fromkeys([*range(9), *range(11, 32), *range(127, 160)], "\ufffd")


class Output(Struct, frozen=True):
    """The last lines of what an attempt printed and logged."""

    text: str
    """Lines; the last one may be without an end."""
    attempt: int
    """Which attempt, from 1."""
    left_out: int
    """How many lines came before."""


class Tail:
    """The last of what is added, `most` bytes and 64 lines of it, however much that is.

    Any thread may add. No lock is taken, since an interruption may hit at any point: where threads of one task add at
    once, parts of lines may be lost.
    """

    __slots__ = ("_lines", "_open", "_seen", "most")

    def __init__(self, most: int) -> None:
        self.most = most
        self._lines: deque[str] = deque(maxlen=LINES)
        self._open = ""
        """The line that has no end yet."""
        self._seen = 0

    def add(self, text: str) -> None:
        """More text, with or without an end of line."""
        if len(text) > self.most:
            self._seen += text.count("\n", 0, len(text) - self.most)
            text = text[-self.most :]
        if "\n" not in text:
            self._open = _last(self._open + text)[-self.most :]
            return
        *whole, self._open = (self._open + text).split("\n")
        self._seen += len(whole)
        for line in whole[-LINES:]:
            self._keep(_last(line).rstrip("\r"))

    def line(self, text: str) -> None:
        """A line of its own, also after one that has no end yet."""
        self.add(f"\n{text}\n" if self._open else f"{text}\n")

    def now(self, attempt: int) -> Output:
        """What is there; the text takes no more than `most` bytes of UTF-8."""
        lines, seen, unfinished = list(self._lines), self._seen, self._open.rstrip("\r")
        text = _harmless("\n".join([*lines, unfinished]))
        data = text.encode("utf-8", "backslashreplace")
        kept = data[-self.most :].decode("utf-8", "ignore") if len(data) > self.most else data.decode()
        cut = len(lines) - kept.count("\n")
        return Output(kept, attempt, max(0, seen - len(lines) + cut))

    def _keep(self, line: str) -> None:
        self._lines.append(line[-self.most :])
        if len(line) > self.most // LINES:
            with suppress(IndexError, RuntimeError):  # another thread adds, too
                while sum(map(len, self._lines)) > 2 * self.most:
                    self._lines.popleft()


def _last(line: str) -> str:
    """What a terminal would show of a line that was written over, as progress bars do."""
    shown = line.rstrip("\r")
    return shown.rpartition("\r")[2] + line[len(shown) :][:1]


def _harmless(text: str) -> str:
    return _ESCAPES.sub("", text).translate(_CONTROLS)
