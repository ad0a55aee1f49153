"""Async tasks: one event loop in a thread of its own, many jobs at once."""

import asyncio
import threading
import time
import types
from collections import deque
from collections.abc import Coroutine, Generator, Sequence
from typing import Any

from tarry.engine import report
from tarry.engine.gauge import Gauge
from tarry.engine.runner.base import Outcomes, Runner, kill_at
from tarry.engine.running import Interrupted, Running, current
from tarry.errors import ArgumentError
from tarry.model import outcome
from tarry.model.outcome import Outcome, Raised

LAST_WORDS = 2.0
"""Seconds that coroutines left behind have to end when they are cancelled."""


class Loop(Runner):
    """`slots` coroutines at once; the others wait in line. The thread starts with the first job."""

    def __init__(self, slots: int, outcomes: Outcomes, gauge: Gauge, most_result: int, cell: int) -> None:
        super().__init__(slots, outcomes, gauge, most_result)
        self._cell = cell
        self._line: deque[Running] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def put(self, batch: Sequence[Running]) -> None:
        if self._loop is None:
            self._start()
        assert self._loop is not None
        self._line.extend(batch)
        self._loop.call_soon_threadsafe(self._fill)

    def withdraw(self) -> list[Running]:
        back: list[Running] = []
        try:
            while True:
                back.append(self._line.popleft())
        except IndexError:
            return back

    def waiting(self) -> int:
        return len(self._line)

    def interrupt(self, running: Running, why: type[Interrupted]) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(_break_in, running, why)

    def stop(self) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
        if self._thread is not None:
            self._thread.join(timeout=5)

    def _start(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, args=(self._loop,), name="tarry-loop", daemon=True)
        self._thread.start()

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
            loop.run_until_complete(_cancel_the_rest())
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()

    def _fill(self) -> None:
        assert self._loop is not None
        while len(self._tasks) < self.slots:
            try:
                running = self._line.popleft()
            except IndexError:
                return
            running.started = time.monotonic()
            running.handle = task = self._loop.create_task(self._attempt(running))
            self._tasks.add(task)

    async def _attempt(self, running: Running) -> None:
        outcome = await self._outcome(running)
        # Nothing may break in on the report.
        task, running.handle = running.handle, None
        self.outcomes.add(running, outcome, len(self._line) <= self.low)
        # Not by a done callback: that would be one more turn of the loop for each job.
        self._tasks.discard(task)
        if self._line:
            self._fill()

    async def _outcome(self, running: Running) -> Outcome:
        try:
            args, kwargs = running.task.codec.decode(running.job.body)
        except ArgumentError as error:
            return Raised(outcome.note("ArgumentError", report.message(error)), ("ArgumentError",), final=True)
        current.set(running)
        try:
            value = await _watched(running.task.fn(*args, **kwargs), running, self.gauge, self._cell)
        except BaseException as error:
            return report.of_error(running, error)
        return report.of_value(running, value, self.most_result)


async def _cancel_the_rest() -> None:
    """What tasks started and left behind; not waited for without end."""
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    if rest:
        await asyncio.wait(rest, timeout=LAST_WORDS)


@types.coroutine
def _watched(
    coroutine: Coroutine[Any, Any, Any], running: Running, gauge: Gauge, cell: int
) -> Generator[Any, Any, Any]:
    """Runs the coroutine and shows, for each of its steps, that it is its turn: if the process dies in that step,
    this job was on and its thousand sleeping neighbours were not."""
    send, throw, on, off = coroutine.send, coroutine.throw, gauge.on, gauge.off
    id, epoch, label, until = running.job.id, running.job.epoch, running.task.label, kill_at(running)
    error: BaseException | None = None
    value: Any = None
    while True:
        on(cell, id, epoch, label, until)
        try:
            yielded = send(value) if error is None else throw(error)
        except StopIteration as end:
            return end.value
        finally:
            off(cell)
        try:
            value, error = (yield yielded), None
        except BaseException as thrown:
            value, error = None, thrown


def _break_in(running: Running, why: type[Interrupted]) -> None:
    task = running.handle
    if isinstance(task, asyncio.Task) and running.interrupt is None and not task.done():
        running.interrupt = why
        task.cancel(why.__name__)
