"""How long to wait for a store that is away, and for the owners that could not reach it."""

import math
import random

# Its own generator: a thread in the background must not change the random numbers of a program that seeded `random`.
_chance = random.Random()

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 5.0
"""Seconds between two tries to reach a store that is away: doubled each time, and jittered."""
# Owners need a chance to prolong their leases first; so it is longer than the longest pause.
LEASE_GRACE = 10.0
"""Seconds after a store was away during which no lease counts as run out."""


def back_off(tries: int) -> float:
    """Seconds to wait after so many failures in a row."""
    return float(min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(tries, 10)) * _chance.uniform(0.5, 1.0))


def jitter(seconds: float) -> float:
    """Up to half as much more or less."""
    # So that not all processes come at once.
    return seconds * _chance.uniform(0.5, 1.5)


# A store that comes and goes must not fill the log.
SAY_FIRST, SAY_AGAIN = 10.0, 60.0
"""Seconds after the last line in the log until a new outage is logged, and until a lasting one is logged again."""


class Backoff:
    """The tries to reach a store that is away: when the next is due, and whether to log that one failed."""

    # The pause is a moment (`again`) and not a sleep, so that an early wake-up does not shorten it.

    def __init__(self) -> None:
        self.tries = 0
        """How many failed in a row."""
        self.again = 0.0
        """The moment of time.monotonic() before which nothing is tried."""
        self._said = -math.inf

    def fail(self, now: float) -> bool:
        """One more try has failed, at `now` by time.monotonic(). Returns whether to log it: once in so many seconds,
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
