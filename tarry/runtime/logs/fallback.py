"""stderr, while the target of log lines is away."""

import contextlib
import sys
import time

from tarry.model.quantity import quantity

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0


class StderrFallback:
    """Reports once that the target is away and why, writes lines to stderr meanwhile, and says when to try again."""

    def __init__(self, shown: str) -> None:
        self._shown = shown
        # Kept from the start: while a task runs, sys.stderr may be replaced to capture what the task prints.
        self._stream = sys.stderr
        self._since = 0.0
        self._pause = 0.0
        self._retry_at = 0.0
        self._lines = 0

    @property
    def is_due(self) -> bool:
        """True: the target may be tried now."""
        return time.monotonic() >= self._retry_at

    def retry_now(self) -> None:
        """Lets the target be tried at once: somebody says that it is back."""
        self._retry_at = 0.0

    def record_failure(self, why: str) -> None:
        """The target was tried and failed."""
        now = time.monotonic()
        if not self._since:
            self._since, self._lines = now, 0
            self._write(f"tarry: no log lines can be written to {self._shown} ({why}): they come here until it is back")
        self._pause = min(self._pause * 2 or _FIRST_PAUSE, _LONGEST_PAUSE)
        self._retry_at = now + self._pause

    def write(self, line: str) -> None:
        """Writes a line that the target cannot take."""
        self._lines += 1
        self._write(line)

    def record_success(self) -> str:
        """The target was tried and works. Returns a line to write there; empty: it was not away."""
        if not self._since:
            return ""
        away, self._since, self._pause, self._retry_at = time.monotonic() - self._since, 0.0, 0.0, 0.0
        return f"the log is back after {away:.1f} s; {quantity(self._lines, 'line')} went to stderr"

    def _write(self, line: str) -> None:
        # stderr may be closed: then the line is lost, and the process goes on.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            self._stream.write(line + "\n")
            self._stream.flush()
