"""Our class of Django's tasks: with retries, a timeout, a key, an expiry and a limit."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from tarry.django import compat
from tarry.model.duration import Duration
from tarry.model.retry import DEFAULT, Retry, RetryRule


@dataclass(frozen=True, slots=True, kw_only=True)
class DjangoTask(compat.Task):
    """A task of Django's with tarry's options; None: that of the backend's OPTIONS, else tarry's own.

    retries: how often it is tried again after a failure, or a `tarry.Retry`; 0: never. backoff: the shape of the
    delays, as `tarry.Retry` has it. timeout: seconds, "5m" or a timedelta, for one attempt. key: at most one unfinished
    job of this task has it; a second enqueue gives the first one's result. expires: a job that has not started this
    long after it was due is cancelled. limit: how many run at once, over all hosts.
    """

    retries: int | Retry | None = None
    backoff: str | Sequence[Duration] | None = None
    timeout: Duration | None = None
    key: str | None = None
    expires: Duration | None = None
    limit: int | None = None

    def using(
        self,
        *,
        priority: int | None = None,
        queue_name: str | None = None,
        run_after: datetime | None = None,
        backend: str | None = None,
        retries: int | Retry | None = None,
        backoff: str | Sequence[Duration] | None = None,
        timeout: Duration | None = None,
        key: str | None = None,
        expires: Duration | None = None,
    ) -> "DjangoTask":
        """A copy with other options. A limit is for all jobs of a task, so it cannot be changed for some."""
        given = locals()
        changes = {name: given[name] for name in _CHANGEABLE if given[name] is not None}
        return replace(self, **changes)


_CHANGEABLE = ("priority", "queue_name", "run_after", "backend", "retries", "backoff", "timeout", "key", "expires")
OPTIONS = ("retries", "backoff", "timeout", "key", "expires", "limit")
"""The options that tarry adds to a task of Django's."""


def task(function: Callable[..., Any] | None = None, *, backend: str = "default", **options: Any) -> Any:
    """`@task`, as Django's, with tarry's options too: `@task(retries=3, timeout="30s")`.

    The decorator of Django 6.0 takes none but its own; that of Django 6.1 and of django-tasks takes these as well.
    """
    if "run_after" in options:
        raise TypeError("run_after is for one call: task.using(run_after=...)")

    def make(fn: Callable[..., Any]) -> Any:
        return compat.task_backends[backend].task_class(func=fn, backend=backend, **options)

    return make if function is None else make(function)


def option(task: Any, name: str) -> Any:
    """An option of OPTIONS, also of a task whose class has none of them."""
    return getattr(task, name, None)


def retry_rule_of(retries: int | Retry | None, backoff: str | Sequence[Duration] | None) -> RetryRule:
    """The rule that `retries` and `backoff` make; "default" if neither is given. ValueError, TypeError."""
    if isinstance(retries, Retry):
        return retries
    if retries is None and backoff is None:
        return "default"
    if not isinstance(retries, int | None) or isinstance(retries, bool) or (retries or 0) < 0:
        raise ValueError(f"retries={retries!r}: how many times to try again, 0 or more, or a tarry.Retry")
    if backoff is not None and not isinstance(backoff, str):
        return Retry(len(backoff) if retries is None else retries, backoff=backoff)
    # As tarry's own rule, but for what is given.
    limit = DEFAULT.limit if retries is None else retries
    return Retry(limit, backoff=backoff or "exponential", base="15s", cap="6h", jitter=DEFAULT.jitter)
