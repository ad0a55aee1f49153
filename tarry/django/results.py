"""Jobs as Django sees them: as a TaskResult.

Errors of attempts as Django's TaskError: the path of the class, and the traceback.

The task of a stored job, also if today's settings would refuse it, or its function is gone.
"""

import builtins
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any

import msgspec
from django.utils import timezone

from tarry.django import compat
from tarry.django.codec import decode_arguments
from tarry.django.django_task import DjangoTask
from tarry.django.moments import moment
from tarry.errors import ArgumentError
from tarry.model.attempts import Attempt, attempts_of
from tarry.model.checks.decoders import decode_json
from tarry.model.checks.unreadable import UNREADABLE, is_apart, is_sealed
from tarry.model.duration import SECOND
from tarry.model.job import Job, State
from tarry.store.rules import ids
from tarry.tasks.arguments.codec import Arguments, plain_result
from tarry.tracebacks import format_app_traceback

_STATUS: Mapping[State, str] = {
    State.RUNNING: "RUNNING",
    State.DONE: "SUCCESSFUL",
    State.DEAD: "FAILED",
    State.CANCELLED: "FAILED",
}
"""All other states are READY, which in Django also means: to be run again."""


def new_result(alias: str, task: Any, id: str, arguments: Arguments) -> Any:
    """The result of a job that has just been enqueued; TypeError if an argument is no JSON."""
    return _make(
        task=task, id=id, status=compat.TaskResultStatus.READY, enqueued_at=_enqueued_at(id), started_at=None,
        finished_at=None, last_attempted_at=None, args=list(arguments[0]), kwargs=dict(arguments[1]), backend=alias,
        errors=[], worker_ids=[],
    )  # fmt: skip


def result_of(alias: str, job: Job, declared: Any | None) -> Any:
    """The result of a stored job. declared: its task as its module has it; None: there is none any more."""
    attempts = attempts_of(job).attempts
    args, kwargs = _arguments(job)
    result = _make(
        task=restored_task(alias, job, declared), id=ids.text(job.id),
        status=compat.TaskResultStatus[_STATUS.get(job.state, "READY")], enqueued_at=moment(job.created),
        started_at=moment(attempts[0].started) if attempts else None,
        finished_at=moment(job.state_since) if job.state.finished else None,
        last_attempted_at=moment(attempts[-1].started) if attempts else None,
        args=list(args), kwargs=dict(kwargs), backend=alias, errors=errors_of(job, attempts),
        worker_ids=[attempt.owner for attempt in attempts],
    )  # fmt: skip
    if job.state is State.DONE:
        _set(result, _return_value=plain_result(job))
    return result


def with_value(result: Any, value: Any) -> Any:
    """The result, now of a job that is done."""
    _set(
        result, status=compat.TaskResultStatus.SUCCESSFUL, finished_at=timezone.now(),
        _return_value=compat.normalize_json(value),
    )  # fmt: skip
    return result


def with_error(result: Any, error: BaseException) -> Any:
    """The result, now of a job that is dead."""
    result.errors.append(error_of(error))
    _set(result, status=compat.TaskResultStatus.FAILED, finished_at=timezone.now())
    return result


def _enqueued_at(id: str) -> Any:
    # The time of a stored job is that of its id: so the result that is read is equal to the one of the enqueue.
    return moment(int.from_bytes(ids.parse(id)[:6], "big") * 1000)


def _make(**values: Any) -> Any:
    return compat.TaskResult(**values)


def _set(result: Any, **values: Any) -> None:
    # As Django's own backends do: the class is frozen for its users.
    for name, value in values.items():
        object.__setattr__(result, name, value)


def _arguments(job: Job) -> Arguments:
    if is_apart(job.body) or is_sealed(job.body):
        # Of whoever did not ask for them, or has no key; or they are gone.
        return [], {}
    try:
        return decode_arguments(job.body)
    except ArgumentError:
        # Enqueued by another program, or a node of a flow.
        return [], {}


_PATHS: Mapping[str, str] = {
    # What tarry itself says of an attempt, by the type in its note.
    "ResultError": "builtins.TypeError",
    "ArgumentError": "tarry.errors.ArgumentError",
    "TimeLimit": "tarry.tasks.interrupts.TimeLimit",
    "Fail": "tarry.model.verdict.Fail",
    "RetryAfter": "tarry.model.verdict.RetryAfter",
    "StepError": "tarry.errors.StepError",
    "UnknownTask": "tarry.errors.UnknownTask",
    "Cancelled": "tarry.errors.JobCancelled",
    "Expired": "tarry.errors.JobCancelled",
}
_OTHER = "tarry.errors.JobFailed"
"""As when a worker died."""


class _Note(msgspec.Struct):
    type: str = ""
    message: str = ""
    traceback: str = ""


def class_path(kind: str) -> str:
    """The path of an exception's class, of the name that a note has for it."""
    if kind in _PATHS:
        return _PATHS[kind]
    if "." in kind:
        return kind
    return f"builtins.{kind}" if hasattr(builtins, kind) else _OTHER


def errors_of(job: Job, attempts: Sequence[Attempt]) -> list[Any]:
    """One for each attempt that failed, the oldest first; and one for a job that ended without an attempt.

    The last error has its whole traceback, those of the attempts just before it the end of theirs, and older ones only
    the type and the message.
    """
    found = [_of_attempt(attempt) for attempt in attempts if attempt.error]
    if not (note := _note(job)).type:
        return found
    last = compat.TaskError(
        exception_class_path=class_path(note.type),
        traceback=note.traceback or ": ".join(filter(None, (note.type, note.message))),
    )
    if found and found[-1].exception_class_path == last.exception_class_path:
        found.pop()
    return [*found, last]


def error_of(error: BaseException) -> Any:
    """The error that a task raised just now."""
    kind = type(error)
    return compat.TaskError(
        exception_class_path=f"{kind.__module__}.{kind.__qualname__}", traceback=format_app_traceback(error)
    )


def _of_attempt(attempt: Attempt) -> Any:
    path = class_path(attempt.error.partition(": ")[0])
    return compat.TaskError(exception_class_path=path, traceback=attempt.traceback or attempt.error)


def _note(job: Job) -> _Note:
    # The note of a job that is done is its result.
    if job.state == "done" or not job.note:
        return _Note()
    try:
        return decode_json(job.note, _Note)
    except UNREADABLE:
        return _Note()


def restored_task(alias: str, job: Job, declared: Any | None) -> Any:
    """The Task of Django's whose job this is, with the job's own queue, priority and time. declared: as its module has
    it; None: there is none any more."""
    values = {
        "func": _stand_in(job.task) if declared is None else declared.func,
        "priority": max(-100, min(100, job.priority)),
        "queue_name": job.queue,
        "backend": alias,
        "key": job.key,
        "run_after": _run_after(job),
        "takes_context": False if declared is None else declared.takes_context,
    }
    return _without_checks(declared, values)


def _without_checks(declared: Any, values: dict[str, Any]) -> Any:
    """A task with these values."""
    kind = DjangoTask if declared is None else type(declared)
    # Its `__init__` would check it by the settings of today, which may have no such queue.
    task = object.__new__(kind)
    for field in fields(kind):
        usual = None if field.default is MISSING else field.default
        value = values[field.name] if field.name in values else getattr(declared, field.name, usual)
        object.__setattr__(task, field.name, value)
    return task


def _run_after(job: Job) -> Any:
    # Later the time of a job is that of its next attempt.
    is_deferred = job.epoch == 0 and job.due - job.created > SECOND
    return moment(job.due) if is_deferred else None


def _stand_in(name: str) -> Callable[..., Any]:
    """A function with this path, in place of one that is gone."""

    def gone(*args: Any, **kwargs: Any) -> Any:
        raise compat.InvalidTask(f"there is no task {name} any more")

    gone.__module__, _, gone.__qualname__ = name.rpartition(".")
    gone.__name__ = gone.__qualname__
    return gone
