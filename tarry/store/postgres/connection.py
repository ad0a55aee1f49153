"""The connections of one process to PostgreSQL: a few for all its threads, made when needed, and kept."""

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import psycopg
from psycopg.pq import TransactionStatus

from tarry.errors import StoreUnavailable
from tarry.store.postgres.errors import AGAIN, told
from tarry.store.postgres.link import Link, Row, connected
from tarry.store.postgres.url import Place

Answer = TypeVar("Answer")
MOST = 8
"""Connections of one process, at most: more would not make a database faster."""
TRIES = 6
"""How often a transaction is tried that others are in the way of."""


class Connections:
    """For all threads: each takes one for as long as a call lasts; made when needed, kept, `MOST` at most."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._free = threading.Condition()
        self._idle: list[Link] = []
        self._open = 0
        self._closed = False
        self._identity: Row | None = None

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
                    with self.one() as link:
                        return work(link)
                except psycopg.Error as error:
                    if error.sqlstate not in AGAIN or tried == TRIES:
                        raise
                    time.sleep(random.uniform(0, 0.01) * 2**tried)
        raise AssertionError("the last try returns or raises")

    @contextlib.contextmanager
    def one(self) -> Iterator[Link]:
        """A connection of one's own, for a moment; it is closed if anything is left over on it."""
        link = self._taken()
        try:
            yield link
        finally:
            self._give_back(link)

    def _taken(self) -> Link:
        with self._free:
            if not self._free.wait_for(lambda: self._idle or self._open < MOST or self._closed, self.place.seconds):
                raise StoreUnavailable(
                    f"{self.place.url}: all {MOST} connections of this process were busy for {self.place.seconds:g} s"
                )
            if self._closed:
                raise StoreUnavailable(f"{self.place.url}: the store was closed; open it again")
            if link := self._idle_one():
                return link
            self._open += 1
        try:
            return connected(self.place)
        except BaseException:
            self._one_less()
            raise

    def _idle_one(self) -> Link | None:
        while self._idle:
            if (link := self._idle.pop()).usable:
                return link
            self._open -= 1
            link.leave()
        return None

    def _one_less(self) -> None:
        with self._free:
            self._open -= 1
            self._free.notify()

    def _give_back(self, link: Link) -> None:
        if not link.closed and link.pgconn.transaction_status == TransactionStatus.IDLE and not self._closed:
            with self._free:
                self._idle.append(link)
                self._free.notify()
        else:
            link.leave()
            self._one_less()

    def close(self) -> None:
        """Those in use are closed when they come back."""
        with self._free:
            idle, self._idle, self._closed = self._idle, [], True
            self._open -= len(idle)
        for link in idle:
            link.leave()
