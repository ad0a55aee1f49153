"""SQLite and fork: the child must not use the parent's connection, and no fork may happen during a transaction."""

import threading
import time
from collections.abc import Callable
from typing import Any, Protocol, cast
from weakref import WeakSet

from tarry.platform import at_fork

# As long as a call may wait for the file's lock (`sqlite.file.BUSY_LIMIT`).
LONGEST = 5.0
"""Seconds that a fork waits for the calls that are under way."""


class Holder(Protocol):
    """An object that has connections."""

    _lock: Any
    """Held during each call: a `threading.Lock`, or `OpenAgain`."""

    def after_fork(self) -> None:
        """In a forked child: makes a new lock, and drops the connections without closing them."""


class OpenAgain:
    """Replaces a store's lock in a forked child: the first thread that takes it opens the store anew.

    reopen: as the store's own `__init__`; it replaces this lock by a new one.
    """

    def __init__(self, store: Any, reopen: Callable[[], None]) -> None:
        self._store, self._reopen = store, reopen
        self._first = threading.Lock()

    def __enter__(self) -> None:
        with self._first:
            # A thread that waited for `_first` finds the store open, with a new lock.
            if self._store._lock is self:
                keep_alive(dict(self._store.__dict__))
                try:
                    self._reopen()
                except BaseException:
                    # The next call tries again.
                    self._store._lock = self
                    raise
        self._store._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._store._lock.release()


_holders: "WeakSet[Any]" = WeakSet()
_held: list[threading.Lock] = []
_inherited: list[object] = []


def watch(holder: Holder) -> None:
    """From now on forks wait for the holder's calls, and call its `after_fork` in the child."""
    _holders.add(holder)


def keep_alive(what: object) -> None:
    """Keeps an object of the parent's for as long as this process lives."""
    # A connection that is freed is closed, and closing any descriptor of a file drops all locks of the process on it.
    _inherited.append(what)


class _Forking:
    """The hooks of a fork; one fork at a time."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._is_held = False

    def before(self) -> None:
        # All connections of a process to one file share what SQLite knows of its locks, and the child inherits that.
        # If a transaction were open at the fork, the child would find the file locked for ever, by nobody.
        self.lock.acquire()
        self._is_held = True
        end = time.monotonic() + LONGEST
        for holder in sorted(_holders, key=id):
            lock = cast("Holder", holder)._lock
            if not isinstance(lock, OpenAgain) and lock.acquire(timeout=max(0.0, end - time.monotonic())):
                _held.append(lock)

    def in_parent(self) -> None:
        # This module may have been imported while another thread forked, after the hooks before a fork were called.
        if not self._is_held:
            return
        self._is_held = False
        while _held:
            _held.pop().release()
        self.lock.release()

    def in_child(self) -> None:
        # New locks: the threads that may have held the old ones do not exist in the child.
        self.lock = threading.Lock()
        self._is_held = False
        _held.clear()
        for holder in list(_holders):
            holder.after_fork()


_forking = _Forking()
at_fork(before=_forking.before, after_in_parent=_forking.in_parent, after_in_child=_forking.in_child)
