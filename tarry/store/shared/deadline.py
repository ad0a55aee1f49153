"""The moment by which a call to a store has to be over: set by who calls, asked by each wait inside.

A store has time limits of its own. Who has waited before it came to the call wants the two to be over together.
"""

import contextlib
import threading
import time
from collections.abc import Iterator

LEAST = 0.05
"""Seconds that a wait has at least, so that it can succeed at all."""


class _Here(threading.local):
    end: float | None = None


_here = _Here()


@contextlib.contextmanager
def until(end: float | None) -> Iterator[None]:
    """Within, waits of the calling thread for a store end at that moment of time.monotonic(). None: when they will."""
    before = _here.end
    try:
        # Within, since an exception may come between any two steps: what stayed set would cut short all that follows.
        _here.end = end
        yield
    finally:
        _here.end = before


def left(seconds: float) -> float:
    """How long a wait may take that takes so long at most."""
    end = _here.end
    return seconds if end is None else min(seconds, max(LEAST, end - time.monotonic()))
