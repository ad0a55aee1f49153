"""Waiting for one of a few things, first come, first served."""

import threading
import time
from collections.abc import Callable
from weakref import WeakSet


class FairCondition:
    """Like threading.Condition, but no thread overtakes another."""

    # With Condition alone, threads that give back and take again at once keep everything among themselves, and other
    # threads wait in vain.

    def __init__(self, lock: threading.RLock) -> None:
        self._changed = threading.Condition(lock)
        # Weak: an exception may come between any two steps, for instance from a signal handler. A ticket that is lost
        # then must not hold up the others for ever.
        self._waiting: WeakSet[_Ticket] = WeakSet()
        self._last = 0

    def wait_for(self, free: Callable[[], bool], seconds: float) -> bool:
        """Waits for its turn and until `free()`, at most so long. Returns whether it is free. The lock must be held, as
        with Condition."""
        # The fast path, only if no other thread waits: this one must not overtake it.
        if not self.is_awaited() and free():
            return True
        self._last += 1
        ticket = _Ticket(self._last)
        self._waiting.add(ticket)
        end = time.monotonic() + seconds
        try:
            # In short steps: a lost ticket vanishes without a notification.
            while self._is_behind(ticket) or not free():
                if not self._changed.wait(min(0.1, max(0.0, end - time.monotonic()))) and time.monotonic() >= end:
                    return False
            return True
        finally:
            # Whatever the end was: the next in line may go on.
            self._waiting.discard(ticket)
            self._changed.notify_all()

    def is_awaited(self) -> bool:
        """Whether a thread waits for its turn."""
        return bool(self._waiting)

    def wait_out_of_turn(self, free: Callable[[], bool], seconds: float) -> bool:
        """Waits without a turn, for something that no other thread waits for."""
        return self._changed.wait_for(free, seconds)

    def _is_behind(self, ticket: "_Ticket") -> bool:
        return any(other.number < ticket.number for other in self._waiting)

    def notify(self) -> None:
        """Something may be free now. The lock must be held."""
        self._changed.notify_all()


class _Ticket:
    """The place in line of a thread that waits."""

    def __init__(self, number: int) -> None:
        self.number = number
