"""Looks at something again and again in a thread of its own, so that whoever draws never waits for it."""

import contextlib
import threading
from collections.abc import Callable
from time import monotonic
from typing import Generic, Protocol, TypeVar

from tarry.store.shared.patience import back_off

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")

_LONGEST_REST = 60.0
SLOW = 3.0
"""Seconds after which a look that has not ended is told of."""


class PollSource(Protocol[T_co]):
    """What is looked at, from one thread only."""

    def look(self) -> T_co:
        """What is to be seen now."""

    def close(self) -> None:
        """Gives back what it holds."""


class Poller(Generic[T]):
    """One look at a time, `interval` seconds apart, but resting at least `rest` times as long as a look takes."""

    def __init__(
        self, source: PollSource[T], interval: float, on_change: Callable[[], None], rest: float = 0.5
    ) -> None:
        self._source, self._interval, self._on_change, self._rest = source, interval, on_change, rest
        self.answer: T | None = None
        """What was seen last; kept while there is trouble."""
        self.took = 0.0
        self.trouble = ""
        """Why the last look came to nothing."""
        self._failures, self._last_success = 0, monotonic()
        self._began = 0.0
        self._stopped, self._wake = False, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begins to look."""
        self._thread.start()

    def poll_now(self) -> None:
        """The next look comes at once."""
        self._wake.set()

    def problem(self, now: float) -> tuple[str, float]:
        """What is wrong, empty if nothing, and for how many seconds already. now: of the monotonic clock."""
        began = self._began
        if began and now - began >= SLOW:
            return self.trouble or "it does not answer", now - self._last_success
        return self.trouble, now - self._last_success if self.trouble else 0.0

    def close(self, limit: float) -> None:
        """Ends the thread; after `limit` seconds one that hangs in a look is left to end with the process."""
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
        except Exception as error:  # whatever it is, the picture says so and stays
            self.trouble = str(error) or type(error).__name__
            self._failures += 1
        else:
            self.trouble, self._failures, self._last_success = "", 0, monotonic()

    def _pause(self) -> float:
        if self._failures:
            return max(self._interval - self.took, back_off(self._failures))
        return max(self._interval - self.took, min(self._rest * self.took, _LONGEST_REST))
