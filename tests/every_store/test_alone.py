"""Exceptions that come from elsewhere, as from a signal handler that raises: stores withstand them by themselves."""

import ctypes
import gc
import random
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from tarry import App
from tests.every_store.throwing import assert_nothing_is_held
from tests.worker.bench import LIMIT

TIMES = 600
EXPECTED = (
    # The others of a batch, when whoever flushed for them was hit.
    "the call was interrupted before its answer came",
    # Python's own sqlite3, when a function that it calls was hit.
    "user-defined function raised exception",
)


class Thrown(BaseException):
    """What somebody throws into a thread of theirs."""


class Target:
    """A thread that uses tarry without end."""

    def __init__(self, app: App) -> None:
        self.hits = 0
        self.errors: list[BaseException] = []
        self._app, self._ended = app, threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def throw(self) -> None:
        """Throws once; again where it hit a finalizer, which swallows what it gets."""
        hits, end = self.hits, time.monotonic() + LIMIT
        while self.hits == hits and self._thread.is_alive():
            assert time.monotonic() < end, "the thread hangs"
            self._set(Thrown)
            again = time.monotonic() + 1
            while self.hits == hits and time.monotonic() < again:
                time.sleep(0.0001)

    def _set(self, kind: type[BaseException]) -> None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._thread.ident or 0), ctypes.py_object(kind))

    def stop(self) -> None:
        self._ended.set()
        self._thread.join(LIMIT)

    def _serve(self) -> None:
        while not self._ended.is_set():
            try:
                self._use()
            except Thrown:
                self.hits += 1
            except BaseException as error:
                self.errors.append(error)

    def _use(self) -> None:
        target = self._app.tasks["target"]
        while not self._ended.is_set():
            target.enqueue(1).cancel()
            target.using(key=str(random.randrange(9)), on_duplicate="replace").enqueue(2)


@pytest.fixture
def _quiet_collections() -> Iterator[None]:
    """What is thrown amid what hypothesis does at each collection would be swallowed."""
    kept = gc.callbacks[:]
    gc.callbacks.clear()
    yield
    gc.callbacks[:] = kept


@pytest.mark.usefixtures("_quiet_collections")
def test_what_is_thrown_at_any_moment_leaves_nothing_held(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    # What is thrown may come amid a finalizer, and amid pytest's own hook for that, which fails then.
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: None)

    @app.task(name="target")
    def target(number: int) -> None: ...

    app.client.fetch([])
    targets = [Target(app) for _ in range(3)]
    for n in range(TIMES):
        time.sleep(random.uniform(0, 0.001))
        targets[n % 3].throw()
    for each in targets:
        each.stop()
    assert [error for each in targets for error in each.errors if not str(error).endswith(EXPECTED)] == []
    gc.collect()
    assert_nothing_is_held(app)
