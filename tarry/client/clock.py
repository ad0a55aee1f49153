"""The store's time, with few calls of the store. Changes of this machine's wall clock have no effect."""

import time
from collections.abc import Callable

from tarry.errors import StoreError
from tarry.model.duration import SECOND

MEASURED_EVERY = 30 * SECOND
MEASURED_AGAIN = 1 * SECOND
"""Microseconds until the next try if the store could not be asked."""
# After a step of the store's clock, leases are wrong for this time at most.
CHECKED_EVERY = 5 * SECOND
"""For processes that hold or check leases."""
# Clocks do not drift so far within 30 s. After a greater difference, somebody has set the store's clock.
JUMP = 1 * SECOND
_SHORT_TRIP = 50
_MAX_TRIPS = 3
"""Round trips in a measurement, unless one takes less than `_SHORT_TRIP` microseconds."""
# Both clocks drift between two measurements.
_SLACK = 50_000
"""Microseconds by which a check may differ from the last measurement."""
_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def elapsed() -> int:
    """Microseconds of a clock that cannot be set and that goes on while the machine is suspended."""
    return time.clock_gettime_ns(_STEADY) // 1000


class Clock:
    """The store's time: `now()`, in microseconds since the epoch. Between two measurements `elapsed` carries it on.

    It is measured every 30 s, and checked with one round trip every `checked_every` microseconds; at once if this
    machine's wall clock was set. It may be behind the store's time, by one round trip at most (`unsure`), never ahead.
    """

    def __init__(self, store_time: Callable[[], int], checked_every: int = MEASURED_EVERY) -> None:
        self._store_time, self._checked_every = store_time, checked_every
        self._offset = self._trip = 0
        self._measure_at = self._again = self._wall = 0
        self.jumps = 0
        """How often the store's clock was set, as far as measured."""
        self.jump = 0
        """How far it was ahead of the expected time at the last jump, in microseconds; negative: behind."""

    def now(self) -> int:
        """The store's time, without asking the store."""
        steady = elapsed()
        # The machine's wall clock may be the store's clock: if it was set, measure at once.
        if steady >= self._again or abs(_wall_ahead(steady) - self._wall) > _SLACK:
            self._check_or_measure(steady)
            steady = elapsed()
        return steady + self._offset

    @property
    def unsure(self) -> int:
        """How many microseconds the store's clock may be ahead of `now()`: the time of a round trip."""
        return self._trip

    def measure(self) -> None:
        """Measures the store's clock now. StoreError."""
        trip, offset = self._measure_trips()
        difference = offset - self._offset
        # The first measurement has nothing to compare with. Each round trip may hide a part of the difference.
        if self._measure_at and abs(difference) > JUMP + trip + self._trip:
            self.jumps, self.jump = self.jumps + 1, difference
        self._trip, self._offset = trip, offset
        steady = elapsed()
        self._measure_at, self._again = steady + MEASURED_EVERY, steady + self._checked_every
        self._wall = _wall_ahead(steady)

    def measure_ahead(self) -> None:
        """Measures now, so that `now()` need not for `MEASURED_EVERY`: for a thread that does this for others, which
        must not block. StoreError if the store was never asked; else the last measurement stays while it is away."""
        try:
            self.measure()
        except StoreError:
            if not self._measure_at:
                raise
            steady = elapsed()
            self._again, self._wall = steady + MEASURED_EVERY, _wall_ahead(steady)

    def _check_or_measure(self, steady: int) -> None:
        try:
            if steady >= self._measure_at or steady < self._again or not self._is_still_right():
                self.measure()
            else:
                self._again = elapsed() + self._checked_every
        except StoreError:
            # Never measured: there is nothing to go on with.
            if not self._measure_at:
                raise
            # The last measurement is good enough until the store is back.
            steady = elapsed()
            self._again, self._wall = steady + MEASURED_AGAIN, _wall_ahead(steady)

    def _is_still_right(self) -> bool:
        trip, ahead = self._ask()
        return ahead - self._trip - _SLACK <= self._offset <= ahead + trip + _SLACK

    def _measure_trips(self) -> tuple[int, int]:
        """The shortest round trip, and how far the store's clock is ahead of `elapsed` at least."""
        trips: list[tuple[int, int]] = []
        while len(trips) < _MAX_TRIPS and (not trips or trips[-1][0] >= _SHORT_TRIP):
            trips.append(self._ask())
        # The shortest round trip tells the store's time most exactly.
        return min(trips)

    def _ask(self) -> tuple[int, int]:
        before = elapsed()
        theirs = self._store_time()
        after = elapsed()
        # Counted from the end of the round trip: so `now()` is never ahead of the store, and no job starts early.
        return after - before, theirs - after


def _wall_ahead(steady: int) -> int:
    return time.time_ns() // 1000 - steady


class FakeClock(Clock):
    """A clock for tests: it stands still until it is advanced."""

    def __init__(self, now: int = 1_800_000_000_000_000) -> None:
        super().__init__(lambda: 0)
        self.time = now

    def now(self) -> int:
        return self.time

    def measure(self) -> None:
        """Does nothing."""

    def advance(self, seconds: float) -> None:
        """Moves the clock forward."""
        self.time += round(seconds * 1_000_000)
