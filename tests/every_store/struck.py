"""A thread into which exceptions are thrown at any moment, as by a signal's handler that raises."""

import ctypes
import threading
import time
from collections.abc import Callable
from typing import Any

from tests.worker.bench import LIMIT


class Thrown(BaseException):
    """What somebody throws into a thread of theirs."""


class StruckThread(threading.Thread):
    """Calls `use` without end, from `with` to its end; keeps the errors that are not what was thrown."""

    def __init__(self, use: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self.hits = 0
        self.errors: list[BaseException] = []
        self._use, self._ended = use, False

    def throw(self, times: int = 1) -> None:
        """Throws so often, each time when the last one has come."""
        for _ in range(times):
            self._throw()

    def _throw(self) -> None:
        hits, end = self.hits, time.monotonic() + LIMIT
        while self.hits == hits and self.is_alive():
            assert time.monotonic() < end, "the thread hangs"
            kind = ctypes.py_object(Thrown)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self.ident or 0), kind)
            # Again where it hit a finalizer, which swallows what it gets.
            again = time.monotonic() + 1
            while self.hits == hits and time.monotonic() < again:
                time.sleep(0.0001)

    def run(self) -> None:
        while not self._ended:
            try:
                while not self._ended:
                    self._use()
            except Thrown:
                self.hits += 1
            except BaseException as error:
                self.errors.append(error)

    def __enter__(self) -> "StruckThread":
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended = True
        self.join(LIMIT)
