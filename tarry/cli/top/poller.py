"""Polls a source in a separate thread, so that drawing never waits for it."""

import contextlib
import threading
from collections.abc import Callable
from time import monotonic
from typing import Generic, Protocol, TypeVar

from tarry.store.shared.backoff import back_off

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")

_LONGEST_REST = 60.0
SLOW = 3.0
"""Seconds after which a poll that has not ended is reported as a problem."""


class PollSource(Protocol[T_co]):
    """What is polled; called from one thread only."""

    def look(self) -> T_co:
        """Returns the current data."""

    def close(self) -> None:
        """Releases its resources."""


class Poller(Generic[T]):
    """Polls every `interval` seconds, one poll at a time; the pause is at least `rest` times the time of a poll."""

    def __init__(
        self, source: PollSource[T], interval: float, on_change: Callable[[], None], rest: float = 0.5
    ) -> None:
        self._source, self._interval, self._on_change, self._rest = source, interval, on_change, rest
        self.answer: T | None = None
        """The data of the last successful poll; kept while polls fail."""
        self.took = 0.0
        self.trouble = ""
        """Why the last poll failed; empty: it succeeded."""
        self._failures, self._last_success = 0, monotonic()
        self._began = 0.0
        self._stopped, self._wake = False, threading.Event()
        # daemon: a poll that hangs must not delay the end of the process.
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def poll_now(self) -> None:
        """Starts the next poll at once."""
        self._wake.set()

    def problem(self, now: float) -> tuple[str, float]:
        """What is wrong, or an empty text, and for how many seconds. now: by time.monotonic()."""
        # Read once, since the thread may set it to 0.0 at any moment.
        began = self._began
        if began and now - began >= SLOW:
            return self.trouble or "it does not answer", now - self._last_success
        return self.trouble, now - self._last_success if self.trouble else 0.0

    def close(self, limit: float) -> None:
        """Ends the thread. If a poll hangs for `limit` seconds, the thread ends with the process."""
        self._stopped = True
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join(limit)

    def _run(self) -> None:
        while not self._stopped:
            self._began = began = monotonic()
            self._poll()
            self.took, self._began = monotonic() - began, 0.0
            if not self._stopped:
                self._on_change()
                self._wake.wait(self._pause())
                self._wake.clear()
        with contextlib.suppress(Exception):
            self._source.close()

    def _poll(self) -> None:
        try:
            self.answer = self._source.look()
        except Exception as error:  # any error is shown, and the old data stays
            self.trouble = str(error) or type(error).__name__
            self._failures += 1
        else:
            self.trouble, self._failures, self._last_success = "", 0, monotonic()

    def _pause(self) -> float:
        # A source that fails is asked less and less often, and a slow one is not kept busy all the time.
        if self._failures:
            return max(self._interval - self.took, back_off(self._failures))
        return max(self._interval - self.took, min(self._rest * self.took, _LONGEST_REST))
