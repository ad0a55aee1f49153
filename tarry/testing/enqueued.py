"""Jobs as they were enqueued, and whether they match what a test expects."""

import contextlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import msgspec

from tarry.client.handle import Handle
from tarry.client.tasks.task import Task
from tarry.errors import ArgumentError, TarryError
from tarry.model.duration import SECOND, Duration, format_duration, microseconds
from tarry.model.flow.node_ids import is_node
from tarry.model.job import Job
from tarry.tasks.arguments.signature import bind
from tarry.testing.recording import RecordingStore

# A datetime may lose its last digits in calculations.
_TOLERANCE = 1000
"""Microseconds."""


class Enqueued:
    """A job as it was before its first attempt. `job` is its handle, with its present state."""

    def __init__(self, store: RecordingStore, kept: Job) -> None:
        app = store.app
        self._kept = kept
        self.task = kept.task
        self.queue = kept.queue
        self.priority = kept.priority
        self.key = kept.key
        self.delay = (kept.due - kept.state_since) / SECOND
        """Seconds from its enqueue until it is due."""
        self.at = to_datetime(kept.due)
        self.args, self.kwargs = _arguments(app.tasks.get(kept.task), kept)
        self.job: Handle[Any] = app.client.get(kept.id)

    def __repr__(self) -> str:
        given = [*map(repr, self.args), *(f"{name}={value!r}" for name, value in self.kwargs.items())]
        return f"{self.task}({', '.join(given)}){_format_settings(self._kept)}"


class Expected:
    """What a test expects of a job. What is left out is not checked."""

    def __init__(self, task: Task[Any, Any] | str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self.name = task if isinstance(task, str) else task.name
        self.checks: dict[str, tuple[Any, Callable[[Job], bool]]] = {}
        self._args, self._kwargs = args, kwargs
        self._calls = [] if (not args and not kwargs) or isinstance(task, str) else _calls(task, args, kwargs)

    def at(self, delay: Duration | None, at: datetime | float | None) -> "Expected":
        """Expects that the job is due so long after its enqueue, or at that time."""
        if delay is not None:
            wanted = microseconds(delay)
            self.checks["delay"] = (delay, lambda job: abs(job.due - job.state_since - wanted) < _TOLERANCE)
        if at is not None:
            due = (at.timestamp() if isinstance(at, datetime) else at) * SECOND
            self.checks["at"] = (at, lambda job: abs(job.due - due) < _TOLERANCE)
        return self

    def of(self, **fields: Any) -> "Expected":
        """Expects these values of queue, priority, key; None: not checked."""
        for name, value in fields.items():
            if value is not None:
                self.checks[name] = (value, lambda job, name=name, value=value: getattr(job, name) == value)  # type: ignore[misc]
        return self

    def matches(self, found: Enqueued, task: Task[Any, Any] | None) -> bool:
        """Whether the job is as expected."""
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


def to_datetime(time: int) -> datetime:
    """Microseconds since the epoch, as a datetime in UTC."""
    return datetime.fromtimestamp(time / SECOND, UTC)


def _arguments(task: Task[Any, Any] | None, kept: Job) -> tuple[Sequence[Any], Mapping[str, Any]]:
    if task is not None:
        # An argument of a node that is the result of another one is null, which may not fit.
        with contextlib.suppress(*([ArgumentError] if is_node(kept.id) else [])):
            return task.codec.decode(kept.body)
    decoded = msgspec.json.decode(kept.body)
    return (decoded, {}) if isinstance(decoded, list) else ((), decoded)


def _calls(task: Task[Any, Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The call as the test wrote it, and as it is after JSON. TypeError if the arguments do not fit the task."""
    # In JSON a tuple becomes a list, and the test may compare with either.
    calls = [_bound(task, args, kwargs)]
    try:
        calls.append(_bound(task, *task.codec.decode(task.codec.encode(args, kwargs))))
    except (TarryError, TypeError, ValueError):
        return calls  # an argument that cannot be JSON, such as `mock.ANY`
    return calls


def _bound(task: Task[Any, Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments by parameter, with defaults filled in."""
    # So equal calls compare equal, by position or by name, with or without defaults.
    if task.runner is not None:
        return _body(task, args, kwargs)
    try:
        call = bind(_signature(task.fn), args, kwargs)
    except TypeError as error:
        # A typing error in the test: else it would only say that no such job was enqueued.
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


def _format_settings(kept: Job) -> str:
    texts = []
    if kept.due > kept.state_since:
        texts.append(f"delay={format_duration(kept.due - kept.state_since)!r}")
    if kept.queue != "default":
        texts.append(f"queue={kept.queue!r}")
    if kept.priority:
        texts.append(f"priority={kept.priority}")
    if kept.key is not None:
        texts.append(f"key={kept.key!r}")
    return f" with {', '.join(texts)}" if texts else ""
