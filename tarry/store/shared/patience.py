"""How long to wait for a store that is away, and for those who could not reach it."""

import math
import random

_chance = random.Random()
"""Its own, so that a thread in the background changes nothing for who seeded the others' random numbers."""

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 5.0
"""Seconds between two tries to reach a store that is away: doubled each time, and jittered."""
PATIENCE = 10.0
"""Seconds for which nobody's lease is held to have run out on a store that was away: its owners must first have had
a chance to prolong it. Longer than the longest pause."""


def back_off(tries: int) -> float:
    """Seconds to wait after so many failures in a row."""
    return float(min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(tries, 10)) * _chance.uniform(0.5, 1.0))


def about(seconds: float) -> float:
    """Half as much more or less, so that not all come at once."""
    return seconds * _chance.uniform(0.5, 1.5)


SAY_FIRST, SAY_AGAIN = 10.0, 60.0
"""Seconds after the last line in the log until a new outage, and one that goes on, is said again."""


class Backoff:
    """The tries of one who waits for a store that is away: when the next is due, and whether to say that it failed.

    The pause is a moment (`again`) and not a sleep, so that a hint that wakes the waiter early does not shorten it.
    """

    def __init__(self) -> None:
        self.tries = 0
        """How many failed in a row."""
        self.again = 0.0
        """By time.monotonic(): nothing is tried before."""
        self._said = -math.inf

    def fail(self, now: float) -> bool:
        """One more try has failed, at `now` by time.monotonic(). True if that is to be said: once in so many seconds,
        however often it fails."""
        self.tries += 1
        self.again = now + back_off(self.tries)
        says = now - self._said >= (SAY_FIRST if self.tries == 1 else SAY_AGAIN)
        if says:
            self._said = now
        return says

    def succeed(self) -> None:
        """The store answers."""
        self.tries, self.again = 0, 0.0

    def left(self, now: float) -> float:
        """Seconds until the next try; 0: now."""
        return max(0.0, self.again - now)
