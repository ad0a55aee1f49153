"""What attempts in one place have in common, and how the outside is shown which job is on."""

import contextlib
import ctypes
import time
import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any

from tarry.model.job import Job
from tarry.model.killing import TIMEOUT
from tarry.model.outcome import Outcome
from tarry.tasks.running import Running
from tarry.worker.gauge import Gauge, NoGauge

KILL_AFTER = 0.5
"""Seconds between the exception in a task, or its cancellation, and the moment it is held to be stuck."""
MOST_RESULT = 2**20

SHORT = 30e-6
"""Seconds. A job that ran for less can hardly have closed the process's descriptors, and to ask costs a tenth of such a
job: the worker's next look outside finds it."""

Ends = Callable[[Job, Outcome], bool]
"""Is the job dead when its attempt ends so?"""


def never_ends(job: Job, outcome: Outcome) -> bool:
    """Where nobody asks."""
    return False


class Terms:
    """What all attempts in one place have in common.

    most_result: bytes of JSON. ends: whether an outcome is the job's last. gauge, cell: where it is shown what is on.
    kill_after: seconds. is_open: False once a job has closed the process's descriptors; then cut_off ends it.
    """

    __slots__ = ("at", "cell", "cut_off", "ends", "gauge", "is_open", "kill_after", "last", "most_result")

    def __init__(
        self,
        most_result: int = MOST_RESULT,
        ends: Ends = never_ends,
        gauge: Gauge | None = None,
        cell: int = 0,
        kill_after: float = KILL_AFTER,
        is_open: Callable[[], bool] = lambda: True,
        cut_off: Callable[[], object] = lambda: None,
    ) -> None:
        self.most_result = most_result
        self.ends = ends
        self.gauge = gauge or NoGauge()
        self.cell = cell
        self.kill_after = kill_after
        self.is_open, self.cut_off = is_open, cut_off
        self.at: Running | None = None
        """Of which attempt a loop runs a step now."""
        self.last: Running | None = None
        """Of which attempt it ran the last step."""

    def show(self, running: Running, kill_at: float, reason: int = TIMEOUT) -> None:
        """Shows that the calling thread is at this job."""
        self.gauge.on(self.cell, running.job.id, running.job.epoch, running.task.label, kill_at, reason)

    def show_last(self) -> None:
        """Shows as on whose step the loop ran last, unless it is in one."""
        if self.at is None and self.last is not None:
            self.show(self.last, 0.0)

    def end_if_cut_off(self, running: Running) -> None:
        """Ends the process if that job, which has just ended, has closed its descriptors."""
        if time.monotonic() - running.started > SHORT and not self.is_open():
            self.show(running, 0.0)
            self.cut_off()

    def kill_at(self, running: Running) -> float:
        """time.monotonic() from which the job counts as stuck; 0.0, never."""
        timeout = running.timeout
        return 0.0 if timeout is None else running.started + timeout + self.kill_after


TermsAt = Callable[[int], Terms]
"""The terms of the attempts that are shown in that cell of the gauge."""


@types.coroutine
def shown(
    coroutine: Coroutine[Any, Any, Any], running: Running, terms: Terms, until: float
) -> Generator[Any, Any, Any]:
    """Runs the coroutine and shows, for each of its steps, that it is its turn: if the process dies in that step,
    this job was on and its thousand sleeping neighbours were not. until: from when it is stuck; 0.0, never."""
    send, on, off, cell = coroutine.send, terms.gauge.on, terms.gauge.off, terms.cell
    throw: Callable[[BaseException], Any] = coroutine.throw
    id, epoch, label = running.job.id, running.job.epoch, running.task.label
    error: BaseException | None = None
    value: Any = None
    running.coroutine = coroutine
    while True:
        terms.at = terms.last = running
        on(cell, id, epoch, label, until)
        try:
            yielded = send(value) if error is None else throw(error)
        except StopIteration as end:
            return end.value
        finally:
            terms.at = None
            off(cell)
        try:
            value, error = (yield yielded), None
        except BaseException as thrown:
            value, error = None, thrown
            if running.given_up:
                # It may clean up once more, and wherever that leads it, this was its last step.
                throw = _closed(coroutine, thrown)


def _closed(coroutine: Coroutine[Any, Any, Any], why: BaseException) -> Callable[[BaseException], Any]:
    """In place of its `throw`: what comes of it is that error."""

    def close(error: BaseException) -> Any:
        with contextlib.suppress(BaseException):
            coroutine.close()
        if getattr(coroutine, "cr_frame", None) is not None:
            # It swallowed that too. Were it ever freed, it would be closed once more, wherever and in whatever thread
            # that happens; outside its loop each of its waits fails at once, and it would swallow that for ever.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(coroutine))
        raise why

    return close
