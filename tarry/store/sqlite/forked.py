"""SQLite and fork: the parent's connection must not be used in the child, and no fork may come amid a transaction.

All connections of a process to one file share what SQLite knows of its locks, and a child inherits that. Were a
transaction open at the fork, the child would find the file locked for ever, by nobody. So a fork waits for the calls
that are under way.
"""

import os
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol, cast
from weakref import WeakSet

LONGEST = 5.0
"""Seconds that a fork waits for the calls that are under way, as long as those may take."""


class Holder(Protocol):
    """What has connections."""

    _lock: Any
    """Held during each call: a `threading.Lock`, or `OpenAgain`."""

    def forked(self) -> None:
        """In a forked child: makes a new lock, and lets go of the connections without closing them."""


class OpenAgain:
    """Stands in place of a store's lock in a forked child: whoever takes it first opens the store anew.

    reopen: as the store's own `__init__`; it puts a new lock in this one's place.
    """

    def __init__(self, store: Any, reopen: Callable[[], None]) -> None:
        self._store, self._reopen = store, reopen
        self._first = threading.Lock()

    def __enter__(self) -> None:
        with self._first:
            if self._store._lock is self:
                keep_alive(dict(self._store.__dict__))
                try:
                    self._reopen()
                except BaseException:
                    self._store._lock = self
                    raise
        self._store._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._store._lock.release()


_holders: "WeakSet[Any]" = WeakSet()
_held: list[threading.Lock] = []
_inherited: list[object] = []


def watch(holder: Holder) -> None:
    """From now on forks wait for its calls, and in children it is told."""
    _holders.add(holder)


def keep_alive(what: object) -> None:
    """Of the parent's: a connection that is closed takes the locks of the file with it."""
    _inherited.append(what)


class _Forking:
    """One fork at a time."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def before(self) -> None:
        self.lock.acquire()
        end = time.monotonic() + LONGEST
        for holder in sorted(_holders, key=id):
            lock = cast("Holder", holder)._lock
            if not isinstance(lock, OpenAgain) and lock.acquire(timeout=max(0.0, end - time.monotonic())):
                _held.append(lock)

    def in_parent(self) -> None:
        while _held:
            _held.pop().release()
        self.lock.release()

    def in_child(self) -> None:
        self.lock = threading.Lock()
        _held.clear()
        for holder in list(_holders):
            holder.forked()


_forking = _Forking()
os.register_at_fork(before=_forking.before, after_in_parent=_forking.in_parent, after_in_child=_forking.in_child)
