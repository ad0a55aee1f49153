"""The moment by which a call of a store has to end: set by the caller, used by each wait inside."""

# A store has time limits of its own. A caller that has waited before the call has one limit for both together.

import threading
import time

# With none at all, a wait could never succeed.
LEAST = 0.05
"""Seconds that a wait has at least."""


class _Here(threading.local):
    end: float | None = None


_here = _Here()


class until:  # noqa: N801 - used as a function is
    """Inside, waits of the calling thread for a store end at that moment of time.monotonic(). None: no such moment."""

    # A class: a generator would cost each enqueue two microseconds.
    __slots__ = ("_before", "_end")

    def __init__(self, end: float | None) -> None:
        self._end = end

    def __enter__(self) -> None:
        # Blocks may be nested: the end of the inner one must bring back the limit of the outer one.
        self._before = _here.end
        # The last step: CPython lets no exception in between it and the block, after which the limit would stay set.
        _here.end = self._end

    def __exit__(self, *error: object) -> None:
        _here.end = self._before


def left(seconds: float) -> float:
    """Seconds that a wait may take, of at most so many."""
    end = _here.end
    return seconds if end is None else min(seconds, max(LEAST, end - time.monotonic()))
