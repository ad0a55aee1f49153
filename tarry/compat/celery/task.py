"""`Task`: what `@app.task` and `@shared_task` make, and the base of an app's own task classes."""

import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from tarry.compat.celery import attempt, eagerly
from tarry.compat.celery.apps import NO_APP
from tarry.compat.celery.calling import as_list, moment_of
from tarry.compat.celery.calls import Signature
from tarry.compat.celery.canvas import Chunks
from tarry.compat.celery.differences import CeleryNotSupported, differs
from tarry.compat.celery.exceptions import MaxRetriesExceededError, RetryAsked
from tarry.compat.celery.request import TaskRequest, report_state, request_of
from tarry.compat.celery.result import AsyncResult
from tarry.errors import ConfigError

if TYPE_CHECKING:
    from tarry.client.tasks.task import Task as NativeTask

MAP, STARMAP = "tarry.compat.celery.map", "tarry.compat.celery.starmap"
"""The tasks that call another one with each of several arguments."""
_LOST = {
    "pydantic": "tarry's own @app.native_task reads pydantic models",
    "serializer": "arguments travel as JSON only",
    "backend": "results are kept with their jobs, in tarry's store",
}
"""Options of `@app.task` that have no effect."""


class CeleryTask:
    """A task by Celery's names. A subclass may set the attributes, and override `run` and the hooks."""

    name: str = ""
    abstract = False
    max_retries: int | None = 3
    default_retry_delay: float = 180
    autoretry_for: Sequence[type[BaseException]] = ()
    dont_autoretry_for: Sequence[type[BaseException]] = ()
    retry_kwargs: Mapping[str, Any] = {}
    retry_backoff: float | bool = False
    retry_backoff_max: int = 600
    retry_jitter: bool = True
    rate_limit: str | float | None = None
    time_limit: float | None = None
    soft_time_limit: float | None = None
    ignore_result: bool = False
    queue: str | None = None
    priority: int | None = None
    expires: float | datetime | None = None
    Strategy: ClassVar[Any] = None
    MaxRetriesExceededError: ClassVar[type[Exception]] = MaxRetriesExceededError

    is_everywhere = False
    """Made by `shared_task`: a task of the current app, whichever that is."""
    _app: Any = None
    _fn: Callable[..., Any] | None = None
    _bind = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Takes what a subclass hands on."""

    def define(self, fn: Callable[..., Any], name: str, bind: bool, options: Mapping[str, Any]) -> None:
        """Makes it the task of this function."""
        self.name, self._bind = name, bind
        if options.get("pydantic"):
            raise CeleryNotSupported(f"{name}: pydantic=True: {_LOST['pydantic']}")
        for option in ("serializer", "backend"):
            if options.get(option) not in (None, "json"):
                differs(f"{name}: {option}= has no effect: {_LOST[option]}")
        self._fn = attempt.with_autoretry(self, fn, options)
        self.__doc__, self.__module__, self.__wrapped__ = fn.__doc__, fn.__module__, fn
        vars(self)["__name__"] = getattr(fn, "__name__", name)

    @property
    def app(self) -> Any:
        """The app that it belongs to; ConfigError while there is none."""
        if self._app is None:
            raise ConfigError(f"{self.name}: {NO_APP}")
        return self._app

    @property
    def native(self) -> "NativeTask[Any, Any]":
        """Tarry's task, with `using`, `enqueue` and its hooks."""
        found: NativeTask[Any, Any] = self.app.tasks[self.name]
        return found

    def run(self, /, *args: Any, **kwargs: Any) -> Any:
        """Calls the function, with this task first if it is bound."""
        if self._fn is None:
            raise NotImplementedError(f"{type(self).__name__} needs a run(...)")
        return self._fn(self, *args, **kwargs) if self._bind else self._fn(*args, **kwargs)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Calls the function in this process."""
        return self.run(*args, **kwargs)

    # Enqueue

    def delay(self, /, *args: Any, **kwargs: Any) -> Any:
        """Enqueues a call; returns its AsyncResult."""
        return self.apply_async(args, kwargs)

    def apply_async(self, args: Any = None, kwargs: Any = None, task_id: str | None = None, **options: Any) -> Any:
        """Enqueues a call: countdown, eta, queue, priority, expires, time_limit, soft_time_limit as with Celery."""
        if self.app.conf.task_always_eager:
            return self.apply(args, kwargs, task_id=task_id, **options)
        # By the app's method, since that is what apps override.
        return self.app.send_task(self.name, args, kwargs, task_id=task_id, task_type=self, **options)

    def apply(
        self,
        args: Any = None,
        kwargs: Any = None,
        link: Any = None,
        link_error: Any = None,
        throw: bool | None = None,
        headers: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Any:
        """Runs a call here and now, with its retries; returns an EagerResult."""
        throws = bool(self.app.conf.task_eager_propagates) if throw is None else throw
        own = options.get("task_id")
        result = eagerly.apply(self, tuple(args or ()), dict(kwargs or {}), throws, dict(headers or {}), own)
        if result.successful():
            for each in as_list(link):
                each.run_now(self.app, result.result)
        else:
            for errback in as_list(link_error):
                eagerly.call_errback(self, errback, result, args, kwargs)
        return result

    def delay_on_commit(self, /, *args: Any, **kwargs: Any) -> None:
        """Enqueues a call once Django's transaction is committed."""
        self.apply_async_on_commit(args, kwargs)

    def apply_async_on_commit(self, *args: Any, **options: Any) -> None:
        """`apply_async`, once Django's transaction is committed."""
        transaction: Any = importlib.import_module("django.db.transaction")

        transaction.on_commit(lambda: self.apply_async(*args, **options))

    def s(self, /, *args: Any, **kwargs: Any) -> Signature:
        """A call as a value; in a chain it gets the result of the one before as its first argument."""
        return Signature(self.name, args, kwargs, app=self._app)

    def si(self, /, *args: Any, **kwargs: Any) -> Signature:
        """A call as a value, which takes no result of another."""
        return Signature(self.name, args, kwargs, immutable=True, app=self._app)

    def AsyncResult(self, task_id: str) -> Any:  # noqa: N802 - Celery's name
        """The job of that id."""
        return AsyncResult(task_id, app=self.app)

    def signature(self, args: Any = (), kwargs: Any = None, immutable: bool = False, **options: Any) -> Signature:
        """A call as a value, with options of `apply_async`."""
        return Signature(self.name, args, kwargs, options, immutable=immutable, app=self._app)

    subtask = signature

    def map(self, items: Any) -> Signature:
        """One job that calls the task with each of these, and gives the list of results."""
        return self._one_job(MAP, items)

    def starmap(self, items: Any) -> Signature:
        """One job that calls the task with the arguments of each of these, and gives the list of results."""
        return self._one_job(STARMAP, items)

    def chunks(self, calls: Any, size: int) -> Any:
        """A group of jobs, each of which makes `size` of the calls and gives the list of their results."""
        given = list(calls)
        starts = range(0, len(given), size)
        return Chunks([self.starmap(given[start : start + size]) for start in starts], app=self._app)

    def _one_job(self, how: str, items: Any) -> Signature:
        self.app.finalize()
        # In its own queue, as with Celery.
        options = {"queue": self.native.queue} if self.native.queue else {}
        return Signature(how, (), {"task": self.name, "it": list(items)}, options, app=self._app)

    # While it runs

    @property
    def request(self) -> TaskRequest:
        """The attempt that runs this code."""
        return request_of(self.name)

    def retry(
        self,
        args: Any = None,
        kwargs: Any = None,
        exc: BaseException | None = None,
        throw: bool = True,
        eta: datetime | None = None,
        countdown: float | None = None,
        max_retries: int | None = None,
        **options: Any,
    ) -> RetryAsked:
        """Raises what makes the job be tried again after `countdown` seconds, or at `eta`; after the last retry `exc`,
        else MaxRetriesExceededError. CeleryNotSupported for other arguments, which a job cannot get."""
        request = self.request
        if request.called_directly:
            raise exc or RetryAsked()
        _refuse_changes(request, args, kwargs, throw, options)
        most = self.max_retries if max_retries is None else max_retries
        if most is not None and request.retries + 1 > most:
            raise attempt.refuse(self, exc)
        if eta is not None:
            countdown = max(0.0, (moment_of(self.app, eta) - datetime.now(UTC)).total_seconds())
        raise RetryAsked(exc, self.default_retry_delay if countdown is None else max(0.0, _seconds(countdown)))

    def update_state(self, task_id: str | None = None, state: str | None = None, meta: Any = None, **rest: Any) -> None:
        """Shows how far the job is; the state and `meta` are its progress."""
        if task_id not in (None, self.request.id):
            raise CeleryNotSupported("update_state(task_id=...): a task tells only of the job that it runs")
        report_state(state or "", meta)

    def replace(self, signature: Any) -> None:
        """Refused."""
        raise CeleryNotSupported(f"{self.name}.replace: return tarry.fan_out(calls), or enqueue the calls")

    # Hooks

    def before_start(self, task_id: str | None, args: Any, kwargs: Any) -> None:
        """Called before each attempt."""

    def on_retry(self, exc: BaseException, task_id: str | None, args: Any, kwargs: Any, einfo: Any) -> None:
        """Called when an attempt asked for another."""

    def on_success(self, retval: Any, task_id: str, args: Any, kwargs: Any) -> None:
        """Called when the job is done."""

    def on_failure(self, exc: BaseException, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        """Called when the job has failed for good."""

    def after_return(self, status: str, retval: Any, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        """Called after `on_success` and `on_failure`."""

    def __repr__(self) -> str:
        return f"<@task: {self.name}>"

    def __reduce__(self) -> Any:
        raise TypeError(f"{self.name} cannot be pickled (process {os.getpid()}): send its name")


def _refuse_changes(request: TaskRequest, args: Any, kwargs: Any, throw: bool, options: Mapping[str, Any]) -> None:
    name = request.task
    is_same = (args is None or tuple(args) == tuple(request.args)) and (kwargs is None or kwargs == request.kwargs)
    if not is_same:
        raise CeleryNotSupported(f"{name}: retry(args=..., kwargs=...): a job keeps its arguments; enqueue another one")
    if not throw:
        raise CeleryNotSupported(f"{name}: retry(throw=False): write `raise self.retry(...)`")
    if options:
        differs(f"{name}: retry({next(iter(options))}=...) has no effect: a job stays as it was enqueued")


def _seconds(countdown: float | timedelta) -> float:
    return countdown.total_seconds() if isinstance(countdown, timedelta) else float(countdown)
