"""A pace that a producer keeps by the clock."""

import time
from collections.abc import Callable

MOST_BEHIND = 2.0
"""Seconds: who is later than this, as after a call that waited for its store, does not make up for the rest."""


class Pace:
    """Moments at which something is due, however long what is done at them takes. gap: the seconds to the next one."""

    def __init__(
        self,
        gap: Callable[[], float],
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._gap, self._now, self._sleep = gap, now, sleep
        self._due = now()

    def wait(self) -> None:
        """Returns at the next moment, or at once if that is over."""
        now = self._now()
        self._due = max(self._due, now - MOST_BEHIND) + self._gap()
        self._sleep(max(0.0, self._due - now))
