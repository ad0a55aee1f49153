"""What happens around each run of a task of Django's: its context, and the signals."""

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import reset_queries

from tarry.app import App
from tarry.client.enqueue_listener import EnqueueListener, JobEvent
from tarry.django import compat, results
from tarry.errors import JobCancelled
from tarry.model.job import Job
from tarry.model.verdict import Cancel
from tarry.tasks.running import CurrentJob

_running: ContextVar[Any] = ContextVar("tarry_django_result")
"""The TaskResult of the job that runs here."""
_KEY = "tarry.django"


class CancelSignals(EnqueueListener):
    """Calls `send` with the jobs that a person or a program cancelled in this process: no worker runs any code for
    them. It tells `other` all that it hears."""

    def __init__(self, other: EnqueueListener | None, send: Callable[[Sequence[Job]], None]) -> None:
        self._other, self._send = other, send

    def on_accepted(self, jobs: Sequence[Job], changed: bool = False) -> None:
        """As in `EnqueueListener`."""
        if self._other is not None:
            self._other.on_accepted(jobs, changed)

    def on_manual_change(self, jobs: Sequence[Job], what: JobEvent) -> None:
        """As in `EnqueueListener`."""
        if self._other is not None:
            self._other.on_manual_change(jobs, what)
        if what == "cancelled":
            self._send(jobs)


def register(app: App, sender: type, describe: Callable[[Job], Any]) -> None:
    """Adds the signals to an app. sender: the class of the backend. describe: makes the TaskResult of a job."""

    def result_of(job: CurrentJob) -> Any:
        # After a worker's death the keeper calls the hooks, and nothing ran before.
        found = job.scratch.get(_KEY)
        return describe(job.running.job) if found is None else found

    def around(job: CurrentJob, call_next: Any) -> Any:
        result = describe(job.running.job)
        job.scratch[_KEY] = result
        _running.set(result)
        if settings.DEBUG:
            # As at the start of a request: the log of queries would grow with each job.
            reset_queries()
        if job.is_async:
            return _arun(sender, result, job, call_next)
        return _run(sender, result, job, call_next)

    def record_success(job: CurrentJob, value: Any) -> Any:
        result = results.with_value(result_of(job), value)
        return _send_finished(sender, result, job.is_async)

    def record_failure(job: CurrentJob, error: BaseException) -> Any:
        result = results.with_error(result_of(job), error)
        if job.is_async:
            return _asend_failed(sender, result, error)
        try:
            raise error
        except BaseException:
            # Receivers read the error of the `except` block that they are called in.
            return _send_finished(sender, result, is_async=False)

    app.middleware("run")(around)
    app.on_success(record_success)
    app.on_dead(record_failure)


def context_of(task: Any) -> Sequence[Any]:
    """The first argument of a task that takes the context; nothing for another."""
    return (compat.TaskContext(task_result=_running.get()),) if task.takes_context else ()


def cancelled_error(verdict: Cancel) -> JobCancelled:
    """The error of a job whose task said that it is no longer wanted."""
    return JobCancelled(verdict.reason or "its task cancelled it")


def send_cancelled(sender: Any, result: Any) -> None:
    """`task_finished` for a cancelled job, which is FAILED in Django's terms."""
    # Not within an `except` as for an error: nothing went wrong, and receivers log what they find there.
    _send_finished(sender, result, is_async=False)


def _run(sender: Any, result: Any, job: CurrentJob, call_next: Any) -> Any:
    compat.task_started.send_robust(sender, task_result=result)
    try:
        value = call_next(job)
    except Cancel as verdict:
        # It may be returned, too.
        value = verdict
    if isinstance(value, Cancel):
        send_cancelled(sender, results.with_error(result, cancelled_error(value)))
    return value


async def _arun(sender: Any, result: Any, job: CurrentJob, call_next: Any) -> Any:
    await _asend(compat.task_started, sender, result)
    try:
        value = await call_next(job)
    except Cancel as verdict:
        value = verdict
    if isinstance(value, Cancel):
        await sync_to_async(send_cancelled)(sender, results.with_error(result, cancelled_error(value)))
    return value


async def _asend_failed(sender: Any, result: Any, error: BaseException) -> None:
    try:
        raise error
    except BaseException:
        await _asend(compat.task_finished, sender, result)


async def _asend(signal: Any, sender: Any, result: Any) -> None:
    """Receivers use the database, so they run in the thread of this attempt's sync calls."""
    # Not `asend`: its receivers would run in an asyncio task of their own, in which no error is being handled.
    await sync_to_async(signal.send_robust)(sender, task_result=result)


def _send_finished(sender: Any, result: Any, is_async: bool) -> Any:
    if is_async:
        return _asend(compat.task_finished, sender, result)
    compat.task_finished.send_robust(sender, task_result=result)
    return None
