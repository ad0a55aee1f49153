"""Tasks of the suite, as a project writes them."""

import contextlib
import threading
from typing import Any

with contextlib.suppress(ImportError):
    from django_tasks import task
with contextlib.suppress(ImportError):
    from django.tasks import task  # type: ignore[no-redef]

from django.db import connection

from tarry import Cancel, Retry, Snooze, current_job
from tarry.django import task as our_task


class Trouble(Exception):
    """An error of the project's own."""


@task
def echo(*args: Any, **kwargs: Any) -> Any:
    return [list(args), kwargs]


@task
async def aecho(*args: Any, **kwargs: Any) -> Any:
    return [list(args), kwargs]


@task
def fail(message: str) -> None:
    raise Trouble(message)


@task
async def afail(message: str) -> None:
    raise ValueError(message)


@task(takes_context=True)
def attempt(context: Any, more: int = 0) -> Any:
    return [context.attempt, context.task_result.id, len(context.task_result.worker_ids), more]


@task(takes_context=True)
async def aattempt(context: Any) -> int:
    return int(context.attempt)


@task
def lock() -> Any:
    return threading.Lock()


@task(priority=7, queue_name="mail")
def mail(to: str) -> str:
    return to


@our_task(retries=2, backoff=[0, 0])
def stubborn(until: int) -> int:
    if current_job().attempt < until:
        raise Trouble(f"not yet: {current_job().attempt}")
    return current_job().attempt


@our_task(retries=Retry(1, base=3600), timeout=30, key="one", expires="1h", limit=3)
def limited() -> None: ...


@our_task(timeout=0.05)
def endless() -> None:
    while True:
        sum(range(1000))


@task(takes_context=True)
def snoozes(context: Any) -> int:
    if context.attempt < 2:
        raise Snooze(0)
    return int(context.attempt)


@task
def queries() -> int:
    connection.cursor().execute("SELECT 1")
    return len(connection.queries)


@task
def unwanted(how: str) -> Any:
    if how == "raise":
        raise Cancel("no longer wanted")
    return Cancel("no longer wanted")


@task
async def aunwanted(how: str) -> Any:
    return unwanted.call(how)


def plain() -> None:
    """No task."""


hidden = task(plain)
"""A task that has not its function's name."""


def ours(task: Any) -> Any:
    """The same task: the type of django-tasks' decorator knows nothing of its backend's options."""
    return task


@task
def login(name: str, password: str) -> str:
    return name
