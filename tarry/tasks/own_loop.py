"""Coroutines where no event loop runs: each thread has one of its own for them, made when it is first needed.

Between two steps of a coroutine the thread can leave the loop, to call what is not async: that code finds no loop
running, and may start one itself.
"""

import contextlib
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from functools import partial
from typing import Any

from tarry.tasks.interrupts import Interrupted
from tarry.tasks.lazily import asyncio

_Answer = tuple[Any, BaseException | None]


class OwnLoop:
    """An event loop that runs only while `run` does."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(self._on_error)
        self._broken: BaseException | None = None
        self._wanted: deque[tuple[asyncio.Future[_Answer], Callable[[], Any]]] = deque()

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """What the coroutine returns, or raises."""
        task = self._loop.create_task(coroutine)
        task.add_done_callback(self._pause)
        try:
            self._until_done(task)
        except BaseException:
            # Something broke in on the loop itself: the coroutine is to clean up first.
            task.cancel()
            self._until_done(task)
            _ = task.cancelled() or task.exception()
            raise
        return task.result()

    async def outside(self, call: Callable[[], Any]) -> Any:
        """For a coroutine that `run` runs: makes the call where `run` was called, in this context, with the loop at
        rest."""
        future: asyncio.Future[_Answer] = self._loop.create_future()
        self._wanted.append((future, partial(copy_context().run, call)))
        self._loop.stop()
        value, error = await future
        if error is not None:
            raise error
        return value

    def close(self) -> None:
        """Gives back what the loop holds of the system's."""
        self._loop.close()

    def wake(self) -> None:
        """Ends its sleep, so that what was thrown into its thread arrives. From any thread."""
        with contextlib.suppress(RuntimeError):  # it is closed
            self._loop.call_soon_threadsafe(_nothing)

    def _until_done(self, task: "asyncio.Task[Any]") -> None:
        while not task.done():
            self._turn()
            if self._broken is not None:
                error, self._broken = self._broken, None
                raise error
            while self._wanted:
                future, call = self._wanted.popleft()
                answer = _answer(call)
                if not future.done():
                    future.set_result(answer)

    def _turn(self) -> None:
        self._loop.run_forever()

    def _on_error(self, loop: "asyncio.AbstractEventLoop", context: dict[str, Any]) -> None:
        """What was thrown into this thread may have hit the loop's own code, which goes on after any error."""
        error = context.get("exception")
        if isinstance(error, Interrupted) and "handle" in context:
            self._broken = error
            loop.stop()
        else:
            loop.default_exception_handler(context)

    def _pause(self, task: "asyncio.Task[Any]") -> None:
        self._loop.stop()

    def __del__(self) -> None:
        # The thread that it was for has ended.
        if not self._loop.is_running():
            self._loop.close()


class Elsewhere(OwnLoop):
    """For a thread whose own event loop is running, and waits for us: each turn is made in another thread."""

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """What the coroutine returns, or raises. Once only."""
        try:
            return super().run(coroutine)
        finally:
            self.close()

    def _turn(self) -> None:
        thread = threading.Thread(target=super()._turn, name="tarry-aside")
        thread.start()
        thread.join()


class _Here(threading.local):
    own: OwnLoop | None = None


_here = _Here()
_by_thread: "weakref.WeakValueDictionary[int, OwnLoop]" = weakref.WeakValueDictionary()
_inherited: list[OwnLoop | None] = []
"""Of the parent process, whose loop it still is: to close it here would close it there too."""


def here() -> OwnLoop:
    """The calling thread's."""
    if asyncio._get_running_loop() is not None:
        return Elsewhere()
    own = _here.own
    if own is None:
        own = _here.own = _by_thread[threading.get_ident()] = OwnLoop()
    return own


def wake(thread: int) -> None:
    """Something was thrown into this thread, which may be asleep in its loop."""
    own = _by_thread.get(thread)
    if own is not None:
        own.wake()


def _answer(call: Callable[[], Any]) -> _Answer:
    try:
        return call(), None
    except BaseException as error:
        return None, error


def _forget() -> None:
    _inherited.append(_here.own)
    _here.own = None
    _by_thread.clear()


def _nothing() -> None: ...


os.register_at_fork(after_in_child=_forget)
