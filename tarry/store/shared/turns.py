"""Who waits for something of which there is a little: first come, first served."""

import threading
import time
from collections.abc import Callable
from weakref import WeakSet


class Turns:
    """As threading.Condition, but nobody overtakes: who gives back and takes again at once waits behind those that were
    there. With Condition alone such threads keep what there is among themselves, and one waits until its limit.

    An exception may come between any two steps, from a signal's handler for instance. So those that wait are in a weak
    set: one that is lost holds up nobody for ever.
    """

    def __init__(self, lock: threading.RLock) -> None:
        self._changed = threading.Condition(lock)
        self._waiting: WeakSet[_Place] = WeakSet()
        self._last = 0

    def wait_for(self, free: Callable[[], bool], seconds: float) -> bool:
        """Whether it was free in one's turn, before so long. The lock is held, as with Condition."""
        self._last += 1
        place = _Place(self._last)
        self._waiting.add(place)
        end = time.monotonic() + seconds
        try:
            while self._is_before(place) or not free():
                if not self._changed.wait(min(0.1, max(0.0, end - time.monotonic()))) and time.monotonic() >= end:
                    return False
            return True
        finally:
            self._waiting.discard(place)
            self._changed.notify_all()

    def _is_before(self, place: "_Place") -> bool:
        """Whether somebody came earlier."""
        return any(other.number < place.number for other in self._waiting)

    def notify(self) -> None:
        """Something may be free. The lock is held."""
        self._changed.notify_all()


class _Place:
    """Of one that waits."""

    def __init__(self, number: int) -> None:
        self.number = number
