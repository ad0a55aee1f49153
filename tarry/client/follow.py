"""The changes of a job, as they happen: `for event in job.follow()`, `async for event in job.follow()`."""

import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator

import msgspec
from msgspec import Struct

from tarry.client.waiting import Waiter, Waiting
from tarry.errors import JobNotFound, ResultTimeout
from tarry.model.duration import SECOND
from tarry.model.job import Job, State
from tarry.store.rules import ids
from tarry.tasks import progress, shield
from tarry.tasks.lazy_asyncio import asyncio
from tarry.tasks.progress import Progress
from tarry.tasks.shield import shielded


class Event(Struct, frozen=True):
    """The state of a job at one moment."""

    state: State
    attempt: int
    """The number of the attempt that runs or comes next; of a finished job, of its last attempt. From 1."""
    progress: Progress | None
    """The last progress that the task reported, also in an earlier attempt; None: none yet."""
    at: float
    """Seconds since the epoch: when the job came into this state; if only its progress is new, when that was read."""
    message: str
    """The error of the last attempt, or why the job was cancelled; else empty."""


class Follow:
    """Iterates over the events of a job: one for the job as it is, then one for each change, until it has finished.

    The job is read 20 times a second at most, so changes in between may be missed, but never the end. ResultTimeout if
    the job has not finished after `timeout` seconds; JobNotFound once it is deleted.
    """

    def __init__(self, waiting: Callable[[], Waiting], id: bytes, timeout: float | None) -> None:
        self._waiting = waiting
        self._id = id
        self._timeout = timeout

    def __iter__(self) -> Iterator[Event]:
        changed = shield.Flag()
        newest: list[Job | None] = []

        def notify(job: Job | None) -> None:
            # Only the newest: a slow caller skips changes instead of reading old ones.
            newest[:] = [job]
            changed.set()

        end = self._end()
        last: Job | None = None
        with self._add_waiter(Waiter(notify, follows=True)):
            while last is None or not last.state.finished:
                with shielded:
                    if not shield.wait(changed.wait, _left(end)):
                        raise self._timeout_error()
                # Outside the block: the caller's code runs at the yield, and must stay interruptible.
                last, before = self._check_found(newest[0]), last
                yield make_event(last, before)

    async def __aiter__(self) -> AsyncIterator[Event]:
        loop, changed = asyncio.get_running_loop(), asyncio.Event()
        newest: list[Job | None] = []

        def notify(job: Job | None) -> None:
            newest[:] = [job]
            # RuntimeError: the loop was closed in the meantime, and nobody follows there any more.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(changed.set)

        end = self._end()
        last: Job | None = None
        with self._add_waiter(Waiter(notify, follows=True)):
            while last is None or not last.state.finished:
                try:
                    await asyncio.wait_for(changed.wait(), _left(end))
                except TimeoutError:
                    raise self._timeout_error() from None
                changed.clear()
                last, before = self._check_found(newest[0]), last
                yield make_event(last, before)

    @contextlib.contextmanager
    def _add_waiter(self, waiter: Waiter) -> Iterator[None]:
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

    def _check_found(self, job: Job | None) -> Job:
        if job is None:
            raise JobNotFound(f"no job {ids.text(self._id)}: it never existed, or its time of keeping is over")
        return job

    def _timeout_error(self) -> ResultTimeout:
        return ResultTimeout(f"job {ids.text(self._id)} has not finished after {self._timeout:g} s")


def make_event(job: Job, before: Job | None = None) -> Event:
    """The event for the job as it is now. before: the job at the event before this one."""
    # The epoch too: a job may have left a state and come back to it between two reads.
    is_same_state = before is not None and (before.state, before.epoch) == (job.state, job.epoch)
    return Event(
        job.state,
        job.failures if job.state is State.DEAD else job.attempt,
        progress.decode_progress(job.progress),
        # The store has no time for progress, so the time of the read stands for it.
        time.time() if is_same_state else job.state_since / SECOND,
        _message(job),
    )


def _message(job: Job) -> str:
    if job.state is State.DONE or not job.note:
        return ""
    note = msgspec.json.decode(job.note)
    # A job that was done and runs again still has its result as its note.
    if not isinstance(note, dict) or not note.keys() >= {"type", "message"}:
        return ""
    return str(note["message"]) if job.state is State.CANCELLED else f"{note['type']}: {note['message']}"


def _left(end: float | None) -> float | None:
    return None if end is None else max(0.0, end - time.monotonic())
