"""`apply`, and `task_always_eager`: a call runs at once, in the process of the caller."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

from tarry.compat.celery import attempt
from tarry.compat.celery.exceptions import RetryAsked
from tarry.compat.celery.request import TaskRequest, eager
from tarry.compat.celery.result import FAILURE, REVOKED, SUCCESS, EagerResult
from tarry.compat.celery.values import from_json, to_json
from tarry.model.verdict import Cancel


def apply(task: Any, args: Sequence[Any], kwargs: Mapping[str, Any], throw: bool) -> EagerResult:
    """Runs the call with its retries, which do not wait; throw: raises what it raises."""
    id = str(uuid4())
    # As the arguments would come out of a store.
    call = to_json(args), to_json(dict(kwargs))
    retries = 0
    while True:
        request = TaskRequest(
            id, task.name, args, kwargs, retries, {"is_eager": True}, is_eager=True, called_directly=False
        )
        token = eager.set(request)
        try:
            return _run(task, id, call)
        except RetryAsked:
            retries += 1
        except Cancel as error:
            return EagerResult(id, error, REVOKED)
        except Exception as error:
            task.on_failure(error, id, args, kwargs, attempt.ExceptionInfo(error))
            if throw:
                raise
            return EagerResult(id, error, FAILURE, attempt.ExceptionInfo(error).traceback)
        finally:
            eager.reset(token)


def _run(task: Any, id: str, call: tuple[Any, Any]) -> EagerResult:
    args, kwargs = call
    value = from_json(attempt.attempt(task, args, kwargs))
    task.on_success(value, id, args, kwargs)
    return EagerResult(id, value, SUCCESS)
