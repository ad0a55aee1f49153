"""`apply`, and `task_always_eager`: a call runs at once, in the process of the caller."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

from tarry.compat.celery import attempt, signals
from tarry.compat.celery.attempt import ExceptionInfo, send_postrun, takes_error, was_started
from tarry.compat.celery.exceptions import Ignore, RetryAsked
from tarry.compat.celery.message import from_json, to_json
from tarry.compat.celery.request import TaskRequest, eager
from tarry.compat.celery.result import EagerResult
from tarry.compat.celery.states import FAILURE, IGNORED, REVOKED, SUCCESS
from tarry.model.verdict import Cancel


def apply(
    task: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    throw: bool,
    headers: Mapping[str, Any],
    id: str | None = None,
) -> EagerResult:
    """Runs the call with its retries, which do not wait; throw: raises what it raises."""
    # As the arguments would come out of a store.
    id, call = id or str(uuid4()), (to_json(args), to_json(dict(kwargs)))
    retries = 0
    started = was_started.set(True)
    try:
        while True:
            info = {"is_eager": True}
            request = TaskRequest(
                id, task.name, args, kwargs, retries, info, headers, is_eager=True, called_directly=False
            )
            token = eager.set(request)
            try:
                return _run(task, id, call, throw)
            except RetryAsked:
                retries += 1
            finally:
                eager.reset(token)
    finally:
        was_started.reset(started)


def _run(task: Any, id: str, call: tuple[Any, Any], throw: bool) -> EagerResult:
    given = from_json(tuple(call[0])), from_json(dict(call[1]))
    try:
        value = from_json(attempt.attempt(task, *call))
    except RetryAsked:
        raise
    except Cancel as error:
        return EagerResult(id, error, IGNORED if isinstance(error, Ignore) else REVOKED)
    except Exception as error:
        info = ExceptionInfo(error)
        task.on_failure(error, id, *given, info)
        signals.task_failure.send(
            task, task_id=id, exception=error, args=given[0], kwargs=given[1], traceback=error.__traceback__, einfo=info
        )
        task.after_return(FAILURE, error, id, *given, info)
        send_postrun(task, id, *given, error, FAILURE)
        if throw:
            raise
        return EagerResult(id, error, FAILURE, info.traceback)
    task.on_success(value, id, *given)
    signals.task_success.send(task, result=value)
    task.after_return(SUCCESS, value, id, *given, None)
    send_postrun(task, id, *given, value, SUCCESS)
    return EagerResult(id, value, SUCCESS)


def call_errback(task: Any, errback: Any, result: EagerResult, args: Any, kwargs: Any) -> None:
    """Calls a function of `link_error`, as a worker would."""
    found = task.app.celery_task(errback.task)
    if not takes_error(found):
        found.apply((result.id, *errback.args), errback.kwargs)
        return
    request = TaskRequest(result.id, task.name, tuple(args or ()), dict(kwargs or {}), is_eager=True)
    found(request, result.result, result.traceback, *errback.args, **errback.kwargs)
