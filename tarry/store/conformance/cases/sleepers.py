"""Sleepers of a store, for tests of wake-ups."""

import time
from collections.abc import Callable

from tarry.store.rules.base import Store
from tarry.store.rules.sleeper import Wakeup

# A wake-up that comes at all comes at once; the rest is for slow machines.
WAIT = 10.0
"""Seconds that a wake-up may take."""


class Sleepers:
    """Sleepers on a store, closed at the end of the block."""

    def __init__(self, store: Store) -> None:
        self._store, self._sleepers = store, list[Wakeup]()

    def listen(self, topic: str) -> Wakeup:
        """A new sleeper, which listens."""
        sleeper = self._store.wakeup()
        sleeper.listen(topic)
        self._sleepers.append(sleeper)
        return sleeper

    def __enter__(self) -> "Sleepers":
        return self

    def __exit__(self, *_: object) -> None:
        for sleeper in self._sleepers:
            sleeper.close()


def wakes(sleeper: Wakeup) -> bool:
    """Whether the sleeper is woken, well before its time limit."""
    return is_short(lambda: sleeper.wait(WAIT))


def is_short(sleep: Callable[[], object]) -> bool:
    """Whether a sleep of at most `WAIT` ends well before that."""
    start = time.monotonic()
    sleep()
    return time.monotonic() - start < WAIT / 2
