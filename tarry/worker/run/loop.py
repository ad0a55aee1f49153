"""Runs async tasks: one event loop in a thread of its own, with many jobs at once."""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextvars import Context
from typing import Any

from tarry.model.outcome import Outcome, Released
from tarry.tasks.interrupts import Interrupted
from tarry.tasks.lazy_asyncio import asyncio
from tarry.tasks.running import Running, jobs_of
from tarry.worker.run import attempt, loop_exit
from tarry.worker.run.cancel_escalation import CancelEscalation
from tarry.worker.run.context import ContextAt
from tarry.worker.run.loop_watch import LoopWatch
from tarry.worker.run.runner import OutcomeQueue, Runner

CANCEL_WITHIN = 2.0
"""Seconds that asyncio tasks which a job has left behind have to end when they are cancelled."""

CULPRIT_WITHIN = 0.05
"""Seconds in which a sync job that has closed the process's descriptors should end, and be found out."""


class LoopRunner(Runner):
    """`slots` coroutines at once, while others wait. The thread starts with the first job."""

    def __init__(
        self, slots: int, outcomes: OutcomeQueue, context_at: ContextAt, cell: int, uvloop: bool = False
    ) -> None:
        super().__init__(slots, outcomes, context_at)
        self._uvloop = uvloop
        self._context = context_at(cell)
        self._escalation = CancelEscalation(self._context, cell + 1, self._soon)
        self._watch = LoopWatch(self._context, self._soon)
        self._line: deque[Running] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._has_stopped = False

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
                # One by one: the loop's thread takes from the same queue meanwhile, so its length may not be relied on.
                back.append(self._line.popleft())
        except IndexError:
            return back

    def waiting(self) -> int:
        return len(self._line)

    def interrupt(self, running: Running, why: type[Interrupted]) -> None:
        if self._loop is not None:
            # An asyncio task may only be cancelled in the thread of its loop.
            self._soon(_interrupt, running, why)
            self._escalation.expect(running, why, time.monotonic())

    def escalate(self, now: float) -> Sequence[tuple[Running, Outcome]]:
        return list(self._escalation.escalate(now))

    def next_escalation(self) -> float | None:
        return self._escalation.next_step()

    def check_responsive(self, now: float) -> None:
        """Logs which job holds up the loop, if one does. Called by the pump's thread, once a second."""
        self._watch.check(now, None if self._thread is None else self._thread.ident)

    def stop(self) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._stop_loop)
        if self._thread is not None:
            # Limited: a job may block the loop for ever, and the thread is a daemon.
            self._thread.join(timeout=5)

    def exit_cut_off(self) -> None:
        """Ends the process, since a job has closed its descriptors."""
        # A sync job that ends now ends the process itself. Else the cause may be the job that ran the last step here.
        time.sleep(CULPRIT_WITHIN)
        self._context.exit_process()

    def show_last(self) -> None:
        """Shows the job that ran the last step as running, unless a step runs or it was cleared (`clear_last`)."""
        self._context.show_last()

    def last_running(self) -> Running | None:
        """The job that ran the last step; None while a step runs."""
        return None if self._context.current else self._context.last

    def now_running(self) -> Running | None:
        """The job whose step runs now."""
        return self._context.current

    def show_suspect(self, suspect: Running | None, held: Mapping[bytes, Running]) -> None:
        """Shows this job, if it is held, as the one that runs, and no other; the process ends right after."""
        if suspect is not None and any(held.get(one.job.id) is one for one in jobs_of(suspect)):
            self._context.show(suspect, 0.0)
        else:
            self._context.reporter.off(self._context.cell)

    def clear_last(self, last: Running | None) -> None:
        """Called after the descriptors were found open: this job, which ran the last step, is not to blame later."""
        if last is not None and self._context.last is last:
            self._context.cleared, self._context.last = last, None

    def _start(self) -> None:
        self._loop = _new_uvloop() if self._uvloop else asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, args=(self._loop,), name="tarry-loop", daemon=True)
        self._thread.start()

    def _serve(self, loop: "asyncio.AbstractEventLoop") -> None:
        asyncio.set_event_loop(loop)
        self._context.reporter.thread(self._context.cell, threading.get_ident())
        try:
            loop_exit.run_until(lambda: self._has_stopped, loop, lambda: self._context.last or self._context.cleared)
            with contextlib.suppress(*loop_exit.EXITS):
                loop.run_until_complete(_cancel_the_rest())
                loop.run_until_complete(loop.shutdown_asyncgens())
        except OSError:
            # A loop whose descriptors were closed by a job fails with OSError in its next poll.
            if self._context.is_open():
                raise
            self.exit_cut_off()
        finally:
            loop.close()

    def _stop_loop(self) -> None:
        assert self._loop is not None
        # Set in the loop's own thread: where a job has ended the loop just before, this call is not left over.
        self._has_stopped = True
        self._loop.stop()

    def _soon(self, call: Callable[..., object], *args: Any) -> None:
        """Calls it in the loop; does nothing if the loop has ended. Thread-safe."""
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
            # It was interrupted while it waited; `_interrupt` only notes that.
            if running.interrupt is not None:
                if running.task.runner is not None:
                    running.task.runner.note_not_started(running.job)
                self.outcomes.add(running, Released(), len(self._line) <= self.refill_at)
                continue
            running.started = time.monotonic()
            # A job that has just ended may be calling this: the next one must not get what it set.
            running.handle = task = self._loop.create_task(self._attempt(running), context=Context())
            self._tasks.add(task)

    async def _attempt(self, running: Running) -> None:
        task = running.handle
        outcome = await attempt.run_async(running, self._context, _disarm)
        self._context.exit_if_cut_off(running)
        self.outcomes.add(running, outcome, len(self._line) <= self.refill_at)
        # Not in a done callback, which would take one more turn of the loop for each job.
        self._tasks.discard(task)
        if self._line:
            self._fill()


def _new_uvloop() -> "asyncio.AbstractEventLoop":
    import uvloop  # noqa: PLC0415 - an extra

    return uvloop.new_event_loop()


async def _cancel_the_rest() -> None:
    """Cancels the asyncio tasks that jobs have left behind, and waits for them for a limited time."""
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    if rest:
        await asyncio.wait(rest, timeout=CANCEL_WITHIN)


def _disarm(running: Running) -> None:
    """From here on nothing interrupts the job: hooks follow."""
    running.handle = None


def _interrupt(running: Running, why: type[Interrupted]) -> None:
    task = running.handle
    if task is None and not running.started:
        running.interrupt = why  # it still waits, and is not to begin
    elif isinstance(task, asyncio.Task) and running.interrupt is None and not task.done():
        running.interrupt = why
        task.cancel(why.__name__)
