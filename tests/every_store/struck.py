"""A thread into which exceptions are thrown at any moment, as by a signal's handler that raises."""

import ctypes
import functools
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import pytest

from tests.worker.bench import LIMIT

_starting = threading.RLock()
_start = threading.Thread.start


def _start_apart(thread: threading.Thread) -> None:
    """Starts a thread while nothing is thrown."""
    # Until it runs, CPython 3.11 takes a new thread for the one that starts it: it would be hit instead, die, and leave
    # the other waiting for it without end.
    with _starting:
        _start(thread)


class Thrown(BaseException):
    """What somebody throws into a thread of theirs."""


def is_with_safe() -> bool:
    """Whether `with lock:` releases the lock if something is thrown just as it was taken: not on Python 3.14
    (CPython issue 148874)."""
    exits = []
    throw, me = ctypes.pythonapi.PyThreadState_SetAsyncExc, ctypes.c_ulong(threading.get_ident())

    class Lock:
        __enter__ = staticmethod(functools.partial(throw, me, ctypes.py_object(Thrown)))

        def __exit__(self, *error: object) -> None:
            exits.append(error)

    try:
        with Lock():
            for _ in range(100):  # it comes in here at the latest
                pass
    except Thrown:
        pass
    return bool(exits)


needs_safe_with = pytest.mark.skipif(
    not is_with_safe(), reason="this Python may leave a lock held where something is thrown: CPython issue 148874"
)


class StruckThread(threading.Thread):
    """Calls `use` without end, from `with` to its end; keeps the errors that are not what was thrown."""

    def __init__(self, use: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self.hits = 0
        self.errors: list[BaseException] = []
        self._use, self._ended = use, False
        self._stack = ExitStack()

    def throw(self, times: int = 1) -> None:
        """Throws so often, each time when the last one has come."""
        for _ in range(times):
            self._throw()

    def _throw(self) -> None:
        hits, end = self.hits, time.monotonic() + LIMIT
        while self.hits == hits and self.is_alive():
            assert time.monotonic() < end, "the thread hangs"
            with _starting:
                kind = ctypes.py_object(Thrown)
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self.ident or 0), kind)
            # Again where it hit a finalizer, which swallows what it gets.
            again = time.monotonic() + 1
            while self.hits == hits and time.monotonic() < again:
                time.sleep(0.0001)

    def run(self) -> None:
        try:
            while not self._ended:
                self._use_until_struck()
        except Thrown:
            # It struck between two uses.
            self.hits += 1
            self.run()

    def _use_until_struck(self) -> None:
        try:
            while not self._ended:
                self._use()
        except Thrown:
            self.hits += 1
        except BaseException as error:
            self.errors.append(error)

    def __enter__(self) -> "StruckThread":
        self._stack.enter_context(patch.object(threading.Thread, "start", _start_apart))
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended = True
        self.join(LIMIT)
        self._stack.close()
