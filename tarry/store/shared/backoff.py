"""How long to wait for a store that is away, and for the owners that could not reach it; and what is logged of that."""

import logging
import math
import random
import time
from collections.abc import Callable
from types import TracebackType

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


class OutageLog:
    """When to log that something is away, and the line that it is back.

    log, back: where and how that line begins, as in `the store is back`; without a log there is no such line.
    """

    def __init__(self, log: logging.Logger | None = None, back: str = "") -> None:
        self._log, self._back = log, back
        self._since: float | None = None
        """When the outage began; None: there is none."""
        self._said = -math.inf
        self._is_said = False
        """The log has this outage."""

    def fail(self, now: float, is_known: bool = False) -> bool:
        """It is away, at `now` by time.monotonic(). Returns whether to log it: once in so many seconds, however often
        it fails. is_known: the log has it already, from another."""
        if self._since is None:
            self._since = now
        if is_known or now - self._said < (SAY_AGAIN if self._is_said else SAY_FIRST):
            return False
        self._said, self._is_said = now, True
        return True

    def end(self, now: float | None = None) -> None:
        """It is back. Logs that, with how long it was away, if the log has that it was."""
        if self._is_said and self._log is not None and self._since is not None:
            # After each line that it is away at most one, so these are as few as those.
            self._log.info("%s after %.1f s", self._back, (time.monotonic() if now is None else now) - self._since)
        self._since, self._is_said = None, False


class Backoff:
    """The tries to reach a store that is away: when the next is due, and whether to log that one failed. log, back: as
    for `OutageLog`."""

    # The pause is a moment (`again`) and not a sleep, so that an early wake-up does not shorten it.

    def __init__(self, log: logging.Logger | None = None, back: str = "the store is back") -> None:
        self.tries = 0
        """How many failed in a row."""
        self.again = 0.0
        """The moment of time.monotonic() before which nothing is tried."""
        self._outage = OutageLog(log, back)

    def fail(self, now: float, is_known: bool = False) -> bool:
        """One more try has failed, at `now` by time.monotonic(). Returns whether to log it, as `OutageLog.fail`."""
        self.tries += 1
        self.again = now + back_off(self.tries)
        return self._outage.fail(now, is_known)

    def succeed(self, now: float | None = None) -> None:
        """The store answers. Logs that, as `OutageLog.end`."""
        if self.tries:
            self.tries, self.again = 0, 0.0
            self._outage.end(now)

    def left(self, now: float) -> float:
        """Seconds until the next try; 0: now."""
        return max(0.0, self.again - now)


class TurnGuard:
    """`with guard:` around each turn of such a thread. An error is logged, as often as an outage, and the next turn
    follows after a growing pause. Used by one thread.

    what: what the thread does, as in `watching timeouts`. pause: sleeps for so many seconds; may return earlier, as
    once the thread is to end.
    """

    def __init__(self, log: logging.Logger, what: str, pause: Callable[[float], object] = time.sleep) -> None:
        self._log, self._what, self._pause = log, what, pause
        self._backoff = Backoff(log, f"{what} works again")

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception):
            if error is None:
                self._backoff.succeed()
            return False
        now = time.monotonic()
        if self._backoff.fail(now):
            self._log.critical("%s failed; trying again", self._what, exc_info=error)
        self._pause(self._backoff.left(now))
        return True
