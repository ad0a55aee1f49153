"""What attempts in one place have in common, and how a coroutine's steps are shown to the outside."""

import contextlib
import ctypes
import time
import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any

from tarry.model.job import Job
from tarry.model.killing import HOOKS, TIMEOUT
from tarry.model.outcome import Outcome
from tarry.store.rules.base import Store
from tarry.tasks.lazy_asyncio import asyncio
from tarry.tasks.running import Running
from tarry.worker.run.status_reporter import NullReporter, StatusReporter

KILL_AFTER = 0.5
"""Seconds from the exception in a task, or its cancellation, until the task counts as stuck."""
MAX_RESULT = 2**20

# A job that ran for less can hardly have closed the process's descriptors, and the check costs a tenth of such a job:
# the worker's next regular check finds it.
SHORT = 30e-6
"""Seconds."""

IsFinal = Callable[[Job, Outcome], bool]
"""Whether the job is dead if its attempt ends so."""


def never_final(job: Job, outcome: Outcome) -> bool:
    """Used where no hook asks."""
    return False


class AttemptContext:
    """What all attempts in one slot, or on one event loop, have in common.

    max_result: bytes of JSON. is_final: whether an outcome is the job's last. reporter, cell: where the job that runs
    is shown. kill_after: seconds. is_open: False once a job has closed the process's descriptors; then exit_process
    ends it. store: keeps large results outside of itself; None: none does.
    """

    __slots__ = (
        "cell",
        "cleared",
        "current",
        "exit_process",
        "is_final",
        "is_open",
        "kill_after",
        "last",
        "max_result",
        "reporter",
        "store",
    )

    def __init__(
        self,
        max_result: int = MAX_RESULT,
        is_final: IsFinal = never_final,
        reporter: StatusReporter | None = None,
        cell: int = 0,
        kill_after: float = KILL_AFTER,
        is_open: Callable[[], bool] = lambda: True,
        exit_process: Callable[[], object] = lambda: None,
        store: Store | None = None,
    ) -> None:
        self.max_result = max_result
        # Only one that keeps large results elsewhere is asked at each end.
        self.store = store if store is not None and store.most_apart else None
        self.is_final = is_final
        self.reporter = reporter or NullReporter()
        self.cell = cell
        self.kill_after = kill_after
        self.is_open, self.exit_process = is_open, exit_process
        self.current: Running | None = None
        """The attempt whose step the loop runs now."""
        self.last: Running | None = None
        """The attempt whose step the loop ran last; None: it has been found not to have closed descriptors."""
        self.cleared: Running | None = None
        """The one of which that was found last."""

    def keep_large(self, running: Running, outcome: Outcome) -> Outcome:
        """The outcome with a reference in place of each large result of this attempt; may block."""
        if (store := self.store) is None:
            return outcome
        from tarry.worker.run import large_results  # noqa: PLC0415 - most stores keep all results themselves

        if not large_results.has_large(running, outcome, store):
            return outcome
        # The task's own limit is over: without a new one, a slow place would be blamed on its timeout.
        self.show(running, time.monotonic() + large_results.WITHIN, HOOKS)
        return large_results.keep(running, outcome, store)

    async def keep_large_awaited(self, running: Running, outcome: Outcome) -> Outcome:
        """The same, awaited."""
        if (store := self.store) is None:
            return outcome
        from tarry.worker.run import large_results  # noqa: PLC0415 - as above

        if not large_results.has_large(running, outcome, store):
            return outcome
        return await asyncio.to_thread(large_results.keep, running, outcome, store)

    def show(self, running: Running, kill_at: float, reason: int = TIMEOUT) -> None:
        """Shows that the calling thread runs this job."""
        self.reporter.on(self.cell, running.job.id, running.job.epoch, running.task.label, kill_at, reason)

    def show_last(self) -> None:
        """Shows the job whose step the loop ran last as running, unless the loop runs a step now."""
        if self.current is None and self.last is not None:
            self.show(self.last, 0.0)

    def exit_if_cut_off(self, running: Running) -> None:
        """Ends the process if this job, which has just ended, has closed the process's descriptors."""
        if time.monotonic() - running.started > SHORT and not self.is_open():
            # The process can no longer talk to its master, so the board must show which job did it.
            self.show(running, 0.0)
            self.exit_process()

    def kill_at(self, running: Running) -> float:
        """time.monotonic() from which the job counts as stuck; 0.0: never."""
        timeout = running.timeout
        return 0.0 if timeout is None else running.started + timeout + self.kill_after


ContextAt = Callable[[int], AttemptContext]
"""The context of the attempts that are shown in this cell."""


@types.coroutine
def run_shown(
    coroutine: Coroutine[Any, Any, Any], running: Running, context: AttemptContext, kill_at: float
) -> Generator[Any, Any, Any]:
    """Runs the coroutine and shows each of its steps. kill_at: see `AttemptContext.kill_at`."""
    # If the process dies in a step, this job was running, and the thousand others that sleep in the loop were not.
    send, on, off, cell = coroutine.send, context.reporter.on, context.reporter.off, context.cell
    throw: Callable[[BaseException], Any] = coroutine.throw
    id, epoch, label = running.job.id, running.job.epoch, running.task.label
    error: BaseException | None = None
    value: Any = None
    running.coroutine = coroutine
    while True:
        context.current = context.last = running
        on(cell, id, epoch, label, kill_at)
        try:
            yielded = send(value) if error is None else throw(error)
        except StopIteration as end:
            return end.value
        finally:
            context.current = None
            off(cell)
        try:
            value, error = (yield yielded), None
        except BaseException as thrown:
            value, error = None, thrown
            if running.given_up:
                # It may clean up once more. Whatever it does then, this is its last step.
                throw = _close_instead(coroutine, thrown)


def _close_instead(coroutine: Coroutine[Any, Any, Any], why: BaseException) -> Callable[[BaseException], Any]:
    """A replacement for the coroutine's `throw`: it closes the coroutine and raises `why`."""

    def close(error: BaseException) -> Any:
        with contextlib.suppress(BaseException):
            coroutine.close()
        if getattr(coroutine, "cr_frame", None) is not None:
            # It swallowed that, too. If it were freed, Python would close it again, at any time and in any thread.
            # Outside of its loop each of its waits fails at once, so it would swallow errors forever. Never free it.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(coroutine))
        raise why

    return close
