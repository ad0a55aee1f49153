"""The end of what a task prints and logs, which is kept with its job."""

import re
from collections import deque
from contextlib import suppress

from msgspec import Struct

LINES = 64
"""How many lines are kept at most."""

# They are removed, since they could deceive a person who reads the record in a terminal.
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))")
"""Escape sequences of terminals."""
_CONTROLS = dict.fromkeys([*range(9), *range(11, 32), *range(127, 160)], "\ufffd")


class Output(Struct, frozen=True):
    """The last lines of what an attempt printed and logged."""

    text: str
    """Lines; the last one may have no line end."""
    attempt: int
    """The number of the attempt, from 1."""
    left_out: int
    """How many lines came before these."""


class Tail:
    """Keeps the end of the added text: at most `most` bytes and 64 lines.

    Any thread may add text. If several threads of one task do so at once, parts of lines may be lost.
    """

    # No lock: an interrupt may come at any point, and would leave it locked.

    __slots__ = ("_lines", "_open", "_seen", "most")

    def __init__(self, most: int) -> None:
        self.most = most
        self._lines: deque[str] = deque(maxlen=LINES)
        self._open = ""
        """The last line, which has no end yet."""
        self._seen = 0

    def add(self, text: str) -> None:
        """Adds text, with or without a line end."""
        if len(text) > self.most:
            # The part that is cut off still counts as lines that were left out.
            self._seen += text.count("\n", 0, len(text) - self.most)
            text = text[-self.most :]
        if "\n" not in text:
            self._open = _as_shown(self._open + text)[-self.most :]
            return
        *whole, self._open = (self._open + text).split("\n")
        self._seen += len(whole)
        for line in whole[-LINES:]:
            self._keep(_as_shown(line).rstrip("\r"))

    def add_line(self, text: str) -> None:
        """Adds a whole line. It starts a new line first if the last one has no end."""
        self.add(f"\n{text}\n" if self._open else f"{text}\n")

    def snapshot(self, attempt: int) -> Output:
        """The present output; its text has at most `most` bytes in UTF-8."""
        # Copied first, since other threads may add text meanwhile.
        lines, seen, unfinished = list(self._lines), self._seen, self._open.rstrip("\r")
        text = _without_controls("\n".join([*lines, unfinished]))
        data = text.encode("utf-8", "backslashreplace")
        # "ignore": the cut may split a character.
        kept = data[-self.most :].decode("utf-8", "ignore") if len(data) > self.most else data.decode()
        cut = len(lines) - kept.count("\n")
        return Output(kept, attempt, max(0, seen - len(lines) + cut))

    def _keep(self, line: str) -> None:
        self._lines.append(line[-self.most :])
        # 64 lines shorter than this cannot be too many, so most lines skip the sum.
        if len(line) > self.most // LINES:
            with suppress(IndexError, RuntimeError):  # another thread adds text at the same time
                while sum(map(len, self._lines)) > 2 * self.most:
                    self._lines.popleft()


def _as_shown(line: str) -> str:
    """The line as a terminal shows it."""
    # Progress bars write over their line again and again. Only the last state is of interest.
    shown = line.rstrip("\r")
    return shown.rpartition("\r")[2] + line[len(shown) :][:1]


def _without_controls(text: str) -> str:
    return _ESCAPES.sub("", text).translate(_CONTROLS)
