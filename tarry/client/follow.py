"""A job's way, seen from outside as it goes: `for event in job.follow()`, `async for event in job.follow()`."""

import contextlib
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator

import msgspec
from msgspec import Struct

from tarry.client.waiting import Waiter, Waiting
from tarry.errors import JobNotFound, ResultTimeout
from tarry.model.duration import SECOND
from tarry.model.job import Job, State
from tarry.store import ids
from tarry.tasks import progress, shield
from tarry.tasks.lazily import asyncio
from tarry.tasks.progress import Progress
from tarry.tasks.shield import shielded


class Event(Struct, frozen=True):
    """How a job was at one moment."""

    state: State
    attempt: int
    """The number of the attempt that runs or comes next, or, once finished, of the last; from 1."""
    progress: Progress | None
    """What the task said last, also in an earlier attempt; None if it said nothing yet."""
    at: float
    """Seconds since the epoch: when it came into this state, or, if only its progress is new, when that was seen."""
    message: str
    """What the last attempt failed with, or why the job was cancelled; empty otherwise."""


class Follow:
    """An event for the job as it is, then for every change that is seen, the last one when it has finished.

    It looks when something moved, 20 times a second at most: what is over between two looks is not seen, but for the
    end. ResultTimeout if the job has not finished after `timeout` seconds; JobNotFound once it is forgotten.
    """

    def __init__(self, waiting: Callable[[], Waiting], id: bytes, timeout: float | None) -> None:
        self._waiting = waiting
        self._id = id
        self._timeout = timeout

    def __iter__(self) -> Iterator[Event]:
        rung = threading.Event()
        newest: list[Job | None] = []

        def told(job: Job | None) -> None:
            newest[:] = [job]
            rung.set()

        end = self._end()
        last: Job | None = None
        with self._watched(Waiter(told, follows=True)):
            while last is None or not last.state.finished:
                with shielded:
                    if not shield.wait(rung.wait, _left(end)):
                        raise self._too_late()
                    # Before it is read: what comes from now on rings again.
                    rung.clear()
                last, before = self._found(newest[0]), last
                yield event(last, before)

    async def __aiter__(self) -> AsyncIterator[Event]:
        loop, rung = asyncio.get_running_loop(), asyncio.Event()
        newest: list[Job | None] = []

        def told(job: Job | None) -> None:
            newest[:] = [job]
            # Closed in the meantime: who followed there is gone.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(rung.set)

        end = self._end()
        last: Job | None = None
        with self._watched(Waiter(told, follows=True)):
            while last is None or not last.state.finished:
                try:
                    await asyncio.wait_for(rung.wait(), _left(end))
                except TimeoutError:
                    raise self._too_late() from None
                rung.clear()
                last, before = self._found(newest[0]), last
                yield event(last, before)

    @contextlib.contextmanager
    def _watched(self, waiter: Waiter) -> Iterator[None]:
        waiting = self._waiting()
        try:
            with shielded:
                waiting.add(self._id, waiter)
            yield
        finally:
            with shielded:
                waiting.remove(self._id, waiter)

    def _end(self) -> float | None:
        return None if self._timeout is None else time.monotonic() + self._timeout

    def _found(self, job: Job | None) -> Job:
        if job is None:
            raise JobNotFound(f"no job {ids.text(self._id)}: it never existed, or its time of keeping is over")
        return job

    def _too_late(self) -> ResultTimeout:
        return ResultTimeout(f"job {ids.text(self._id)} has not finished after {self._timeout:g} s")


def event(job: Job, before: Job | None = None) -> Event:
    """The job as it is; `before`: as it was seen last."""
    only_progress = before is not None and (before.state, before.epoch) == (job.state, job.epoch)
    return Event(
        job.state,
        job.failures if job.state is State.DEAD else job.attempt,
        progress.read(job.progress),
        time.time() if only_progress else job.since / SECOND,
        _message(job),
    )


def _message(job: Job) -> str:
    if job.state is State.DONE or not job.note:
        return ""
    told = msgspec.json.decode(job.note)
    # One that was done and runs anew still has its result there.
    if not isinstance(told, dict) or not told.keys() >= {"type", "message"}:
        return ""
    return str(told["message"]) if job.state is State.CANCELLED else f"{told['type']}: {told['message']}"


def _left(end: float | None) -> float | None:
    return None if end is None else max(0.0, end - time.monotonic())
