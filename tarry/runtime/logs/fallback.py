"""stderr, for as long as the place where lines belong is away."""

import contextlib
import sys
import time

from tarry.model.quantity import quantity

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0


class StderrFallback:
    """Says once that the place is away and why, takes the lines in the meantime, and says when to look again."""

    def __init__(self, shown: str) -> None:
        self._shown = shown
        # Not the one of the moment: while a task runs, that one may be watched for what the task prints.
        self._stream = sys.stderr
        self._since = 0.0
        self._pause = 0.0
        self._retry_at = 0.0
        self._lines = 0

    @property
    def is_due(self) -> bool:
        """The place may be tried now."""
        return time.monotonic() >= self._retry_at

    def retry_now(self) -> None:
        """It may be tried at once: somebody says that it is back."""
        self._retry_at = 0.0

    def record_failure(self, why: str) -> None:
        """It was tried, in vain."""
        now = time.monotonic()
        if not self._since:
            self._since, self._lines = now, 0
            self._write(f"tarry: no log lines can be written to {self._shown} ({why}): they come here until it is back")
        self._pause = min(self._pause * 2 or _FIRST_PAUSE, _LONGEST_PAUSE)
        self._retry_at = now + self._pause

    def write(self, line: str) -> None:
        """A line that cannot go where it belongs."""
        self._lines += 1
        self._write(line)

    def record_success(self) -> str:
        """It was tried, and worked: a line to tell there, empty if it was not away."""
        if not self._since:
            return ""
        away, self._since, self._pause, self._retry_at = time.monotonic() - self._since, 0.0, 0.0, 0.0
        return f"the log is back after {away:.1f} s; {quantity(self._lines, 'line')} went to stderr"

    def _write(self, line: str) -> None:
        with contextlib.suppress(OSError, ValueError, AttributeError):
            self._stream.write(line + "\n")
            self._stream.flush()
