"""A job while it runs in this process, for the pump, the runner, and the task itself."""

import itertools
import logging
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextvars import ContextVar
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from tarry.errors import ArgumentError
from tarry.model.checks.unreadable import UNREADABLE
from tarry.model.duration import SECOND
from tarry.model.flow import wiring
from tarry.model.job import Job
from tarry.model.killing import TIMEOUT
from tarry.model.limit import checked_spending
from tarry.model.outcome import Outcome
from tarry.model.overrides import cost_of, timeout_of
from tarry.model.schedules.schedule import tick_of
from tarry.store.rules import ids
from tarry.tasks import progress
from tarry.tasks.arguments import headers
from tarry.tasks.arguments.codec import Arguments
from tarry.tasks.interrupts import Interrupted
from tarry.tasks.lazy_asyncio import asyncio
from tarry.tasks.output import Tail
from tarry.tasks.progress import Progress, ProgressBuffer
from tarry.tasks.step_log import StepLog

if TYPE_CHECKING:
    from tarry.tasks.definition import TaskDefinition


PLAIN = b"[{"
"""What arguments begin with that are in the job itself, and as most write them."""


class Inputs(Protocol):
    """What a job needs of its worker whose arguments are not in the job itself."""

    def arguments(self, job: Job) -> bytes:
        """The arguments as JSON, with the results that a node takes; ArgumentError. May block."""

    def pages(self, job: Job) -> Iterator[list[Any]]:
        """The results of the nodes that a node comes after, in order, many at a time. Each page may block; StoreError,
        and ArgumentError if one is gone."""


class Running:
    """One attempt at a job."""

    __slots__ = (
        "_arguments",
        "coroutine",
        "exit_error",
        "given_up",
        "handle",
        "held_loop",
        "inputs",
        "interrupt",
        "job",
        "kill_reason",
        "progress",
        "progress_buffer",
        "spent",
        "started",
        "status",
        "step_log",
        "stopping",
        "tail",
        "task",
        "timeout",
    )

    def __init__(
        self, job: Job, task: "TaskDefinition[Any, Any]", progress_buffer: ProgressBuffer | None = None
    ) -> None:
        self.job = job
        self.task = task
        self.timeout = timeout_of(job.headers, task.timeout) if job.headers else task.timeout
        """Seconds that the attempt may take; None: no limit."""
        self.progress_buffer = progress_buffer
        """Takes its progress and output; None: they are not kept."""
        self.progress: Progress | None = None
        """The progress that it reported last; None: none yet."""
        self.tail: Tail | None = None
        """The end of what it printed and logged."""
        self.spent: int | None = None
        """How many starts its rates are to count; None: as many as they counted when it started."""
        self.started = 0.0
        """time.monotonic() at its start; 0.0 while it waits for a slot."""
        self.interrupt: type[Interrupted] | None = None
        """The exception with which we interrupted it; None: we did not."""
        self.kill_reason = TIMEOUT
        """Why its process will be killed if the attempt does not end."""
        self.handle: Any = None
        """What the runner needs to interrupt it: its slot, or its asyncio task."""
        self.coroutine: Any = None
        """The coroutine that a loop runs for it now."""
        self.exit_error: BaseException | None = None
        """What it raised beside its coroutine, in a callback or an asyncio task of its own, so that its loop ended."""
        self.given_up = False
        """It went on after it was cancelled: its coroutine must not run any further."""
        self.held_loop = False
        """It was logged that it held up its event loop."""
        self.stopping = False
        self.status = 0
        """The HTTP status that answered it; 0: none."""
        self.inputs: Inputs | None = None
        """Finds arguments that are not in the job itself; None: they are, or nobody looks."""
        self._arguments: bytes | ArgumentError | None = None
        self.step_log: StepLog | None = None
        """Its durable steps; None: it has come to none."""

    @property
    def arguments(self) -> bytes:
        """The arguments as JSON. ArgumentError if they are not in the job itself, and cannot be had."""
        # A plain job has no envelope around them, and most have them in the store.
        if self.job.body[:1] in PLAIN:
            return self.job.body
        self.fetch_arguments()
        if isinstance(self._arguments, ArgumentError):
            raise self._arguments
        assert self._arguments is not None
        return self._arguments

    def fetch_arguments(self) -> None:
        """Reads arguments that are not in the job itself, once: of a node of a flow, and large ones. May block."""
        if self._arguments is not None:
            return
        try:
            # Without a store, as for people: `null` stands for what comes from others.
            self._arguments = (
                wiring.arguments(self.job.body) if self.inputs is None else self.inputs.arguments(self.job)
            )
        except ArgumentError as error:
            self._arguments = error
        except (*UNREADABLE, LookupError, TypeError) as error:
            self._arguments = ArgumentError(f"{self.job.task}: its body cannot be read: {type(error).__name__}")

    @property
    def rate_correction(self) -> int:
        """How many starts more, below 0: fewer, its rates are to count than they did when it started."""
        return 0 if self.spent is None else self.spent - cost_of(self.job.headers)

    @property
    def steps(self) -> StepLog | None:
        """Its durable steps, for its progress."""
        return self.step_log

    @property
    def output_text(self) -> str:
        """The end of what it printed and logged."""
        return "" if self.tail is None else self.tail.snapshot(0).text


class Batch(Running):
    """One attempt at many jobs of a batch task, in one call of the function."""

    __slots__ = ("called", "members", "outcomes")

    def __init__(self, members: list[Running]) -> None:
        super().__init__(members[0].job, members[0].task, members[0].progress_buffer)
        # One call has one timeout: that of the task, whatever the first job's headers say.
        self.timeout = self.task.timeout
        self.members = members
        self.called: list[Running] = []
        """The jobs whose arguments the function was called with, in this order."""
        self.outcomes: dict[Running, Outcome] = {}
        """The outcomes of single jobs. All other jobs get the outcome of the call."""
        # An interrupt of one job must reach the call that runs them all.
        for member in members:
            member.handle = self


class CurrentJob:
    """The job that a task runs, as the task sees it: `current_job()`."""

    __slots__ = ("_call", "_headers", "_running", "_scratch")

    def __init__(self, running: Running) -> None:
        self._running = running
        self._call: Arguments | None = None
        self._headers: Mapping[str, str] | None = None
        self._scratch: dict[str, Any] | None = None

    @property
    def running(self) -> Running:
        """The attempt; for tarry's own use."""
        return self._running

    def load(self) -> Arguments:
        """The arguments, decoded once; ArgumentError if they do not fit the task."""
        if self._call is None:
            self._call = self._running.task.codec.decode(self._running.arguments)
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
    def tick(self) -> datetime | None:
        """The time of its schedule that it was made for, in UTC, however late it runs; None: no schedule made it."""
        tick = tick_of(self._running.job.key)
        return None if tick is None else datetime.fromtimestamp(tick / SECOND, UTC)

    @property
    def attempt(self) -> int:
        """1 for the first attempt. An attempt that was interrupted because a worker stops does not count."""
        return self._running.job.attempt

    @property
    def args(self) -> Sequence[Any]:
        """The positional arguments; ArgumentError if the job's do not fit the task."""
        return self.load()[0]

    @property
    def kwargs(self) -> Mapping[str, Any]:
        """The named arguments; ArgumentError as `args`."""
        return self.load()[1]

    @property
    def headers(self) -> Mapping[str, str]:
        """The job's headers: what middleware added at the enqueue, and carried variables."""
        if self._headers is None:
            # Read-only: a change would be lost, since the store keeps the job's own headers.
            self._headers = MappingProxyType(headers.decode_headers(self._running.job.headers))
        return self._headers

    @property
    def labels(self) -> Mapping[str, str]:
        """The job's labels by name: its own, and those that it got from the job that enqueued it."""
        return MappingProxyType(self._running.job.labels)

    @property
    def is_async(self) -> bool:
        """Whether the task is an `async def`: then middleware must await `call_next(job)`."""
        return self._running.task.is_async

    @property
    def scratch(self) -> dict[str, Any]:
        """A dict in which middleware and hooks can pass things to each other during one attempt."""
        if self._scratch is None:
            self._scratch = {}
        return self._scratch

    def results(self) -> Iterator[Any]:
        """Iterates over the results of the nodes that this job of a flow comes after: those of `after=`, in that order.
        They are read by pages, so there may be any number of them.

        A group or a map gives all of its results, one by one; so does a node that has fanned out. None: the node did
        not end well, and the flow went on. Reading blocks: use `aresults` in an `async def`. RuntimeError if the job is
        in no flow; StoreError; ArgumentError if one was deleted.
        """
        return itertools.chain.from_iterable(self._pages())

    async def aresults(self) -> AsyncIterator[Any]:
        """The same, for `async for`."""
        pages = self._pages()
        while (page := await asyncio.to_thread(next, pages, None)) is not None:
            for result in page:
                yield result

    def _pages(self) -> Iterator[list[Any]]:
        inputs, job = self._running.inputs, self._running.job
        if inputs is None:
            raise RuntimeError(f"results() of {job.task}: this job is in no flow")
        return inputs.pages(job)

    @property
    def deadline(self) -> float | None:
        """time.monotonic() at which the timeout interrupts the attempt; None: no timeout."""
        timeout = self._running.timeout
        return None if timeout is None else self._running.started + timeout

    @property
    def stopping(self) -> bool:
        """True once the worker wants to stop or the job was cancelled. A long task may then end early, or Snooze."""
        return self._running.stopping or self._running.interrupt is not None

    def progress(self, fraction: float, message: str = "") -> None:
        """Reports the progress: a fraction from 0 to 1, and a message, of which 200 characters are kept. ValueError.

        Costs about a microsecond and never blocks. The newest progress is written every 100 ms, and the last one
        before the end of the job. If the store cannot take it, only the progress is lost.
        """
        reported = progress.make_progress(fraction, message)
        if self._running.progress_buffer is not None:
            self._running.progress_buffer.report(self._running, reported)

    def spend(self, total: int) -> None:
        """Says how much this attempt has used of its rates, where that is only known now: `spend(1_812)` makes them
        count 1,812 starts, in place of what the job costs, which they counted when it started. ValueError.

        The rates are those of the job's queue, of its task and of its key. Never blocks: they are corrected in the
        transaction that ends the attempt, whatever becomes of the job; not if its worker dies before. Of several calls
        the last one counts. 0: nothing was used. What was used too much holds back later starts, for ten periods of a
        rate at most.
        """
        self._running.spent = checked_spending(total)

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose lines carry the job's id and task."""
        extra = {"job": self.id, "task": self.task}
        return logging.LoggerAdapter(logging.getLogger("tarry.task"), extra)

    def __repr__(self) -> str:
        return f"<CurrentJob {self.task} {self.id} attempt {self.attempt}>"


current: ContextVar[Running | None] = ContextVar("tarry_current_job", default=None)


def current_job() -> CurrentJob:
    """The job for which this code runs. RuntimeError if there is none, and in a batch, which has many."""
    running = require_current("current_job()")
    if isinstance(running, Batch):
        raise RuntimeError(f"{running.task.name} is called for many jobs at once: current_jobs() has them, in order")
    return CurrentJob(running)


def current_jobs() -> list[CurrentJob]:
    """The jobs for which this code runs: in a batch, those in its list, in order; else the one. RuntimeError if there
    is none."""
    running = require_current("current_jobs()")
    return [CurrentJob(member) for member in (running.called if isinstance(running, Batch) else [running])]


def require_current(caller: str) -> Running:
    """The attempt that runs this code; RuntimeError if there is none. caller: for the error."""
    running = current.get()
    if running is None:
        raise RuntimeError(f"{caller} is for code that a worker runs; no job runs here")
    return running


def labels_to_inherit() -> Mapping[str, str] | None:
    """The labels that a job gets which is enqueued here: those of the job that runs here, in a batch those that all of
    its jobs have; None if none runs."""
    running = current.get()
    if running is None or not running.job.headers:
        return None
    labels = running.job.labels
    for each in jobs_of(running):
        labels = dict(labels.items() & each.job.labels.items())
    return labels


def jobs_of(running: Running) -> Sequence[Running]:
    """The jobs of a call."""
    return running.members if isinstance(running, Batch) else [running]
