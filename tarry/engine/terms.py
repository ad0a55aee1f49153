"""What attempts in one place have in common, and how the outside is shown which job is on."""

import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any

from tarry.engine.gauge import Gauge, NoGauge
from tarry.engine.running import Running
from tarry.model.job import Job
from tarry.model.outcome import Outcome

STUCK_GRACE = 5.0
"""Seconds between the timeout's exception and the moment the master may hold the job, and its process, to be stuck."""
MOST_RESULT = 2**20

Ends = Callable[[Job, Outcome], bool]
"""Is the job dead when its attempt ends so?"""


def never_ends(job: Job, outcome: Outcome) -> bool:
    """Where nobody asks."""
    return False


class Terms:
    """What all attempts in one place have in common.

    most_result: bytes of JSON. ends: whether an outcome is the job's last. gauge, cell: where it is shown what is on.
    """

    __slots__ = ("cell", "ends", "gauge", "most_result")

    def __init__(
        self,
        most_result: int = MOST_RESULT,
        ends: Ends = never_ends,
        gauge: Gauge | None = None,
        cell: int = 0,
    ) -> None:
        self.most_result = most_result
        self.ends = ends
        self.gauge = gauge or NoGauge()
        self.cell = cell

    def show(self, running: Running, kill_at: float) -> None:
        """Shows that the calling thread is at this job."""
        self.gauge.on(self.cell, running.job.id, running.job.epoch, running.task.label, kill_at)


def kill_at(running: Running) -> float:
    """time.monotonic() from which the job counts as stuck; 0.0, never."""
    timeout = running.task.timeout
    return 0.0 if timeout is None else running.started + timeout + STUCK_GRACE


@types.coroutine
def shown(
    coroutine: Coroutine[Any, Any, Any], running: Running, terms: Terms, until: float
) -> Generator[Any, Any, Any]:
    """Runs the coroutine and shows, for each of its steps, that it is its turn: if the process dies in that step,
    this job was on and its thousand sleeping neighbours were not. until: from when it is stuck; 0.0, never."""
    send, throw, on, off, cell = coroutine.send, coroutine.throw, terms.gauge.on, terms.gauge.off, terms.cell
    id, epoch, label = running.job.id, running.job.epoch, running.task.label
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
