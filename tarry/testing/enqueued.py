"""A job as it was enqueued, for a test to look at, and the question whether it is the one that was expected."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import msgspec

from tarry.client.handle import Handle
from tarry.client.task import Task
from tarry.errors import ArgumentError, TarryError
from tarry.model.duration import SECOND, Duration, microseconds, spoken
from tarry.model.job import Job
from tarry.testing.record import Record

_SAME_MOMENT = 1000
"""Microseconds: what a datetime has been through may cost it its last digits."""


class Enqueued:
    """One job as it was before its first attempt; `job` is its handle, and knows what became of it."""

    def __init__(self, record: Record, kept: Job) -> None:
        app = record.app
        self._kept = kept
        self.task = kept.task
        self.queue = kept.queue
        self.priority = kept.priority
        self.key = kept.key
        self.delay = (kept.due - kept.since) / SECOND
        """Seconds from its enqueue until it is due."""
        self.at = moment(kept.due)
        self.args, self.kwargs = _arguments(app.tasks.get(kept.task), kept)
        self.job: Handle[Any] = app.client.get(kept.id)

    def __repr__(self) -> str:
        given = [*map(repr, self.args), *(f"{name}={value!r}" for name, value in self.kwargs.items())]
        return f"{self.task}({', '.join(given)}){_differing(self._kept)}"


class Expected:
    """What a test expects: of what is left out, anything will do."""

    def __init__(self, task: Task[Any, Any] | str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self.name = task if isinstance(task, str) else task.name
        self.checks: dict[str, tuple[Any, Callable[[Job], bool]]] = {}
        self._args, self._kwargs = args, kwargs
        self._calls = [] if (not args and not kwargs) or isinstance(task, str) else _calls(task, args, kwargs)

    def at(self, delay: Duration | None, at: datetime | float | None) -> "Expected":
        """When it is due: so long after its enqueue, or at that time."""
        if delay is not None:
            wanted = microseconds(delay)
            self.checks["delay"] = (delay, lambda job: abs(job.due - job.since - wanted) < _SAME_MOMENT)
        if at is not None:
            due = (at.timestamp() if isinstance(at, datetime) else at) * SECOND
            self.checks["at"] = (at, lambda job: abs(job.due - due) < _SAME_MOMENT)
        return self

    def of(self, **fields: Any) -> "Expected":
        """queue, priority, key."""
        for name, value in fields.items():
            if value is not None:
                self.checks[name] = (value, lambda job, name=name, value=value: getattr(job, name) == value)  # type: ignore[misc]
        return self

    def matches(self, found: Enqueued, task: Task[Any, Any] | None) -> bool:
        """Whether this is such a one."""
        if found.task != self.name or not all(check(found._kept) for _, check in self.checks.values()):
            return False
        if not self._args and not self._kwargs:
            return True
        if task is None:
            return (list(self._args), dict(self._kwargs)) == (list(found.args), dict(found.kwargs))
        calls = self._calls or _calls(task, self._args, self._kwargs)
        return _bound(task, found.args, found.kwargs) in calls

    def __str__(self) -> str:
        given = [*map(repr, self._args), *(f"{name}={value!r}" for name, value in self._kwargs.items())]
        call = f"({', '.join(given)})" if given else ""
        wanted = ", ".join(f"{name}={value!r}" for name, (value, _) in self.checks.items())
        return f"{self.name}{call}" + (f" with {wanted}" if wanted else "")


def moment(time: int) -> datetime:
    """Microseconds since the epoch, as a datetime in UTC."""
    return datetime.fromtimestamp(time / SECOND, UTC)


def _arguments(task: Task[Any, Any] | None, kept: Job) -> tuple[Sequence[Any], Mapping[str, Any]]:
    if task is not None:
        return task.codec.decode(kept.body)
    decoded = msgspec.json.decode(kept.body)
    return (decoded, {}) if isinstance(decoded, list) else ((), decoded)


def _calls(task: Task[Any, Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The call as a test writes it, and as it is after its way through JSON, where it can go that way: a tuple may
    come back as a list. TypeError if the task cannot be called so."""
    calls = [_bound(task, args, kwargs)]
    try:
        calls.append(_bound(task, *task.codec.decode(task.codec.encode(args, kwargs))))
    except (TarryError, TypeError, ValueError):
        return calls  # as with `mock.ANY`
    return calls


def _bound(task: Task[Any, Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """By parameter, with defaults filled in: however it was written, the same call is the same."""
    if task.steered:
        return _body(task, args, kwargs)
    try:
        call = _signature(task.fn).bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(f"{task.name} cannot be called so: {error}") from None
    call.apply_defaults()
    return call.arguments


def _body(task: Task[Any, Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """An HTTP task takes one value, or its fields."""
    from tarry.push.delivery.body import single_value  # noqa: PLC0415 - most tests have no such tasks

    try:
        return {"body": single_value(task.name, args, kwargs)}
    except ArgumentError as error:
        raise TypeError(str(error)) from None


@lru_cache(maxsize=500)
def _signature(fn: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(fn)


def _differing(kept: Job) -> str:
    told = []
    if kept.due > kept.since:
        told.append(f"delay={spoken(kept.due - kept.since)!r}")
    if kept.queue != "default":
        told.append(f"queue={kept.queue!r}")
    if kept.priority:
        told.append(f"priority={kept.priority}")
    if kept.key is not None:
        told.append(f"key={kept.key!r}")
    return f" with {', '.join(told)}" if told else ""
