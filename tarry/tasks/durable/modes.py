"""How a step waits: in an event loop, or by blocking its thread.

Each step is written once, as a coroutine that waits only by the methods of a mode. Those of `Blocking` wait before they
return, so `finish` runs such a coroutine to its end in one go.
"""

import inspect
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar

from tarry.errors import StoreError
from tarry.model.flow.signal import Signal
from tarry.tasks.definition import TaskDefinition
from tarry.tasks.interrupts import CalledBack
from tarry.tasks.lazy_asyncio import asyncio
from tarry.tasks.progress import StepPort
from tarry.tasks.running import Running
from tarry.tasks.shield import Flag, shielded, wait
from tarry.tasks.step_log import StepLog

T = TypeVar("T")

ASK_AGAIN = 1.0
"""Seconds until a store that is away is asked again."""

inside: ContextVar[bool] = ContextVar("tarry_inside_step", default=False)
"""Whether this code is part of a step."""


class Mode(Protocol):
    """The waits of a step."""

    async def call(self, fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Calls the function of the step; returns or raises what it does."""

    def begin(self, log: StepLog) -> AbstractContextManager[object]:
        """`with mode.begin(log):` a step is called and kept there."""

    async def wait_for_others(self, log: StepLog) -> None:
        """Waits until the steps that were begun are over."""

    async def save(self, running: Running, port: StepPort) -> None:
        """Has the log of the job saved. CalledBack if the job is not ours any more."""

    async def signals(self, port: StepPort, job: bytes, name: str, key: str, after: int) -> list[Signal]:
        """Asks the store for signals, until it answers."""

    async def pause(self, seconds: float) -> None:
        """Waits so long."""


class Blocking:
    """For a thread without a running event loop."""

    async def call(self, fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        if is_coroutine_function(fn):
            raise TypeError(f"{fn!r} is an `async def`: a step of a `def` task must be a `def`")
        with Inside():
            return fn(*args, **kwargs)

    def begin(self, log: StepLog) -> AbstractContextManager[object]:
        return nullcontext()

    async def wait_for_others(self, log: StepLog) -> None:
        """There are none: a step blocks its task."""

    async def save(self, running: Running, port: StepPort) -> None:
        saved, answers = Flag(), list[bool]()

        def note(is_ours: bool) -> None:
            answers.append(is_ours)
            saved.set()

        with shielded:
            port.add(running, note)
            wait(saved.wait, None)
        require_ours(answers[0])

    async def signals(self, port: StepPort, job: bytes, name: str, key: str, after: int) -> list[Signal]:
        while True:
            try:
                with shielded:
                    return port.signals(job, name, key, after)
            except StoreError:
                await self.pause(ASK_AGAIN)

    async def pause(self, seconds: float) -> None:
        with shielded:
            wait(Flag().wait, seconds)


class OnLoop:
    """For code that an event loop runs."""

    async def call(self, fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        with Inside():
            if is_coroutine_function(fn):
                return await fn(*args, **kwargs)
            value = await asyncio.to_thread(fn, *args, **kwargs)
            # Such as a lambda that calls an `async def`.
            return await value if inspect.isawaitable(value) else value

    @contextmanager
    def begin(self, log: StepLog) -> Iterator[None]:
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        log.under_way.add(over)
        try:
            yield
        finally:
            log.under_way.discard(over)
            over.set_result(None)

    async def wait_for_others(self, log: StepLog) -> None:
        while log.under_way:
            await asyncio.wait(log.under_way)

    async def save(self, running: Running, port: StepPort) -> None:
        loop = asyncio.get_running_loop()
        saved: asyncio.Future[bool] = loop.create_future()

        def set_result(is_ours: bool) -> None:
            # It may have been cancelled meanwhile.
            if not saved.done():
                saved.set_result(is_ours)

        def note(is_ours: bool) -> None:
            try:
                loop.call_soon_threadsafe(set_result, is_ours)
            except RuntimeError:
                # The loop has ended, and the attempt with it.
                return

        port.add(running, note)
        require_ours(await saved)

    async def signals(self, port: StepPort, job: bytes, name: str, key: str, after: int) -> list[Signal]:
        while True:
            try:
                return await asyncio.to_thread(port.signals, job, name, key, after)
            except StoreError:
                await self.pause(ASK_AGAIN)

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


BLOCKING, ON_LOOP = Blocking(), OnLoop()


def is_on_loop() -> bool:
    """Whether an event loop runs in this thread."""
    return asyncio._get_running_loop() is not None


def finish(coroutine: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine that waits by `BLOCKING` only; returns or raises what it does."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        value: T = end.value
        return value
    coroutine.close()
    raise RuntimeError("a step waited for an event loop, and none runs here")


def is_coroutine_function(fn: Callable[..., Any]) -> bool:
    """Whether it is an `async def`, or a task that is one."""
    return fn.is_async if isinstance(fn, TaskDefinition) else inspect.iscoroutinefunction(fn)


def require_ours(is_ours: bool) -> None:
    """CalledBack if it is not."""
    if not is_ours:
        raise CalledBack("the job was cancelled, or now belongs to another worker: no further step runs")


class Inside:
    """`with Inside():` what runs there, and what it starts, is part of a step."""

    def __enter__(self) -> None:
        self._token = inside.set(True)

    def __exit__(self, *error: object) -> None:
        inside.reset(self._token)
