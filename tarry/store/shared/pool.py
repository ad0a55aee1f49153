"""A pool of connections from one process to a server, for all its threads: bounded and fair."""

import os
import threading
import time
from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar
from weakref import WeakSet

from tarry.store.shared.deadline import left
from tarry.store.shared.fair_condition import FairCondition

C = TypeVar("C")
RESTS_FOR = 60.0
"""Seconds, at least, that a connection was not used before it is closed."""
# Kept alive: a forked child must neither use nor close its parent's connections.
_inherited: list[list[Any]] = []
"""The connections of the parent process."""


class ConnectionPool(ABC, Generic[C]):
    """Lends each connection to one thread at a time, first come, first served. Opens one when none is idle, `most` at
    most. A store says in a subclass how its connections are opened, checked and closed."""

    # An exception may come between any two steps, for instance from a signal handler. So the lock is taken only by
    # `with`, which is one step, and a weak set counts the connections: one that is lost does not count for ever.

    def __init__(self, most: int) -> None:
        self._most = most
        self._closed = False
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._freed = FairCondition(self._lock)
        self._idle: list[C] = []
        """The one that was used last is lent first, so those that are not needed stay in front."""
        self._resting, self._rested_at = 0, time.monotonic() + RESTS_FOR
        """How many of them nobody has used since they were counted last, and when to count them again."""
        self._all: WeakSet[Any] = WeakSet()
        """The connections, idle and in use, and an _Opening for each that is being opened."""

    @abstractmethod
    def _open(self, end: float) -> C:
        """A new connection, made before that moment of time.monotonic()."""

    @abstractmethod
    def _discard(self, connection: C) -> None:
        """Closes it; raises nothing."""
        # A forked child must not tell the server: that would end its parent's connection.

    @abstractmethod
    def _busy_error(self) -> Exception:
        """What to raise if all connections stay in use."""

    def _prepare(self, connection: C) -> bool:
        """Makes an idle connection ready to be lent again. False: it is broken."""
        return True

    @abstractmethod
    def _restore(self, connection: C, error: BaseException | None) -> bool:
        """Cleans up after a loan. error: how the loan ended. False: the connection must not be used again."""

    def lend(self, seconds: float) -> "Loan[C]":
        """`with pool.lend(5) as connection:`. Waits so long at most."""
        return Loan(self, seconds)

    def take(self, taken: list[C], seconds: float) -> None:
        """Puts a connection into the list."""
        # Returned, it would be lost if an exception came before the caller has it.
        if self._pid != os.getpid():
            _inherited.append(self._idle)
            self._begin()
        with self._lock:
            # The fast path. If others wait, this thread must not overtake them.
            if not self._freed.is_awaited() and self._take_idle(taken):
                return
        self._wait_and_take(taken, time.monotonic() + left(seconds))

    def _wait_and_take(self, taken: list[C], end: float) -> None:
        opening = _Opening()
        with self._lock:
            if not self._freed.wait_for(self._is_free, end - time.monotonic()):
                raise self._busy_error()
            if self._take_idle(taken):
                return
            # Counts while it is opened, so that others do not open too many meanwhile.
            self._all.add(opening)
        try:
            # Without the lock: opening may take seconds, and others give back meanwhile.
            taken.append(self._open(end))
            self._all.add(taken[0])
        finally:
            with self._lock:
                self._all.discard(opening)
                # It could not be opened: another thread may try in its place.
                if not taken:
                    self._freed.notify()

    def _is_free(self) -> bool:
        return bool(self._idle) or len(self._all) < self._most or self._closed

    def _take_idle(self, taken: list[C]) -> bool:
        while self._idle:
            taken.append(self._idle.pop())
            self._resting = min(self._resting, len(self._idle))
            if self._prepare(taken[0]):
                return True
            self._all.discard(taken[0])
            self._discard(taken.pop())
        return False

    def take_this(self, connection: C, seconds: float) -> bool:
        """Takes exactly this connection, once no thread uses it. False: it was not free in time, or is closed."""
        with self._lock:
            # Out of turn: a thread that waits for this one connection must not hold up those that take any.
            self._freed.wait_out_of_turn(lambda: connection in self._idle or connection not in self._all, seconds)
            if connection not in self._idle or not self._prepare(connection):
                return False
            self._idle.remove(connection)
            self._resting = min(self._resting, len(self._idle))
            return True

    def give_back(self, connection: C, error: BaseException | None = None) -> None:
        """Gives back a connection that `take` gave. error: see `_restore`."""
        keep, rested = False, list[C]()
        try:
            keep = self._restore(connection, error)
        finally:
            with self._lock:
                if time.monotonic() >= self._rested_at:
                    rested = self._take_rested()
                # It may have been dropped while it was lent (`drop_all`).
                keep = keep and not self._closed and connection in self._all
                if keep:
                    self._idle.append(connection)
                else:
                    self._all.discard(connection)
                self._freed.notify()
            for unneeded in rested if keep else (*rested, connection):
                self._discard(unneeded)

    def _take_rested(self) -> list[C]:
        """Takes those that nobody has used since the last call, and counts anew."""
        rested, self._idle = self._idle[: self._resting], self._idle[self._resting :]
        self._all.difference_update(rested)
        self._resting, self._rested_at = len(self._idle), time.monotonic() + RESTS_FOR
        return rested

    def drop_idle(self) -> None:
        """Closes the idle connections."""
        # For instance after one was broken: then the idle ones may be broken too.
        if self._pid != os.getpid():
            return
        with self._lock:
            idle, self._idle, self._resting = self._idle, [], 0
            self._all.difference_update(idle)
            self._freed.notify()
        for connection in idle:
            self._discard(connection)

    def drop_all(self) -> None:
        """Closes the idle connections now and the others when they come back. The pool then opens new ones."""
        if self._pid == os.getpid():
            with self._lock:
                # A lent connection that is no longer in the set is closed when it comes back.
                self._all.clear()
            self.drop_idle()

    def close(self) -> None:
        """Closes the idle connections now and all others when they come back."""
        self._closed = True
        self.drop_idle()


class Loan(Generic[C]):
    """`with` this."""

    # A class: in a generator an exception could come between taking the connection and `try`.

    def __init__(self, pool: ConnectionPool[C], seconds: float) -> None:
        self._pool, self._seconds = pool, seconds
        self._taken: list[C] = []

    def __enter__(self) -> C:
        try:
            self._pool.take(self._taken, self._seconds)
            return self._taken[0]
        except BaseException as error:
            self._end(error)
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._end(error)

    def _end(self, error: BaseException | None) -> None:
        while self._taken:
            self._pool.give_back(self._taken.pop(), error)


class _Opening:
    """Counts as a connection while one is opened."""
