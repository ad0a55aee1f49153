"""What happens if a cancelled coroutine does not end: first it is given up, in the end its process is ended."""

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator

from tarry.model.outcome import Outcome, TimedOut, outcome_note
from tarry.store.rules import ids
from tarry.tasks.interrupts import CalledBack, Interrupted, TimeLimit
from tarry.tasks.lazy_asyncio import asyncio
from tarry.tasks.log_facts import about
from tarry.tasks.running import Running
from tarry.worker.run import attempt_report, stacks
from tarry.worker.run.context import AttemptContext

log = logging.getLogger("tarry.worker")

_MAX_CHECKS = 10
"""How often to check a loop that does not react, while no job of ours is seen to run."""


class CancelEscalation:
    """Used by the pump's thread. `expect` is thread-safe.

    context: of the loop's jobs. cell: shows the job for which the process must end; not the loop's own cell.
    soon: calls a function in the loop.
    """

    def __init__(self, context: AttemptContext, cell: int, soon: Callable[..., object]) -> None:
        self._context, self._cell, self._soon = context, cell, soon
        # Not in the loop's own thread, which may be blocked. In order of time: all cases wait for `kill_after`.
        self._line: deque[_Case] = deque()
        self._lock = threading.Lock()

    def expect(self, running: Running, why: type[Interrupted], now: float) -> None:
        """Begins to watch an attempt that is being cancelled."""
        with self._lock:
            known = any(case.running is running for case in self._line)
        if not known:
            self._watch(_Case(running, why), now)

    def next_step(self) -> float | None:
        """time.monotonic() at which to call `escalate`."""
        with self._lock:
            return self._line[0].at if self._line else None

    def escalate(self, now: float) -> Iterator[tuple[Running, Outcome]]:
        """Checks attempts whose time to end is over. Yields those that count as timed out although they run."""
        while (case := self._due(now)) is not None:
            if case.has_ended:
                continue
            # A job that was called back is not ours, so it gets no outcome.
            open = case.why is TimeLimit and not case.settled
            stack = case.stack() if open else ""  # before it takes another step
            reason = self._press(case, now) if case.is_reached else self._wait_for_loop(case, now)
            if reason and open:
                case.settled = True
                yield case.running, TimedOut(outcome_note("TimeLimit", reason, stack))

    def _due(self, now: float) -> "_Case | None":
        with self._lock:
            return self._line.popleft() if self._line and self._line[0].at <= now else None

    def _press(self, case: "_Case", now: float) -> str:
        """The cancellation has reached the attempt, and it goes on. Returns why it counts as ended, or nothing."""
        if case.given_up:
            # The coroutine itself is over. Something that it waits for goes on, or its own clean-up does.
            self._end_process(case, now)
            return ""
        log.warning("%s was cancelled and went on: it is given up", case, extra=about(case.running.job))
        case.give_up(self._soon)
        self._watch(case, now)
        return f"it did not end after its {attempt_report.format_limit(case.running)}, so it was given up"

    def _wait_for_loop(self, case: "_Case", now: float) -> str:
        """The loop is blocked, so the cancellation cannot reach the attempt. Returns as `_press`."""
        holder = self._context.current
        case.checks = 0 if holder else case.checks + 1
        itself = holder is case.running and case.why is CalledBack  # a timeout is shown by its cell already
        if itself or case.checks >= _MAX_CHECKS:
            self._end_process(case, now)
            return ""
        self._watch(case, now)
        if holder is case.running:
            return ""
        what = holder.task.name if holder else "something"
        return f"its {attempt_report.format_limit(case.running)} was over while {what} held up the event loop"

    def _end_process(self, case: "_Case", now: float) -> None:
        job = case.running.job
        log.error("%s does not end; its process is to", case, extra=about(job))
        self._context.reporter.on(self._cell, job.id, job.epoch, case.running.task.label, now, case.running.kill_reason)

    def _watch(self, case: "_Case", now: float) -> None:
        with self._lock:
            case.at = now + self._context.kill_after
            self._line.append(case)


class _Case:
    """One attempt that should end."""

    __slots__ = ("_is_told", "at", "checks", "given_up", "running", "settled", "why")

    def __init__(self, running: Running, why: type[Interrupted]) -> None:
        self.running, self.why = running, why
        self.at, self.checks = 0.0, 0
        self.settled = self.given_up = self._is_told = False

    @property
    def has_ended(self) -> bool:
        """The task's code is over: only hooks and the report may be left."""
        task = self.running.handle
        return not isinstance(task, asyncio.Task) or task.done()

    @property
    def is_reached(self) -> bool:
        """Our last cancellation has reached it."""
        return self._is_told if self.given_up else self.running.interrupt is not None

    def give_up(self, soon: Callable[..., object]) -> None:
        """Gives it one more step to clean up, and no other."""
        self.given_up = self.running.given_up = True
        soon(self._cancel_again)

    def stack(self) -> str:
        """The stack of the coroutine, as text."""
        task = self.running.handle
        return stacks.format_task_stack(task, self.running.coroutine) if isinstance(task, asyncio.Task) else ""

    def _cancel_again(self) -> None:
        self._is_told = True
        if not self.has_ended:
            self.running.handle.cancel()

    def __str__(self) -> str:
        return f"{self.running.job.task} {ids.text(self.running.job.id)}"
