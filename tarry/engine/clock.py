"""The store's clock, asked rarely: a worker's wall clock may jump without effect."""

import time
from collections.abc import Callable

from tarry.errors import StoreError

MEASURED_EVERY = 30_000_000
MEASURED_AGAIN = 1_000_000
"""After the store could not tell."""


class Clock:
    """`now()`: microseconds since the epoch by the store's clock, carried between two measurements by this machine's
    monotonic clock. Measured again every 30 s."""

    def __init__(self, store_time: Callable[[], int]) -> None:
        self._store_time = store_time
        self._offset = 0
        self._again = 0

    def now(self) -> int:
        """The store's time, without asking the store."""
        monotonic = time.monotonic_ns() // 1000
        if monotonic >= self._again:
            monotonic = self._measure()
        return monotonic + self._offset

    def _measure(self) -> int:
        before = time.monotonic_ns() // 1000
        try:
            told = self._store_time()
        except StoreError:
            if not self._again:
                raise
            # The clock measured last is good enough until the store is back.
            self._again = before + MEASURED_AGAIN
            return before
        after = time.monotonic_ns() // 1000
        self._offset = told - (before + after) // 2
        self._again = after + MEASURED_EVERY
        return after


class FakeClock(Clock):
    """Stands still until told otherwise: for tests."""

    def __init__(self, now: int = 1_800_000_000_000_000) -> None:
        super().__init__(lambda: 0)
        self.time = now

    def now(self) -> int:
        return self.time

    def advance(self, seconds: float) -> None:
        """Lets so much time pass."""
        self.time += round(seconds * 1_000_000)
