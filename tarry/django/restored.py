"""The task of a stored job, also if today's settings would refuse it, or its function is gone."""

from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Any

from tarry.django import compat
from tarry.django.django_task import DjangoTask
from tarry.django.moments import moment
from tarry.model.duration import SECOND
from tarry.model.job import Job


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
