"""Runs coroutines in threads without a running event loop. Each thread gets a loop of its own when it first needs one.

Between two steps of a coroutine the thread can leave the loop to call sync code. That code finds no running loop, and
may start one itself.
"""

import contextlib
import threading
import weakref
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from functools import partial
from typing import Any

from tarry.platform import at_fork
from tarry.tasks.interrupts import Interrupted
from tarry.tasks.lazy_asyncio import asyncio

_CallResult = tuple[Any, BaseException | None]


class OwnLoop:
    """An event loop that runs only while `run` does."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(self._on_error)
        self._broken: BaseException | None = None
        self._calls: deque[tuple[asyncio.Future[_CallResult], Callable[[], Any]]] = deque()

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Runs the coroutine: returns what it returns, or raises what it raises."""
        task = self._loop.create_task(coroutine)
        task.add_done_callback(self._pause)
        try:
            self._until_done(task)
        except BaseException:
            # The interrupt hit the loop itself. Cancel the coroutine first, so that it can clean up.
            task.cancel()
            self._until_done(task)
            # Reading the exception keeps asyncio from logging that nobody did.
            _ = task.cancelled() or task.exception()
            raise
        return task.result()

    async def call_outside(self, call: Callable[[], Any]) -> Any:
        """Makes a sync call outside the loop, in the thread of `run` and in the present context. Only for a coroutine
        that `run` runs."""
        future: asyncio.Future[_CallResult] = self._loop.create_future()
        self._calls.append((future, partial(copy_context().run, call)))
        self._loop.stop()
        value, error = await future
        if error is not None:
            raise error
        return value

    def close(self) -> None:
        """Closes the loop."""
        self._loop.close()

    def wake(self) -> None:
        """Wakes the loop, so that an exception that was thrown into its thread arrives. From any thread."""
        # A thread that sleeps in the loop's `select` runs no bytecode, and only bytecode lets the exception in.
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(_do_nothing)

    def _until_done(self, task: "asyncio.Task[Any]") -> None:
        while not task.done():
            self._run_loop()
            if self._broken is not None:
                error, self._broken = self._broken, None
                raise error
            # The loop has stopped, so these calls find no running loop and may start their own.
            while self._calls:
                future, call = self._calls.popleft()
                result = _call(call)
                # The coroutine may have been cancelled during the call.
                if not future.done():
                    future.set_result(result)

    def _run_loop(self) -> None:
        self._loop.run_forever()

    def _on_error(self, loop: "asyncio.AbstractEventLoop", context: dict[str, Any]) -> None:
        """Stops the loop if an interrupt hit the loop's own code."""
        # asyncio would only log the error and go on, and the interrupt would be lost.
        error = context.get("exception")
        if isinstance(error, Interrupted) and "handle" in context:
            self._broken = error
            loop.stop()
        else:
            loop.default_exception_handler(context)

    def _pause(self, task: "asyncio.Task[Any]") -> None:
        self._loop.stop()

    def __del__(self) -> None:
        # The thread has ended, so nobody else closes its loop.
        if not self._loop.is_running():
            self._loop.close()


class OtherThreadLoop(OwnLoop):
    """For a thread whose event loop is running and waits for us: this loop runs in another thread."""

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """The same as `OwnLoop.run`. Can be called once only."""
        try:
            return super().run(coroutine)
        finally:
            self.close()

    def _run_loop(self) -> None:
        thread = threading.Thread(target=super()._run_loop, name="tarry-aside")
        thread.start()
        thread.join()


class _ThreadLoop(threading.local):
    own: OwnLoop | None = None


_local = _ThreadLoop()
# Weak: a loop ends with its thread, and thread numbers are used again.
_by_thread: "weakref.WeakValueDictionary[int, OwnLoop]" = weakref.WeakValueDictionary()
# Kept alive: `__del__` would close them, and with them what the parent still uses.
_inherited: list[OwnLoop | None] = []
"""The loops of the parent process."""


def thread_loop() -> OwnLoop:
    """The loop of the calling thread."""
    # A thread can run only one loop at a time.
    if asyncio._get_running_loop() is not None:
        return OtherThreadLoop()
    own = _local.own
    if own is None:
        own = _local.own = _by_thread[threading.get_ident()] = OwnLoop()
    return own


def wake(thread: int) -> None:
    """Wakes the loop of a thread, if it has one. Call it after an exception was thrown into the thread."""
    own = _by_thread.get(thread)
    if own is not None:
        own.wake()


def _call(call: Callable[[], Any]) -> _CallResult:
    try:
        return call(), None
    except BaseException as error:
        return None, error


def _reset_after_fork() -> None:
    _inherited.append(_local.own)
    _local.own = None
    _by_thread.clear()


def _do_nothing() -> None: ...


at_fork(after_in_child=_reset_after_fork)
