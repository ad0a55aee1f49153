"""How many workers a pool that follows its backlog should have: up at once and by doubling, down one at a time.

Up: when jobs have waited for more than a moment, all workers are fully used, and the workers that were added last are
ready. It adds as many workers as would hold the waiting jobs, at most as many as there are.

Down: by one, when fewer workers would have been enough for some time, and then by one more every so often.
"""

from collections import deque
from math import ceil

from msgspec import Struct

MAX_WAIT = 0.5
"""Seconds that the oldest job may wait."""
FULL = 0.9
"""Part of the capacity from which on workers count as full."""
TARGET_LOAD = 0.8
"""Part of their time that workers should be busy, at most."""
STEPS_PER_CALM = 6
"""After the first worker has left, so many more may leave in each period of `calm`."""
MANUAL_HOLD = 3.0
"""Seconds for which a number that was set by hand is kept, at least."""
_GAP = 5.0


class Range(Struct, frozen=True):
    """How many workers a pool may have."""

    least: int
    most: int
    calm: float = 30.0
    """Seconds for which fewer workers must have been enough before one leaves."""

    def clamp(self, count: int) -> int:
        """The nearest count within the bounds."""
        return max(self.least, min(self.most, count))


class PoolLoad(Struct, frozen=True):
    """The load of a pool at one moment."""

    ready: int
    """Workers that accept jobs; without those that finish their last jobs."""
    fill: float
    """Which part of their capacity is in use, 0 to 1."""
    load: float
    """How many workers were busy, on average since the last measurement."""
    held: int
    """Jobs that the workers hold."""
    waiting: int
    """Jobs that are ready to run; counting may have stopped at a maximum."""
    oldest: float
    """Seconds for which the first of those has waited."""

    @property
    def is_overloaded(self) -> bool:
        """True: more workers would help the waiting jobs."""
        # If workers have room while jobs wait, a limit holds those jobs back, and more workers would not help.
        return self.waiting > 0 and self.oldest >= MAX_WAIT and self.fill >= FULL


class Autoscaler:
    """Decides the count of one pool. Call `decide` once or twice a second. Times are of the monotonic clock."""

    def __init__(self) -> None:
        self._needs: deque[tuple[float, int]] = deque()
        self._last = self._since = float("-inf")
        self._stepped = self._quiet_until = float("-inf")

    def decide(self, now: float, count: int, range: Range, load: PoolLoad) -> int:
        """How many workers the pool should have from now on; `count`: how many it should have had so far."""
        # 1e-9: a rounding error in the division must not ask for one more worker.
        self._record(now, max(ceil(load.load / TARGET_LOAD - 1e-9), count if load.is_overloaded else 0), range.calm)
        # A number set by hand stands for a moment before the backlog decides again.
        if now < self._quiet_until:
            return count
        # Until the workers added last are ready, their effect on the backlog is not known.
        if load.is_overloaded and load.ready >= count:
            self._since = now
            return range.clamp(count + min(count, ceil(load.waiting * load.ready / max(load.held, load.ready))))
        if self._too_many(now, count, range.calm):
            self._stepped = now
            return range.clamp(count - 1)
        return range.clamp(count)

    def hold(self, now: float) -> None:
        """The count was set by hand: keeps it for a moment, and lets no worker leave before `calm` is over."""
        self._since, self._quiet_until = now, now + MANUAL_HOLD

    def _record(self, now: float, need: int, calm: float) -> None:
        if now - self._last > _GAP:  # the load in between is unknown
            self._needs.clear()
            self._since = now
        self._last = now
        self._needs.append((now, need))
        while self._needs[0][0] < now - calm:
            self._needs.popleft()

    def _too_many(self, now: float, count: int, calm: float) -> bool:
        seen = now - self._since >= calm and now - self._stepped >= calm / STEPS_PER_CALM
        # The highest need within `calm` decides, so that a rush now and then keeps its workers.
        return seen and max(need for _, need in self._needs) < count
