"""Jobs as Django sees them: as a TaskResult."""

from collections.abc import Mapping
from typing import Any

import msgspec
from django.utils import timezone

from tarry.django import compat, errors
from tarry.django.codec import decode_arguments
from tarry.django.moments import moment
from tarry.django.restored import restored_task
from tarry.errors import ArgumentError
from tarry.model.attempts import attempts_of
from tarry.model.job import Job, State
from tarry.store import ids
from tarry.tasks.arguments.codec import Arguments

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
        args=list(args), kwargs=dict(kwargs), backend=alias, errors=errors.errors_of(job, attempts),
        worker_ids=[attempt.owner for attempt in attempts],
    )  # fmt: skip
    if job.state is State.DONE:
        _set(result, _return_value=msgspec.json.decode(job.note))
    return result


def succeeded(result: Any, value: Any) -> Any:
    """The result, now of a job that is done."""
    _set(
        result, status=compat.TaskResultStatus.SUCCESSFUL, finished_at=timezone.now(),
        _return_value=compat.normalize_json(value),
    )  # fmt: skip
    return result


def failed(result: Any, error: BaseException) -> Any:
    """The result, now of a job that is dead."""
    result.errors.append(errors.error_of(error))
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
    try:
        return decode_arguments(job.body)
    except ArgumentError:
        # Enqueued by another program, or a node of a flow.
        return [], {}
