"""The connections of one process to PostgreSQL: a few for all its threads, made when needed, and kept."""

import contextlib
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar
from weakref import WeakSet

import psycopg
from psycopg.pq import TransactionStatus

from tarry.errors import StoreAway, StoreUnavailable
from tarry.store.postgres.errors import AGAIN, of, told
from tarry.store.postgres.link import Link, Row, connected
from tarry.store.postgres.url import Place
from tarry.store.shared.deadline import left
from tarry.store.shared.turns import Turns

Answer = TypeVar("Answer")
MOST = 8
"""Connections of one process, at most: more would not make a database faster."""
TRIES = 6
"""How often a transaction is tried that others are in the way of."""
_inherited: list[list[Link]] = []
"""A parent's connections, kept in its forked child, where they are not ours to use or to close."""


class Connections:
    """For all threads: each takes one for as long as a call lasts; made when needed, kept, `MOST` at most.

    An exception may come between any two steps, from a signal's handler for instance. So the lock is taken by `with`
    alone, which is one step, and links in use are counted by a weak set: one that is lost is not missed for ever.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self._closed = False
        self._begin()
        self._identity: Row | None = None

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._queue = Turns(self._lock)
        self._idle: list[Link] = []
        self._used: WeakSet[Link] = WeakSet()
        self._opening: WeakSet[_Opening] = WeakSet()

    def identity(self, statement: str) -> Row:
        """What tells this database from all others; asked for once."""
        if self._identity is None:
            (self._identity,) = self.call(lambda link: link.rows(statement))
        return self._identity

    def call(self, work: Callable[[Link], Answer]) -> Answer:
        """Does it with a connection; again if others are in the way. Errors are ours."""
        with told(self.place):
            for tried in range(1, TRIES + 1):
                try:
                    return self._with_one(work)
                except psycopg.Error as error:
                    if error.sqlstate not in AGAIN or tried == TRIES:
                        raise
                    time.sleep(random.uniform(0, 0.01) * 2**tried)
        raise AssertionError("the last try returns or raises")

    @contextlib.contextmanager
    def one(self) -> Iterator[Link]:
        """A connection of one's own, for a moment; it is closed if anything is left over on it."""
        taken: list[Link] = []
        try:
            self._take(taken)
            yield taken[0]
        finally:
            self._give_back(taken)

    def _with_one(self, work: Callable[[Link], Answer]) -> Answer:
        """As `one`, but a block of this kind has no gap where an exception would lose the connection."""
        taken: list[Link] = []
        try:
            self._take(taken)
            return work(taken[0])
        finally:
            self._give_back(taken)

    def _take(self, taken: list[Link]) -> None:
        """Puts a connection into the list."""
        if self._pid != os.getpid():
            _inherited.append(self._idle)
            self._begin()
        opening = _Opening()
        with self._lock:
            if not self._queue.wait_for(self._any, left(self.place.seconds)):
                raise StoreAway(
                    f"{self.place.url}: all {MOST} connections of this process were busy for {self.place.seconds:g} s"
                )
            if self._closed:
                raise StoreUnavailable(f"{self.place.url}: the store was closed; open it again")
            if self._take_idle(taken):
                return
            self._opening.add(opening)
        try:
            taken.append(self._connected())
            self._used.add(taken[0])
        finally:
            with self._lock:
                self._opening.discard(opening)
                if not taken:
                    self._queue.notify()

    def _connected(self) -> Link:
        try:
            return connected(self.place)
        except psycopg.Error as error:
            why = of(error, self.place)
            # Nothing was sent yet: whoever asked for an insert may be told that it is surely not stored.
            raise StoreAway(str(why)) if type(why) is StoreUnavailable else why from None

    def _any(self) -> bool:
        return self._closed or bool(self._idle) or len(self._used) + len(self._opening) < MOST

    def _take_idle(self, taken: list[Link]) -> bool:
        while self._idle:
            taken.append(self._idle.pop())
            if taken[0].usable:
                self._used.add(taken[0])
                return True
            taken.pop().leave()
        return False

    def _give_back(self, taken: list[Link]) -> None:
        for link in taken:
            good = not link.closed and link.pgconn.transaction_status == TransactionStatus.IDLE
            with self._lock:
                self._used.discard(link)
                if good and not self._closed:
                    self._idle.append(link)
                else:
                    link.leave()
                self._queue.notify()

    def close(self) -> None:
        """Those in use are closed when they come back."""
        if self._pid != os.getpid():
            self._closed = True
            return
        with self._lock:
            idle, self._idle, self._closed = self._idle, [], True
        for link in idle:
            link.leave()


class _Opening:
    """Somebody is about to have one connection more."""
