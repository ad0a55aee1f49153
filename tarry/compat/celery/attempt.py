"""One attempt of a task written for Celery: its arguments, its hooks, and when it is tried again.

What follows the end of an attempt: a class's hooks, the signals, and the calls of `link_error`.
"""

import functools
import inspect
import random
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

from tarry.compat.celery import signals
from tarry.compat.celery.apps import running_app
from tarry.compat.celery.calling import ONCE
from tarry.compat.celery.calls import Signature, signature
from tarry.compat.celery.differences import CeleryNotSupported, differs
from tarry.compat.celery.exceptions import (
    Ignore,
    MaxRetriesExceededError,
    Reject,
    RetryAsked,
    SoftTimeLimitExceeded,
)
from tarry.compat.celery.message import from_json, read_envelope, to_json
from tarry.compat.celery.request import TaskRequest, arguments
from tarry.compat.celery.result import error_of_note
from tarry.compat.celery.states import FAILURE, IGNORED, RETRY, SUCCESS
from tarry.errors import JobFailed
from tarry.model.checks.texts import cut, text_of
from tarry.model.flow.node_ids import flow_of, is_node
from tarry.model.verdict import Cancel, Snooze, Verdict
from tarry.store.rules import ids
from tarry.tasks.running import CurrentJob
from tarry.tracebacks import format_app_traceback


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
        send_postrun(task, id, *called, error, RETRY)
        raise
    except Ignore as error:
        send_postrun(task, id, *called, error, IGNORED)
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


ERRBACK = "tarry.compat.celery.errback"
"""The task that calls a function of `link_error`, once for each."""

MOST_TRACEBACK = 2000
"""Characters of the traceback that such a task gets."""

was_started: ContextVar[bool] = ContextVar("tarry_celery_started", default=False)
"""The attempt began in this context: it has sent `task_prerun`."""


class ExceptionInfo:
    """What Celery's hooks get as `einfo`."""

    def __init__(self, error: BaseException) -> None:
        self.exception, self.type = error, type(error)
        self.traceback = format_error(error)

    def __str__(self) -> str:
        return self.traceback


def format_error(error: BaseException) -> str:
    """Its traceback as text."""
    return format_app_traceback(error)


def send_success(task: Any, job: CurrentJob, value: Any) -> None:
    """A hook of tarry's for what is done."""
    args, kwargs, result = from_json(tuple(job.args)), from_json(dict(job.kwargs)), from_json(value)
    task.on_success(result, job.id, args, kwargs)
    signals.task_success.send(task, result=result)
    task.after_return(SUCCESS, result, job.id, args, kwargs, None)
    send_postrun(task, job.id, args, kwargs, result, SUCCESS)


def send_failure(task: Any, job: CurrentJob, error: BaseException) -> None:
    """A hook of tarry's for what has failed for good, also since its worker died."""
    args, kwargs, info = from_json(tuple(job.args)), from_json(dict(job.kwargs)), ExceptionInfo(error)
    # First, as with Celery: what a class's hook raises must not keep them from being called.
    _call_errbacks(task, job, error, info)
    task.on_failure(error, job.id, args, kwargs, info)
    signals.task_failure.send(
        task, task_id=job.id, exception=error, args=args, kwargs=kwargs, traceback=error.__traceback__, einfo=info
    )
    task.after_return(FAILURE, error, job.id, args, kwargs, info)
    send_postrun(task, job.id, args, kwargs, error, FAILURE)


def send_postrun(task: Any, id: str | None, args: Any, kwargs: Any, value: Any, state: str) -> None:
    """Sends `task_postrun`, if the attempt began here."""
    if was_started.get():
        signals.task_postrun.send(task, task_id=id, task=task, args=args, kwargs=kwargs, retval=value, state=state)


def _call_errbacks(task: Any, job: CurrentJob, error: BaseException, info: ExceptionInfo) -> None:
    errbacks = read_envelope(job.headers).errbacks
    for number, errback in enumerate(errbacks):
        call = signature(errback)
        found = task.app.find_celery_task(call.task)
        once = {ONCE: {"key": f"errback:{_owner(job, call)}:{number}", "unique_for": "1d"}}
        if found is None or not takes_error(found):
            # As with Celery: one that takes only an id is a task like any other.
            task.app.send_task(call.task, (job.id, *call.args), call.kwargs, **{**_plain(call), **once})
            continue
        request = {"id": job.id, "task": job.task, "args": list(job.args), "kwargs": dict(job.kwargs)}
        note = {"type": f"{type(error).__module__}.{type(error).__qualname__}", "message": text_of(error)}
        facts = {
            "errback": to_json(errback),
            "request": request,
            "error": note,
            "traceback": cut(info.traceback, MOST_TRACEBACK),
        }
        using = task.app.tasks[ERRBACK].using(queue=found.native.queue, **once[ONCE])
        using.enqueue(facts)


def _owner(job: CurrentJob, call: Signature) -> str:
    """Whose errback it is: the job's, or that of its whole flow."""
    own = ids.parse(job.id)
    return ids.text(flow_of(own)) if call.options.get("tarry_once") and is_node(own) else job.id


def _plain(call: Signature) -> dict[str, Any]:
    return {name: value for name, value in call.options.items() if name != "tarry_once"}


def takes_error(task: Any) -> bool:
    """Whether it takes the request, the error and the traceback, and not only an id."""
    parameters = inspect.signature(task.__dict__.get("__wrapped__", task.run)).parameters.values()
    many = any(parameter.kind is inspect.Parameter.VAR_POSITIONAL for parameter in parameters)
    positional = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    return many or len(positional) - task._bind > 1


def run_errback(facts: dict[str, Any]) -> None:
    """Calls a function of `link_error`."""
    app = running_app()
    call, known = signature(from_json(facts["errback"])), facts["request"]
    request = TaskRequest(
        known["id"], known["task"], tuple(from_json(known["args"])), from_json(known["kwargs"]), called_directly=False
    )
    error = error_of_note(facts["error"], JobFailed(f"{known['task']} {known['id']}: {facts['error']['message']}"))
    # Its own arguments come last, as with Celery.
    app.celery_task(call.task)(request, error, facts["traceback"], *call.args, **call.kwargs)
