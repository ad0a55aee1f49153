"""The store's clock, asked rarely: a worker's wall clock may jump without effect."""

import time
from collections.abc import Callable

from tarry.errors import StoreError
from tarry.model.duration import SECOND

MEASURED_EVERY = 30 * SECOND
MEASURED_AGAIN = 1 * SECOND
"""After the store could not tell."""
CHECKED_EVERY = 5 * SECOND
"""For those who hold or judge leases: after a step of the store's clock they are wrong for no longer than this."""
JUMP = 1 * SECOND
"""From here on a difference between two measurements is no drift: somebody has set the store's clock."""
_NEAR = 50
_ASKED = 3
"""So many round trips are tried, unless one takes less than `_NEAR` microseconds: the shortest says it best."""
_SLACK = 50_000
"""Microseconds by which a check may differ from the last measurement, for the drift of both clocks."""
_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def elapsed() -> int:
    """Microseconds of a clock that nobody sets and that goes on while the machine is suspended."""
    return time.clock_gettime_ns(_STEADY) // 1000


class Clock:
    """`now()`: microseconds since the epoch by the store's clock, carried between two measurements by `elapsed`.
    Measured again every 30 s; checked with one round trip every `checked_every` microseconds in between; and measured
    at once where this machine's own clock was set, since it may be the store's.

    If it is wrong then behind, by one round trip at most (`unsure`): what is due by it is due. A delay that is counted
    from it is made longer by that much. So no job starts early, whoever made it and whoever starts it.
    """

    def __init__(self, store_time: Callable[[], int], checked_every: int = MEASURED_EVERY) -> None:
        self._store_time, self._checked_every = store_time, checked_every
        self._offset = self._trip = 0
        self._measure_at = self._again = self._wall = 0
        self.jumps = 0
        """How often the store's clock was found to have been set."""
        self.jump = 0
        """By how much it was ahead of what was expected the last time, in microseconds; negative: behind."""

    def now(self) -> int:
        """The store's time, without asking the store."""
        steady = elapsed()
        if steady >= self._again or abs(_wall_ahead(steady) - self._wall) > _SLACK:
            self._look_again(steady)
            steady = elapsed()
        return steady + self._offset

    @property
    def unsure(self) -> int:
        """By how many microseconds at most the store's clock may be ahead of `now()`: as long as it took to ask it."""
        return self._trip

    def measure(self) -> None:
        """Asks the store now. StoreError, also if it was measured before."""
        trip, offset = self._shortest()
        difference = offset - self._offset
        if self._measure_at and abs(difference) > JUMP + trip + self._trip:
            self.jumps, self.jump = self.jumps + 1, difference
        self._trip, self._offset = trip, offset
        steady = elapsed()
        self._measure_at, self._again = steady + MEASURED_EVERY, steady + self._checked_every
        self._wall = _wall_ahead(steady)

    def _look_again(self, steady: int) -> None:
        try:
            if steady >= self._measure_at or steady < self._again or not self._still_right():
                self.measure()
            else:
                self._again = elapsed() + self._checked_every
        except StoreError:
            if not self._measure_at:
                raise
            # The clock measured last is good enough until the store is back.
            steady = elapsed()
            self._again, self._wall = steady + MEASURED_AGAIN, _wall_ahead(steady)

    def _still_right(self) -> bool:
        trip, ahead = self._asked()
        return ahead - self._trip - _SLACK <= self._offset <= ahead + trip + _SLACK

    def _shortest(self) -> tuple[int, int]:
        """How long it took to ask, and by how much the store's clock is ahead of `elapsed` at least."""
        trips: list[tuple[int, int]] = []
        while len(trips) < _ASKED and (not trips or trips[-1][0] >= _NEAR):
            trips.append(self._asked())
        return min(trips)

    def _asked(self) -> tuple[int, int]:
        before = elapsed()
        told = self._store_time()
        after = elapsed()
        return after - before, told - after


def _wall_ahead(steady: int) -> int:
    return time.time_ns() // 1000 - steady


class FakeClock(Clock):
    """Stands still until told otherwise: for tests."""

    def __init__(self, now: int = 1_800_000_000_000_000) -> None:
        super().__init__(lambda: 0)
        self.time = now

    def now(self) -> int:
        return self.time

    def measure(self) -> None:
        """There is nothing to ask."""

    def advance(self, seconds: float) -> None:
        """Lets so much time pass."""
        self.time += round(seconds * 1_000_000)
