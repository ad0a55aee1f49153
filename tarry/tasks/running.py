"""A job while it runs here: what the pump holds, what the runner works on, and what the task sees of it."""

import logging
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tarry.model.job import Job
from tarry.model.killing import TIMEOUT
from tarry.model.outcome import Outcome
from tarry.model.overrides import timeout_of
from tarry.store import ids
from tarry.tasks import headers, progress
from tarry.tasks.codec import Arguments
from tarry.tasks.interrupts import Interrupted
from tarry.tasks.output import Tail
from tarry.tasks.progress import Marks, Progress

if TYPE_CHECKING:
    from tarry.tasks.definition import TaskDefinition


class Running:
    """One attempt."""

    __slots__ = (
        "coroutine",
        "given_up",
        "handle",
        "interrupt",
        "job",
        "kill_reason",
        "marks",
        "said",
        "started",
        "stopping",
        "tail",
        "task",
        "timeout",
    )

    def __init__(self, job: Job, task: "TaskDefinition[Any, Any]", marks: Marks | None = None) -> None:
        self.job = job
        self.task = task
        self.timeout = timeout_of(job.headers, task.timeout) if job.headers else task.timeout
        """Seconds that it may take; None, as long as it takes."""
        self.marks = marks
        """Where its progress and its output go; None, nowhere."""
        self.said: Progress | None = None
        """How far it said last that it is."""
        self.tail: Tail | None = None
        """The last of what it printed and logged."""
        self.started = 0.0
        """time.monotonic() when it began; 0.0 while it waits for a slot."""
        self.interrupt: type[Interrupted] | None = None
        """Why we broke in on it, if we did."""
        self.kill_reason = TIMEOUT
        """Why its process is killed, should it not end."""
        self.handle: Any = None
        """What the runner needs to break in: its slot, or its asyncio task."""
        self.coroutine: Any = None
        """What a loop runs of it now."""
        self.given_up = False
        """It was cancelled and went on: nothing more of its coroutine is to run."""
        self.stopping = False

    @property
    def printed(self) -> str:
        """The last of what it printed and logged."""
        return "" if self.tail is None else self.tail.now(0).text


class Batch(Running):
    """One attempt at many jobs of a batch task, in one call."""

    __slots__ = ("ends", "members", "on")

    def __init__(self, members: list[Running]) -> None:
        super().__init__(members[0].job, members[0].task, members[0].marks)
        self.timeout = self.task.timeout
        self.members = members
        self.on: list[Running] = []
        """Those whose arguments the call was given, in its order."""
        self.ends: dict[Running, Outcome] = {}
        """What became of single members; of all others becomes what became of the call."""
        for member in members:
            member.handle = self


class CurrentJob:
    """What a task may know of the job that it runs: `current_job()`."""

    __slots__ = ("_call", "_headers", "_running", "_scratch")

    def __init__(self, running: Running) -> None:
        self._running = running
        self._call: Arguments | None = None
        self._headers: Mapping[str, str] | None = None
        self._scratch: dict[str, Any] | None = None

    @property
    def running(self) -> Running:
        """The attempt, for tarry's own use."""
        return self._running

    def load(self) -> Arguments:
        """Its arguments, read once; ArgumentError if they do not fit the task."""
        if self._call is None:
            self._call = self._running.task.codec.decode(self._running.job.body)
        return self._call

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
    def args(self) -> Sequence[Any]:
        """The positional arguments; ArgumentError if the job's do not fit the task."""
        return self.load()[0]

    @property
    def kwargs(self) -> Mapping[str, Any]:
        """The arguments given by name."""
        return self.load()[1]

    @property
    def headers(self) -> Mapping[str, str]:
        """What travelled beside the arguments: what middleware added at the enqueue, and carried variables."""
        if self._headers is None:
            self._headers = MappingProxyType(headers.decoded(self._running.job.headers))
        return self._headers

    @property
    def is_async(self) -> bool:
        """The task is an `async def`: in a middleware, `call_next(job)` is to be awaited."""
        return self._running.task.is_async

    @property
    def scratch(self) -> dict[str, Any]:
        """Room for what the middleware and the hooks of one attempt have to tell each other."""
        if self._scratch is None:
            self._scratch = {}
        return self._scratch

    @property
    def deadline(self) -> float | None:
        """time.monotonic() at which the timeout will break in; None without a timeout."""
        timeout = self._running.timeout
        return None if timeout is None else self._running.started + timeout

    @property
    def stopping(self) -> bool:
        """True once the worker wants to stop or the job was cancelled: a long task may finish early, or Snooze."""
        return self._running.stopping or self._running.interrupt is not None

    def progress(self, fraction: float, message: str = "") -> None:
        """How far it is, from 0 to 1, and a few words on it, of which 200 characters are kept; ValueError if the
        fraction is none.

        Costs about a microsecond and waits for nothing: the newest is written every 100 ms, and the last one for sure
        before the job's end. Progress that the store cannot take is lost, and nothing else.
        """
        said = progress.checked(fraction, message)
        if self._running.marks is not None:
            self._running.marks.say(self._running, said)

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose lines carry the job's id and task."""
        extra = {"job": self.id, "task": self.task}
        return logging.LoggerAdapter(logging.getLogger("tarry.task"), extra)

    def __repr__(self) -> str:
        return f"<CurrentJob {self.task} {self.id} attempt {self.attempt}>"


current: ContextVar[Running | None] = ContextVar("tarry_current_job", default=None)


def current_job() -> CurrentJob:
    """The job that this code runs for; RuntimeError outside one, and in a batch, which is of many."""
    running = _current("current_job()")
    if isinstance(running, Batch):
        raise RuntimeError(f"{running.task.name} is called for many jobs at once: current_jobs() has them, in order")
    return CurrentJob(running)


def current_jobs() -> list[CurrentJob]:
    """The jobs that this code runs for: in a batch, those whose arguments it got, in that order; else the one.
    RuntimeError outside."""
    running = _current("current_jobs()")
    return [CurrentJob(member) for member in (running.on if isinstance(running, Batch) else [running])]


def _current(asked: str) -> Running:
    running = current.get()
    if running is None:
        raise RuntimeError(f"{asked} is for code that a worker runs; no job runs here")
    return running
