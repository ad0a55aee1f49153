"""One attempt of a task written for Celery: its arguments, its hooks, and when it is tried again."""

import functools
import inspect
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tarry.compat.celery import signals
from tarry.compat.celery.differences import CeleryNotSupported, differs
from tarry.compat.celery.exceptions import (
    Ignore,
    MaxRetriesExceededError,
    Reject,
    RetryAsked,
    SoftTimeLimitExceeded,
)
from tarry.compat.celery.running.hooks import ExceptionInfo, finished, was_started
from tarry.compat.celery.running.request import arguments
from tarry.compat.celery.sending.values import from_json, to_json
from tarry.compat.celery.states import IGNORED, RETRY
from tarry.errors import JobFailed
from tarry.model.verdict import Cancel, Snooze, Verdict


def make_function(task: Any, fn: Callable[..., Any], bind: bool) -> Callable[..., Any]:
    """The function that tarry runs for the task. It takes the arguments of `fn`, without `self` if that is bound."""
    if inspect.iscoroutinefunction(fn):
        raise CeleryNotSupported(f"{fn.__qualname__} is an async def: make it a task with @app.native_task")

    @functools.wraps(fn)
    def run(*args: Any, **kwargs: Any) -> Any:
        return attempt(task, args, kwargs)

    signature = inspect.signature(fn)
    parameters = list(signature.parameters.values())[1 if bind else 0 :]
    # Celery looks at no annotation, so an app may have any.
    plain = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in parameters]
    vars(run)["__signature__"] = inspect.Signature(plain)
    run.__annotations__ = {}
    return run


def attempt(task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Calls the task's function with the decoded arguments; returns a result that can be JSON, or raises."""
    called = from_json(tuple(args)), from_json(dict(kwargs))
    token = arguments.set(called)
    id = task.request.id
    # Not reset: hooks that follow the attempt ask for it.
    was_started.set(True)
    try:
        signals.task_prerun.send(task, task_id=id, task=task, args=called[0], kwargs=called[1])
        task.before_start(id, *called)
        # Not `run`: classes override `__call__`, to put an application context around it.
        return result_of(task, task(*called[0], **called[1]))
    except Reject as error:
        raise (Snooze(1) if error.requeue else Cancel(error.reason)) from None
    except RetryAsked as error:
        info = ExceptionInfo(error)
        task.on_retry(error.exc or error, id, *called, info)
        signals.task_retry.send(task, request=task.request, reason=error, einfo=info)
        finished(task, id, *called, error, RETRY)
        raise
    except Ignore as error:
        finished(task, id, *called, error, IGNORED)
        raise
    finally:
        arguments.reset(token)


def result_of(task: Any, value: Any) -> Any:
    """The result as JSON has it; None if the app keeps no results."""
    if isinstance(value, Verdict):
        return value
    if task.ignore_result:
        return None
    try:
        return to_json(value)
    except (TypeError, ValueError):
        if task.app.conf.result_backend is not None:
            raise
        # Without a result backend Celery never looks at the result.
        differs(f"{task.name} returned {type(value).__name__}, which cannot be JSON: its result is None")
        return None


def with_autoretry(task: Any, fn: Callable[..., Any], options: Mapping[str, Any]) -> Callable[..., Any]:
    """The function, which asks for a retry if it raises an exception of `autoretry_for`."""
    kinds = tuple(options.get("autoretry_for") or task.autoretry_for)
    excluded = tuple(options.get("dont_autoretry_for") or task.dont_autoretry_for)
    if not kinds:
        return fn

    @functools.wraps(fn)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return fn(*args, **kwargs)
        except (Verdict, *excluded):
            raise
        except (*kinds, *_limits(kinds)) as error:
            given = dict(task.retry_kwargs)
            if task.retry_backoff:
                given["countdown"] = backoff(task, task.request.retries)
            raise task.retry(exc=error, **given) from error

    return run


def _limits(kinds: Sequence[type[BaseException]]) -> tuple[type[BaseException], ...]:
    """With Celery the end of the time is an Exception, which `autoretry_for=(Exception,)` catches."""
    return (SoftTimeLimitExceeded,) if Exception in kinds else ()


def backoff(task: Any, retries: int) -> int:
    """Seconds until the next attempt, after so many retries; by Celery's rule, which draws from 0 to the delay."""
    # Celery's own bound: beyond it a number of seconds has no meaning.
    delay = min(int(task.retry_backoff_max), int(max(1.0, float(task.retry_backoff))) * 2 ** min(retries, 40))
    return random.randrange(delay + 1) if task.retry_jitter else delay


def refuse(task: Any, exc: BaseException | None) -> BaseException:
    """The error after the last retry."""
    if isinstance(exc, SoftTimeLimitExceeded):
        # Raised again, it would look as if the time were over now.
        return JobFailed(f"{task.name}[{task.request.id}]: the time limit was exceeded, at the last retry too")
    return exc or MaxRetriesExceededError(f"can't retry {task.name}[{task.request.id}]: it was the last time")
