"""OpenTelemetry: a span for each enqueue, one for each attempt, and the way from the one to the other.

`pip install "tarry[otel]"`, then, where the app is made: `instrument(app)`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

try:
    from opentelemetry import context, propagate, trace
except ImportError as missing:
    raise ImportError('tarry.instrument.otel needs OpenTelemetry: pip install "tarry[otel]"') from missing
from opentelemetry.trace import INVALID_SPAN, Link, Span, SpanKind, Status, StatusCode, Tracer, TracerProvider

from tarry.app import App
from tarry.client.handle import Handle
from tarry.instrument import once, travel
from tarry.model.retry import qualified
from tarry.tasks.new_job import NewJob
from tarry.tasks.running import CurrentJob
from tarry.worker.run import report

FLUSH = 2_000
"""Milliseconds that a process may take at its end to send the spans that it still has."""

_instrumented: "WeakSet[App]" = WeakSet()


def instrument(app: App, tracer_provider: TracerProvider | None = None, *, as_parent: bool = False) -> None:
    """Traces the app: a producer span `send TASK` for each job that is enqueued, a consumer span `process TASK` for
    each attempt.

    tracer_provider: the global one, unless given. The context travels in the job's headers, as the global propagator
    writes it: W3C `traceparent`, `tracestate` and `baggage`, unless you set another.

    Each attempt begins a trace of its own that links to the enqueue: a job may run hours later, and several times.
    as_parent: it is a child of the enqueue instead, in the same trace.

    Call it before other middleware is registered: then theirs is within the spans. An error that makes the attempt
    fail is recorded; Snooze and Cancel are none. ConfigError if the app is instrumented already.
    """
    once(_instrumented, app)
    tracing = Tracing(trace.get_tracer("tarry", tracer_provider=tracer_provider), as_parent)
    app.middleware("enqueue")(tracing.send)
    app.middleware("run")(tracing.run)
    app.on_close(lambda: _flush(tracer_provider or trace.get_tracer_provider()))


class Tracing:
    """The two middlewares."""

    def __init__(self, tracer: Tracer, as_parent: bool) -> None:
        self._tracer = tracer
        self._as_parent = as_parent

    def send(self, job: NewJob, call_next: Callable[[NewJob], Any]) -> Any:
        """Around an enqueue."""
        if job.is_async:
            return self._asend(job, call_next)
        with self._sending(job) as span:
            return _sent(span, call_next(job))

    def run(self, job: CurrentJob, call_next: Callable[[CurrentJob], Any]) -> Any:
        """Around an attempt."""
        if job.is_async:
            return self._arun(job, call_next)
        with self._running(job) as span:
            return _ended(span, job, call_next(job))

    async def _asend(self, job: NewJob, call_next: Callable[[NewJob], Any]) -> Any:
        with self._sending(job) as span:
            return _sent(span, await call_next(job))

    async def _arun(self, job: CurrentJob, call_next: Callable[[CurrentJob], Any]) -> Any:
        with self._running(job) as span:
            return _ended(span, job, await call_next(job))

    @contextmanager
    def _sending(self, job: NewJob) -> Iterator[Span]:
        facts = _facts("send", job.task, job.queue)
        with self._tracer.start_as_current_span(f"send {job.task}", kind=SpanKind.PRODUCER, attributes=facts) as span:
            found: dict[str, str] = {}
            propagate.inject(found)
            travel(job.headers, found)
            yield span

    @contextmanager
    def _running(self, job: CurrentJob) -> Iterator[Span]:
        sender = propagate.extract(job.headers)
        producer = trace.get_current_span(sender).get_span_context()
        # Where it is only linked to, it is no parent; its baggage travels all the same.
        base = sender if self._as_parent else trace.set_span_in_context(INVALID_SPAN, sender)
        links = [Link(producer)] if producer.is_valid and not self._as_parent else []
        facts = {**_facts("process", job.task, job.queue), "messaging.message.id": job.id, "tarry.attempt": job.attempt}
        token = context.attach(base)
        try:
            with self._tracer.start_as_current_span(
                f"process {job.task}",
                kind=SpanKind.CONSUMER,
                attributes=facts,
                links=links,
                record_exception=False,
                set_status_on_exception=False,
            ) as span:
                try:
                    yield span
                except BaseException as error:
                    _failed(span, report.failure_of(job.running, None, error))
                    raise
        finally:
            context.detach(token)


def _facts(operation: str, task: str, queue: str) -> dict[str, str | int]:
    return {
        "messaging.system": "tarry",
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": queue,
        "tarry.task": task,
    }


def _sent(span: Span, handle: Handle[Any]) -> Handle[Any]:
    span.set_attribute("messaging.message.id", handle.id)
    return handle


def _ended(span: Span, job: CurrentJob, value: Any) -> Any:
    _failed(span, report.failure_of(job.running, value, None))
    return value


def _failed(span: Span, failure: BaseException | None) -> None:
    if failure is not None:
        span.record_exception(failure)
        span.set_attribute("error.type", qualified(type(failure)))
        span.set_status(Status(StatusCode.ERROR, report.message(failure)))


def _flush(provider: TracerProvider) -> None:
    flush = getattr(provider, "force_flush", None)
    if flush is not None:
        flush(FLUSH)
