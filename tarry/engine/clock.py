"""The store's clock, asked rarely: a worker's wall clock may jump without effect."""

import time
from collections.abc import Callable

from tarry.errors import StoreError

MEASURED_EVERY = 30_000_000
MEASURED_AGAIN = 1_000_000
"""After the store could not tell."""
_NEAR = 50
_ASKED = 3
"""So many round trips are tried, unless one takes less than `_NEAR` microseconds: the shortest says it best."""


class Clock:
    """`now()`: microseconds since the epoch by the store's clock, carried between two measurements by this machine's
    monotonic clock. Measured again every 30 s.

    If it is wrong then behind, by one round trip at most: what is due by it is due, so no job starts early.
    """

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
        try:
            self._offset = self._behind()
            good_for = MEASURED_EVERY
        except StoreError:
            if not self._again:
                raise
            # The clock measured last is good enough until the store is back.
            good_for = MEASURED_AGAIN
        monotonic = time.monotonic_ns() // 1000
        self._again = monotonic + good_for
        return monotonic

    def _behind(self) -> int:
        """By how much the store's clock is ahead of the monotonic one at least."""
        trips: list[tuple[int, int]] = []
        while len(trips) < _ASKED and (not trips or trips[-1][0] >= _NEAR):
            before = time.monotonic_ns() // 1000
            told = self._store_time()
            after = time.monotonic_ns() // 1000
            trips.append((after - before, told - after))
        return min(trips)[1]


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
