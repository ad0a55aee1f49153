"""The moment by which a call of a store has to end: set by the caller, used by each wait inside."""

# A store has time limits of its own. A caller that has waited before the call has one limit for both together.

import contextlib
import threading
import time
from collections.abc import Iterator

# With none at all, a wait could never succeed.
LEAST = 0.05
"""Seconds that a wait has at least."""


class _Here(threading.local):
    end: float | None = None


_here = _Here()


@contextlib.contextmanager
def until(end: float | None) -> Iterator[None]:
    """Inside, waits of the calling thread for a store end at that moment of time.monotonic(). None: no such moment."""
    # Blocks may be nested: the end of the inner one must bring back the limit of the outer one.
    before = _here.end
    try:
        # Inside `try`: an exception may come between any two steps, and a limit that stays set would cut short all
        # later waits.
        _here.end = end
        yield
    finally:
        _here.end = before


def left(seconds: float) -> float:
    """Seconds that a wait may take, of at most so many."""
    end = _here.end
    return seconds if end is None else min(seconds, max(LEAST, end - time.monotonic()))
