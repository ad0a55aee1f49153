"""How many workers a pool that follows its backlog should have: up at once and by doubling, down one at a time.

Up: jobs have waited for more than a moment, all workers have as much as they can do, and the last ones that were added
are ready, so that what they do is seen in this. As many more as would hold what waits, at most as many as there are.
(Workers that have room while jobs wait leave them: a limit holds those back, and more workers would not help.)

Down: one, when fewer would have done for some time, and then one more every so often.
"""

from collections import deque
from math import ceil

from msgspec import Struct

MAX_WAIT = 0.5
"""Seconds that the oldest job may wait."""
FULL = 0.9
"""Of what they can do at once, from which on the workers are held to have no room."""
TARGET_LOAD = 0.8
"""Of their time, that workers should have something to do at most."""
STEPS_PER_CALM = 6
"""In the time after which the first worker leaves, so many more may follow it."""
MANUAL_HOLD = 3.0
"""Seconds that a number set by hand stands at least."""
_GAP = 5.0


class Range(Struct, frozen=True):
    """The bounds of a pool."""

    least: int
    most: int
    calm: float = 30.0
    """Seconds that fewer must have done before one leaves."""

    def clamp(self, count: int) -> int:
        """Within."""
        return max(self.least, min(self.most, count))


class PoolLoad(Struct, frozen=True):
    """A pool at one moment."""

    ready: int
    """Workers that can work; those that finish their last jobs are not among them."""
    fill: float
    """What part of what they can do at once is in use, 0 to 1."""
    load: float
    """How many workers' whole time was in use, on average since the look before."""
    held: int
    """Jobs that they hold."""
    waiting: int
    """Jobs that are ready to run, as far as they were counted."""
    oldest: float
    """Seconds that the first of those has waited."""

    @property
    def is_overloaded(self) -> bool:
        """More workers would help those who wait."""
        return self.waiting > 0 and self.oldest >= MAX_WAIT and self.fill >= FULL


class Autoscaler:
    """Of one pool. Times are of the monotonic clock; told of each look, one or two a second."""

    def __init__(self) -> None:
        self._needs: deque[tuple[float, int]] = deque()
        self._last = self._since = float("-inf")
        self._stepped = self._quiet_until = float("-inf")

    def decide(self, now: float, count: int, range: Range, look: PoolLoad) -> int:
        """How many there should be from now on, where there are to be `count`."""
        self._record(now, max(ceil(look.load / TARGET_LOAD - 1e-9), count if look.is_overloaded else 0), range.calm)
        if now < self._quiet_until:
            return count
        if look.is_overloaded and look.ready >= count:
            self._since = now
            return range.clamp(count + min(count, ceil(look.waiting * look.ready / max(look.held, look.ready))))
        if self._too_many(now, count, range.calm):
            self._stepped = now
            return range.clamp(count - 1)
        return range.clamp(count)

    def hold(self, now: float) -> None:
        """Somebody chose the count: it is left alone for a moment, and nobody leaves before the time is over."""
        self._since, self._quiet_until = now, now + MANUAL_HOLD

    def _record(self, now: float, need: int, calm: float) -> None:
        if now - self._last > _GAP:  # what was needed in between nobody knows
            self._needs.clear()
            self._since = now
        self._last = now
        self._needs.append((now, need))
        while self._needs[0][0] < now - calm:
            self._needs.popleft()

    def _too_many(self, now: float, count: int, calm: float) -> bool:
        seen = now - self._since >= calm and now - self._stepped >= calm / STEPS_PER_CALM
        return seen and max(need for _, need in self._needs) < count
