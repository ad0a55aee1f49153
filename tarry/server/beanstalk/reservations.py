"""The jobs that one connection has reserved, and when the time to run of each is over."""

from collections.abc import Callable

from tarry.model.job import Job
from tarry.server.beanstalk import job_mapping
from tarry.server.beanstalk.shared import BeanstalkDoor, Held
from tarry.tasks.lazy_asyncio import asyncio

SAFETY_MARGIN = 1.0
"""Seconds at the end of a job's time in which its client is not made to wait for another job."""


class Reservations:
    """Of one connection. on_margin: called when a job comes into its safety margin while the client waits."""

    def __init__(self, door: BeanstalkDoor, on_margin: Callable[[], None]) -> None:
        self._door, self._on_margin = door, on_margin
        self._held: dict[int, Held] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._is_waiting = False

    def watch_margin(self, is_waiting: bool) -> None:
        """Whether the client waits for another job, so that it has to be told when a job comes into its margin."""
        self._is_waiting = is_waiting
        if is_waiting and self._held:
            self._set_timer()

    def __len__(self) -> int:
        return len(self._held)

    @property
    def is_deadline_soon(self) -> bool:
        """Whether a job is in its safety margin."""
        return bool(self._held) and self._soonest() - SAFETY_MARGIN <= self._door.loop.time()

    def add(self, number: int, job: Job) -> None:
        """The connection has reserved a job."""
        ttr = job_mapping.ttr_of(job, self._door.timeout(job))
        self._held[number] = self._door.held[number] = Held(job, ttr, self._door.loop.time() + ttr)
        self._set_timer()

    def pop(self, number: int) -> Held | None:
        """The job with this number, which is not reserved any more; None if this connection does not have it."""
        held = self._held.pop(number, None)
        # After `put_back` the job may have ended all the same, and another connection may have reserved it since.
        if held is not None and self._door.held.get(number) is held:
            del self._door.held[number]
        return held

    def put_back(self, number: int, held: Held) -> None:
        """A job that was popped is reserved still, or may be: nobody knows what became of its end."""
        self._held[number] = held
        self._door.held.setdefault(number, held)
        self._set_timer()

    def touch(self, number: int) -> bool:
        """The job's time begins anew; False if this connection does not have it."""
        held = self._held.get(number)
        if held is None:
            return False
        held.ends = self._door.loop.time() + held.ttr
        return True

    def give_back(self) -> None:
        """The connection is gone: all its jobs are ready again."""
        for number in list(self._held):
            held = self.pop(number)
            if held is not None:
                self._door.give_back(held.job, job_mapping.give_back)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _soonest(self) -> float:
        return min(held.ends for held in self._held.values())

    def _set_timer(self) -> None:
        at = self._soonest() - SAFETY_MARGIN * self._is_waiting
        if self._timer is not None:
            # Most jobs end long before their time: a timer that comes too early costs less than one for each job.
            if self._timer.when() <= at:
                return
            self._timer.cancel()
        self._timer = self._door.loop.call_at(at, self._tick)

    def _tick(self) -> None:
        self._timer = None
        now = self._door.loop.time()
        for number, held in list(self._held.items()):
            if held.ends <= now:
                self._time_out(number)
        if self._is_waiting and self.is_deadline_soon:
            self._on_margin()
        if self._held:
            self._set_timer()

    def _time_out(self, number: int) -> None:
        held = self.pop(number)
        if held is not None:
            self._door.counts["timeouts"] += 1
            self._door.give_back(held.job, job_mapping.time_out)
