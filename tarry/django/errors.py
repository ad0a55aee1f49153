"""Errors of attempts as Django's TaskError: the path of the class, and the traceback."""

import builtins
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from tarry.django import compat
from tarry.model.attempts import Attempt
from tarry.model.checks.unreadable import UNREADABLE
from tarry.model.job import Job
from tarry.tracebacks import format_app_traceback

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
        return msgspec.json.decode(job.note, type=_Note)
    except UNREADABLE:
        return _Note()
