"""A job while it runs here: what the pump holds, what the runner works on, and what the task sees of it."""

import logging
import time
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from tarry.model.job import Job
from tarry.store import ids

if TYPE_CHECKING:
    from tarry.engine.task import Task


class Interrupted(BaseException):
    """Raised inside a running task by tarry. Not an `Exception`, so that a task's `except Exception` does not swallow
    it; catch it to clean up, then let it go on."""


class TimeLimit(Interrupted):
    """The attempt has run for longer than the task's timeout."""


class CalledBack(Interrupted):
    """The job was cancelled, or is another worker's by now."""


class Running:
    """One attempt."""

    __slots__ = ("handle", "interrupt", "job", "started", "stopping", "task")

    def __init__(self, job: Job, task: "Task[Any, Any]") -> None:
        self.job = job
        self.task = task
        self.started = 0.0
        """time.monotonic() when it began; 0.0 while it waits for a slot."""
        self.interrupt: type[Interrupted] | None = None
        """Why we broke in on it, if we did."""
        self.handle: Any = None
        """What the runner needs to break in: its slot, or its asyncio task."""
        self.stopping = False


class CurrentJob:
    """What a task may know of the job that it runs: `current_job()`."""

    __slots__ = ("_running",)

    def __init__(self, running: Running) -> None:
        self._running = running

    @property
    def id(self) -> str:
        """The job's id: the same in every attempt."""
        return ids.text(self._running.job.id)

    @property
    def task(self) -> str:
        """The task's name."""
        return self._running.job.task

    @property
    def queue(self) -> str:
        """The queue it came from."""
        return self._running.job.queue

    @property
    def key(self) -> str | None:
        """The unique key it was enqueued with."""
        return self._running.job.key

    @property
    def attempt(self) -> int:
        """1 for the first attempt; an attempt that we interrupted does not count."""
        return self._running.job.attempt

    @property
    def deadline(self) -> float | None:
        """time.monotonic() at which the timeout will break in; None without a timeout."""
        timeout = self._running.task.timeout
        return None if timeout is None else self._running.started + timeout

    @property
    def stopping(self) -> bool:
        """True once the worker wants to stop or the job was cancelled: a long task may finish early, or Snooze."""
        return self._running.stopping or self._running.interrupt is not None

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose lines carry the job's id and task."""
        extra = {"job": self.id, "task": self.task}
        return logging.LoggerAdapter(logging.getLogger("tarry.task"), extra)

    def __repr__(self) -> str:
        return f"<CurrentJob {self.task} {self.id} attempt {self.attempt}>"


current: ContextVar[Running | None] = ContextVar("tarry_current_job", default=None)


def current_job() -> CurrentJob:
    """The job that this code runs for; RuntimeError outside one."""
    running = current.get()
    if running is None:
        raise RuntimeError("current_job() is for code that a worker runs; no job runs here")
    return CurrentJob(running)


def elapsed(running: Running) -> float:
    """Seconds since the attempt began."""
    return time.monotonic() - running.started
