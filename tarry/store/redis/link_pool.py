"""A few connections to one server, for the threads of a process to share."""

import os
import threading
import time
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

from tarry.errors import ConfigError, StoreUnavailable
from tarry.store.redis.link_door import Access, Place
from tarry.store.redis.link_refusal import Unreached
from tarry.store.redis.link_wire import Wire

MOST = 8
_inherited: list[Any] = []
"""A parent's connections, kept in its forked child, where they are not ours to close."""


class Wires:
    """At most `most` connections, opened when needed. Any thread borrows one and gives it back."""

    def __init__(self, place: Place, access: Access, most: int = MOST) -> None:
        self.place, self.access = place, access
        self._most = most
        self._proved = False
        self._begin()

    def borrow(self, deadline: float) -> Wire:
        """One that is sound, as far as can be seen from here. Unreached if there is none in time."""
        if self._pid != os.getpid():
            _inherited.append((self._idle, self._freed))
            self._begin()
        with self._lock:
            if not self._any() and not self._waited(self._any, deadline):
                raise Unreached(f"{self.place}: all {self._most} connections are in use; send it again")
            while self._idle:
                if not (wire := self._idle.pop()).stale:
                    return wire
                self._drop(wire)
            self._opening += 1
        try:
            return self._opened(deadline)
        finally:
            self._opening -= 1

    def borrow_this(self, wire: Wire, deadline: float) -> None:
        """That very one, once nobody else uses it. Unreached if it is no more."""
        with self._freed:
            free = self._freed.wait_for(
                lambda: wire in self._idle or wire not in self._all, deadline - time.monotonic()
            )
            if not free or wire not in self._idle or wire.stale:
                raise Unreached(f"{self.place}: the connection broke")
            self._idle.remove(wire)

    def give_back(self, wire: Wire) -> None:
        """It is used no more; broken or not."""
        with self._lock:
            if wire.broken or wire not in self._all:
                self._drop(wire)
            else:
                self._idle.append(wire)
            if self._waiting:
                self._freed.notify_all()

    def close(self) -> None:
        """Closes all: those in use, once they are given back. It may go on with new ones."""
        if self._pid != os.getpid():
            return
        with self._lock:
            self._all.clear()
            while self._idle:
                self._idle.pop().close()
            self._freed.notify_all()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._idle: list[Wire] = []
        # Weak, so that one whose borrower was interrupted at the worst moment is not missed for ever.
        self._all: WeakSet[Wire] = WeakSet()
        self._opening = self._waiting = 0
        self._lock = threading.Lock()
        self._freed = threading.Condition(self._lock)

    def _waited(self, condition: Callable[[], bool], deadline: float) -> bool:
        self._waiting += 1
        try:
            return self._freed.wait_for(condition, deadline - time.monotonic())
        finally:
            self._waiting -= 1

    def _any(self) -> bool:
        return bool(self._idle) or len(self._all) + self._opening < self._most

    def _drop(self, wire: Wire) -> None:
        self._all.discard(wire)
        wire.close()

    def _opened(self, deadline: float) -> Wire:
        try:
            wire = Wire(self.place, self.access, min(deadline, time.monotonic() + self.access.timeout))
        except ConfigError as error:
            if self._proved:
                # It let us in before: whoever changed that may change it back, and then work goes on.
                raise StoreUnavailable(str(error)) from None
            raise
        self._proved = True
        with self._lock:
            self._all.add(wire)
        return wire
