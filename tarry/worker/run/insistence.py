"""What follows where a coroutine was cancelled and does not end: first it is given up, and at last its process ends."""

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator

from tarry.model.outcome import Outcome, TimedOut, note
from tarry.store import ids
from tarry.tasks.interrupts import CalledBack, Interrupted, TimeLimit
from tarry.tasks.lazily import asyncio
from tarry.tasks.log_facts import about
from tarry.tasks.running import Running
from tarry.worker.run import report, stacks
from tarry.worker.run.terms import Terms

log = logging.getLogger("tarry.worker")

_PATIENCE = 10
"""Looks at a loop that hears nothing, while none of our jobs can be seen to be what it is busy with."""


class Insistence:
    """Called by the pump's thread, since the loop's own may be held up; `expect` by others too.

    terms: of the loop's jobs. cell: where it is shown for whose sake the process is to end; not the loop's own.
    soon: has a function called in the loop.
    """

    def __init__(self, terms: Terms, cell: int, soon: Callable[..., object]) -> None:
        self._terms, self._cell, self._soon = terms, cell, soon
        self._line: deque[_Case] = deque()
        self._lock = threading.Lock()

    def expect(self, running: Running, why: type[Interrupted], now: float) -> None:
        """It is being cancelled, and is to end soon."""
        with self._lock:
            known = any(case.running is running for case in self._line)
        if not known:
            self._look_again(_Case(running, why), now)

    def next(self) -> float | None:
        """When to call `over`, by time.monotonic()."""
        with self._lock:
            return self._line[0].at if self._line else None

    def over(self, now: float) -> Iterator[tuple[Running, Outcome]]:
        """Looks at those that had their time to end; answers what has timed out for good, whatever is left of it."""
        while (case := self._due(now)) is not None:
            if case.ended:
                continue
            open = case.why is TimeLimit and not case.settled
            stack = case.stack() if open else ""  # before it takes another step
            said = self._pressed(case, now) if case.heard else self._waited_for(case, now)
            if said and open:
                case.settled = True
                yield case.running, TimedOut(note("TimeLimit", said, stack))

    def _due(self, now: float) -> "_Case | None":
        with self._lock:
            return self._line.popleft() if self._line and self._line[0].at <= now else None

    def _pressed(self, case: "_Case", now: float) -> str:
        """It heard us, and went on."""
        if case.given_up:
            # What is left is not the coroutine itself, but what it waits for, or does before it lets go.
            self._end_process(case, now)
            return ""
        log.warning("%s was cancelled and went on: it is given up", case, extra=about(case.running.job))
        case.give_up(self._soon)
        self._look_again(case, now)
        return f"it did not end after its {report.limit(case.running)}, so it was given up"

    def _waited_for(self, case: "_Case", now: float) -> str:
        """The loop is held up, and nobody in it can hear us."""
        holder = self._terms.at
        case.in_vain = 0 if holder else case.in_vain + 1
        itself = holder is case.running and case.why is CalledBack  # past its timeout, its cell says so already
        if itself or case.in_vain >= _PATIENCE:
            self._end_process(case, now)
            return ""
        self._look_again(case, now)
        if holder is case.running:
            return ""
        what = holder.task.name if holder else "something"
        return f"its {report.limit(case.running)} was over while {what} held up the event loop"

    def _end_process(self, case: "_Case", now: float) -> None:
        job = case.running.job
        log.error("%s does not end; its process is to", case, extra=about(job))
        self._terms.gauge.on(self._cell, job.id, job.epoch, case.running.task.label, now, case.running.kill_reason)

    def _look_again(self, case: "_Case", now: float) -> None:
        with self._lock:
            case.at = now + self._terms.kill_after
            self._line.append(case)


class _Case:
    """One attempt that is to end."""

    __slots__ = ("_told", "at", "given_up", "in_vain", "running", "settled", "why")

    def __init__(self, running: Running, why: type[Interrupted]) -> None:
        self.running, self.why = running, why
        self.at, self.in_vain = 0.0, 0
        self.settled = self.given_up = self._told = False

    @property
    def ended(self) -> bool:
        """Its own code is over: only hooks and the report may be left."""
        task = self.running.handle
        return not isinstance(task, asyncio.Task) or task.done()

    @property
    def heard(self) -> bool:
        """What we did last has reached it."""
        return self._told if self.given_up else self.running.interrupt is not None

    def give_up(self, soon: Callable[..., object]) -> None:
        """It gets no step more than the one in which it may clean up."""
        self.given_up = self.running.given_up = True
        soon(self._cancel_again)

    def stack(self) -> str:
        """Where it is."""
        task = self.running.handle
        return stacks.of_task(task, self.running.coroutine) if isinstance(task, asyncio.Task) else ""

    def _cancel_again(self) -> None:
        self._told = True
        if not self.ended:
            self.running.handle.cancel()

    def __str__(self) -> str:
        return f"{self.running.job.task} {ids.text(self.running.job.id)}"
