"""Sentry: errors with their job, a transaction for each attempt, and the trace from the enqueue to it.

`pip install "tarry[sentry]"`, `sentry_sdk.init(...)`, then, where the app is made: `instrument(app)`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from weakref import WeakSet

try:
    import sentry_sdk
except ImportError as missing:
    raise ImportError('tarry.instrument.sentry needs the Sentry SDK: pip install "tarry[sentry]"') from missing
from sentry_sdk.integrations.logging import ignore_logger
from sentry_sdk.scope import Scope, use_isolation_scope
from sentry_sdk.tracing import Span
from sentry_sdk.utils import event_from_exception

from tarry.app import App
from tarry.client.handle import Handle
from tarry.errors import ArgumentError
from tarry.instrument import add_headers, register_once
from tarry.model.verdict import Verdict
from tarry.tasks.new_job import NewJob
from tarry.tasks.running import CurrentJob
from tarry.worker.run import attempt_report
from tarry.worker.worker_log import failures

FLUSH = 2.0
"""Seconds at the end of a process to send the last events."""

_ORIGIN = "auto.queue.tarry"
_SCOPE, _TRACE = "sentry scope", "sentry trace"

_instrumented: "WeakSet[App]" = WeakSet()


def instrument(app: App, *, only_dead: bool = False, arguments: bool = False) -> None:
    """Reports the app to Sentry: one event for each failed attempt, and a transaction for each attempt, in the trace of
    its enqueue.

    Each attempt has an isolation scope of its own, with the tags `tarry.task`, `tarry.queue`, `tarry.job` and
    `tarry.attempt`. What your code sends to Sentry meanwhile gets them too. Jobs whose worker died are reported too.

    only_dead: an event only for a failure after which there is no other attempt. arguments: the events have the job's
    arguments, which may be personal data.

    Call this before you register other middleware, so that the scope includes it. ConfigError if the app is
    instrumented already.
    """
    register_once(_instrumented, app)
    # The SDK makes an event of each error that is logged, and each failure would be reported twice.
    ignore_logger(failures.name)
    app.middleware("enqueue")(_send)
    app.middleware("run")(_run)
    (app.on_dead if only_dead else app.on_failure)(partial(_report, arguments))
    app.on_close(lambda: sentry_sdk.flush(FLUSH))


def _send(job: NewJob, call_next: Callable[[NewJob], Any]) -> Any:
    if job.is_async:
        return _asend(job, call_next)
    with _send_span(job) as span:
        return _set_id(span, call_next(job))


async def _asend(job: NewJob, call_next: Callable[[NewJob], Any]) -> Any:
    with _send_span(job) as span:
        return _set_id(span, await call_next(job))


def _run(job: CurrentJob, call_next: Callable[[CurrentJob], Any]) -> Any:
    if job.is_async:
        return _arun(job, call_next)
    with _run_span(job) as span:
        return _set_status(span, job, call_next(job))


async def _arun(job: CurrentJob, call_next: Callable[[CurrentJob], Any]) -> Any:
    with _run_span(job) as span:
        return _set_status(span, job, await call_next(job))


@contextmanager
def _send_span(job: NewJob) -> Iterator[Span]:
    with sentry_sdk.start_span(op="queue.publish", name=job.task, origin=_ORIGIN) as span:
        _describe(span, job.queue)
        add_headers(job.headers, dict(sentry_sdk.get_current_scope().iter_trace_propagation_headers()))
        yield span


@contextmanager
def _run_span(job: CurrentJob) -> Iterator[Span]:
    raised: BaseException | None = None
    with _scope(job):
        transaction = sentry_sdk.continue_trace(
            dict(job.headers), op="queue.task.tarry", name=job.task, source="task", origin=_ORIGIN
        )
        known = {"tarry_job": {"task": job.task, "queue": job.queue, "id": job.id, "attempt": job.attempt}}
        with sentry_sdk.start_transaction(transaction, custom_sampling_context=known) as span:
            _describe(span, job.queue)
            span.set_data("messaging.message.id", job.id)
            span.set_data("messaging.message.retry.count", job.attempt - 1)
            # Hooks run after the transaction has ended, and their event belongs to its trace.
            job.scratch[_TRACE] = span.get_trace_context()
            try:
                yield span
            except BaseException as error:
                if attempt_report.failure_error(job.running, None, error) is not None:
                    raise
                # Raised again outside: the transaction counts every exception as a failure.
                raised = error
                span.set_status("ok" if isinstance(error, Verdict) else "cancelled")
    if raised is not None:
        raise raised


@contextmanager
def _scope(job: CurrentJob) -> Iterator[Scope]:
    with sentry_sdk.isolation_scope() as scope:
        # Those of the job before it in this thread say nothing about this one.
        scope.clear_breadcrumbs()
        scope.set_transaction_name(job.task, source="task")
        scope.set_tags({"tarry.task": job.task, "tarry.queue": job.queue})
        scope.set_tags({"tarry.job": job.id, "tarry.attempt": job.attempt})
        job.scratch[_SCOPE] = scope
        yield scope


def _report(arguments: bool, job: CurrentJob, error: BaseException) -> None:
    scope = job.scratch.get(_SCOPE)
    if scope is None:
        # It failed before it started, or its worker died.
        with _scope(job):
            return _capture(job, error, arguments)
    with use_isolation_scope(scope):
        return _capture(job, error, arguments)


def _capture(job: CurrentJob, error: BaseException, arguments: bool) -> None:
    options = sentry_sdk.get_client().options
    event, hint = event_from_exception(error, client_options=options, mechanism={"type": "tarry", "handled": False})
    if _TRACE in job.scratch:
        event["contexts"] = {"trace": job.scratch[_TRACE]}
    if arguments:
        event.setdefault("contexts", {})["tarry"] = _arguments(job)
    sentry_sdk.capture_event(event, hint=hint)


def _arguments(job: CurrentJob) -> dict[str, Any]:
    try:
        return {"args": list(job.args), "kwargs": dict(job.kwargs)}
    except ArgumentError as error:
        return {"args": str(error)}


def _describe(span: Span, queue: str) -> None:
    span.set_data("messaging.system", "tarry")
    span.set_data("messaging.destination.name", queue)


def _set_id(span: Span, handle: Handle[Any]) -> Handle[Any]:
    span.set_data("messaging.message.id", handle.id)
    return handle


def _set_status(span: Span, job: CurrentJob, value: Any) -> Any:
    span.set_status("ok" if attempt_report.failure_error(job.running, value, None) is None else "internal_error")
    return value
