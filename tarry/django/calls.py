"""The options of one enqueue: what a task of Django's says of it, as tarry's options."""

from typing import Any

from tarry.django import compat
from tarry.django.django_task import option, retry_rule_of
from tarry.django.moments import aware
from tarry.model.limit import parse_limit
from tarry.tasks.options import Options


def options_of(task: Any, declared: Any, connection: Any) -> Options:
    """The options for a job of this task. declared: the task as its module has it, whose settings the worker knows."""
    retry = retry_rule_of(option(task, "retries"), option(task, "backoff"))
    is_own = any(option(task, name) != option(declared, name) for name in ("retries", "backoff"))
    timeout = option(task, "timeout")
    return Options(
        at=aware(task.run_after),
        key=option(task, "key"),
        priority=int(task.priority),
        queue=task.queue_name,
        expires=option(task, "expires"),
        connection=connection,
        timeout=None if timeout == option(declared, "timeout") else timeout,
        retry=retry if is_own else "default",
        # Its worker and its start are facts of Django's result.
        keeps_attempts=True,
    ).check()


def check_options(task: Any) -> None:
    """InvalidTask with the name of a wrong option."""
    try:
        rule = retry_rule_of(option(task, "retries"), option(task, "backoff"))
        Options(
            key=option(task, "key"), expires=option(task, "expires"), timeout=option(task, "timeout"), retry=rule
        ).check()
        parse_limit(option(task, "limit"), None)
    except (TypeError, ValueError) as error:
        raise compat.InvalidTask(f"{task.module_path}: {error}") from error
