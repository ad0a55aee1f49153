"""Async tasks: one event loop in a thread of its own, many jobs at once."""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from tarry.model.outcome import Outcome, Released
from tarry.tasks.interrupts import Interrupted
from tarry.tasks.lazily import asyncio
from tarry.tasks.running import Running
from tarry.worker.run import attempt
from tarry.worker.run.base import Outcomes, Runner
from tarry.worker.run.insistence import Insistence
from tarry.worker.run.terms import TermsAt

LAST_WORDS = 2.0
"""Seconds that coroutines left behind have to end when they are cancelled."""

CULPRIT_WITHIN = 0.05
"""Seconds that a sync job has to end and to be found to have closed the process's descriptors."""


class Loop(Runner):
    """`slots` coroutines at once; the others wait in line. The thread starts with the first job."""

    def __init__(self, slots: int, outcomes: Outcomes, terms: TermsAt, cell: int) -> None:
        super().__init__(slots, outcomes, terms)
        self._terms = terms(cell)
        self._insistence = Insistence(self._terms, cell + 1, self._soon)
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
            self._soon(_break_in, running, why)
            self._insistence.expect(running, why, time.monotonic())

    def insist(self, now: float) -> Sequence[tuple[Running, Outcome]]:
        return list(self._insistence.over(now))

    def insists_at(self) -> float | None:
        return self._insistence.next()

    def stop(self) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
        if self._thread is not None:
            self._thread.join(timeout=5)

    def end_cut_off(self) -> None:
        """Ends the process, whose descriptors a job has closed. If it was a sync one that ends just now, it says so
        itself; else it may be the one that had the last step here, which is shown as on."""
        time.sleep(CULPRIT_WITHIN)
        self._terms.show_last()
        self._terms.cut_off()

    def last(self) -> Running | None:
        """Who had the last step; None while somebody is in one."""
        return None if self._terms.at else self._terms.last

    def forget(self, last: Running | None) -> None:
        """All was well after that one had the last step, so it is not to blame for what comes."""
        if self._terms.last is last:
            self._terms.last = None

    def _start(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, args=(self._loop,), name="tarry-loop", daemon=True)
        self._thread.start()

    def _serve(self, loop: "asyncio.AbstractEventLoop") -> None:
        asyncio.set_event_loop(loop)
        self._terms.gauge.thread(self._terms.cell, threading.get_ident())
        try:
            loop.run_forever()
            loop.run_until_complete(_cancel_the_rest())
            loop.run_until_complete(loop.shutdown_asyncgens())
        except OSError:
            if self._terms.is_open():
                raise
            self.end_cut_off()
        finally:
            loop.close()

    def _soon(self, call: Callable[..., object], *args: Any) -> None:
        """Calls it in the loop, from any thread; if that is over, not at all."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(call, *args)

    def _fill(self) -> None:
        assert self._loop is not None
        while len(self._tasks) < self.slots:
            try:
                running = self._line.popleft()
            except IndexError:
                return
            if running.interrupt is not None and not running.task.steered:
                self.outcomes.add(running, Released(), len(self._line) <= self.low)
                continue
            running.started = time.monotonic()
            running.handle = task = self._loop.create_task(self._attempt(running))
            self._tasks.add(task)

    async def _attempt(self, running: Running) -> None:
        task = running.handle
        outcome = await attempt.on_loop(running, self._terms, _leave)
        self._terms.end_if_cut_off(running)
        self.outcomes.add(running, outcome, len(self._line) <= self.low)
        # Not by a done callback: that would be one more turn of the loop for each job.
        self._tasks.discard(task)
        if self._line:
            self._fill()


async def _cancel_the_rest() -> None:
    """What tasks started and left behind; not waited for without end."""
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    if rest:
        await asyncio.wait(rest, timeout=LAST_WORDS)


def _leave(running: Running) -> None:
    """Nothing may break in on the hooks and the report."""
    running.handle = None


def _break_in(running: Running, why: type[Interrupted]) -> None:
    task = running.handle
    if task is None and not running.started:
        running.interrupt = why  # it is in line, and is not to begin
    elif isinstance(task, asyncio.Task) and running.interrupt is None and not task.done():
        running.interrupt = why
        task.cancel(why.__name__)
