"""OpenTelemetry: a span for each enqueue and for each attempt, the link between them, and metrics.

`pip install "tarry[otel]"`, then, where the app is made: `instrument(app)`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

try:
    from opentelemetry import context, metrics, propagate, trace
except ImportError as missing:
    raise ImportError('tarry.instrument.otel needs OpenTelemetry: pip install "tarry[otel]"') from missing
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import INVALID_SPAN, Link, Span, SpanKind, Status, StatusCode, Tracer, TracerProvider

from tarry.app import App
from tarry.client.handle import Handle
from tarry.instrument import add_headers, register_once
from tarry.instrument.otel_metrics import MessagingMeters, StoreGauges
from tarry.model.checks.texts import text_of
from tarry.model.retry import qualified_name
from tarry.tasks.new_job import NewJob
from tarry.tasks.running import CurrentJob
from tarry.worker.run import attempt_report

FLUSH = 2_000
"""Milliseconds at the end of a process to send the last spans, and then the last metrics."""

_instrumented: "WeakSet[App]" = WeakSet()


def instrument(
    app: App,
    tracer_provider: TracerProvider | None = None,
    *,
    meter_provider: MeterProvider | None = None,
    as_parent: bool = False,
) -> None:
    """Traces the app: a producer span `send TASK` for each enqueue, a consumer span `process TASK` for each attempt.

    Measures it, too: `messaging.client.operation.duration` and `messaging.client.sent.messages` of enqueues,
    `messaging.process.duration` and `messaging.client.consumed.messages` of attempts, with `error.type` where they
    failed; and from each process with a keeper `tarry.queue.depth` and `tarry.queue.oldest` of the whole store.

    tracer_provider, meter_provider: the global ones by default. The context travels in the job's headers, as the
    global propagator writes it: W3C `traceparent`, `tracestate` and `baggage` by default.

    Each attempt starts a trace of its own with a link to the enqueue. as_parent: the attempt is a child of the enqueue
    instead, in the same trace.

    Call this before you register other middleware, so that the spans include it. The error of a failed attempt is
    recorded; Snooze and Cancel are not errors. ConfigError if the app is instrumented already.
    """
    register_once(_instrumented, app)
    tracing = Tracing(trace.get_tracer("tarry", tracer_provider=tracer_provider), as_parent)
    app.middleware("enqueue")(tracing.send)
    app.middleware("run")(tracing.run)
    meter = metrics.get_meter("tarry", meter_provider=meter_provider)
    # Within the spans, so that a reader of exemplars finds the trace of a measurement.
    meters = MessagingMeters(meter)
    app.middleware("enqueue")(meters.send)
    app.middleware("run")(meters.run)
    gauges = StoreGauges(app, meter)
    app.on_keeper(gauges.start)
    app.on_close(gauges.close)
    app.on_close(lambda: _flush(tracer_provider or trace.get_tracer_provider()))
    app.on_close(lambda: _flush(meter_provider or metrics.get_meter_provider()))


class Tracing:
    """The middleware for enqueues and for runs."""

    def __init__(self, tracer: Tracer, as_parent: bool) -> None:
        self._tracer = tracer
        self._as_parent = as_parent

    def send(self, job: NewJob, call_next: Callable[[NewJob], Any]) -> Any:
        """Middleware of an enqueue."""
        if job.is_async:
            return self._asend(job, call_next)
        with self._send_span(job) as span:
            return _set_id(span, call_next(job))

    def run(self, job: CurrentJob, call_next: Callable[[CurrentJob], Any]) -> Any:
        """Middleware of a run."""
        if job.is_async:
            return self._arun(job, call_next)
        with self._run_span(job) as span:
            return _record_value(span, job, call_next(job))

    async def _asend(self, job: NewJob, call_next: Callable[[NewJob], Any]) -> Any:
        with self._send_span(job) as span:
            return _set_id(span, await call_next(job))

    async def _arun(self, job: CurrentJob, call_next: Callable[[CurrentJob], Any]) -> Any:
        with self._run_span(job) as span:
            return _record_value(span, job, await call_next(job))

    @contextmanager
    def _send_span(self, job: NewJob) -> Iterator[Span]:
        attributes = _make_attributes("send", job.task, job.queue)
        with self._tracer.start_as_current_span(
            f"send {job.task}", kind=SpanKind.PRODUCER, attributes=attributes
        ) as span:
            context_headers: dict[str, str] = {}
            propagate.inject(context_headers)
            add_headers(job.headers, context_headers)
            yield span

    @contextmanager
    def _run_span(self, job: CurrentJob) -> Iterator[Span]:
        sender = propagate.extract(job.headers)
        producer = trace.get_current_span(sender).get_span_context()
        # Without as_parent the enqueue is not the parent, but its baggage is kept.
        base = sender if self._as_parent else trace.set_span_in_context(INVALID_SPAN, sender)
        # Linked, not nested: a job may run hours after its enqueue, and several times.
        links = [Link(producer)] if producer.is_valid and not self._as_parent else []
        attributes = {
            **_make_attributes("process", job.task, job.queue),
            "messaging.message.id": job.id,
            "tarry.attempt": job.attempt,
        }
        token = context.attach(base)
        try:
            with self._tracer.start_as_current_span(
                f"process {job.task}",
                kind=SpanKind.CONSUMER,
                attributes=attributes,
                links=links,
                # `_record_failure` decides: Snooze, Cancel and the like are raised, but are no errors.
                record_exception=False,
                set_status_on_exception=False,
            ) as span:
                try:
                    yield span
                except BaseException as error:
                    _record_failure(span, attempt_report.failure_error(job.running, None, error))
                    raise
        finally:
            context.detach(token)


def _make_attributes(operation: str, task: str, queue: str) -> dict[str, str | int]:
    return {
        "messaging.system": "tarry",
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": queue,
        "tarry.task": task,
    }


def _set_id(span: Span, handle: Handle[Any]) -> Handle[Any]:
    span.set_attribute("messaging.message.id", handle.id)
    return handle


def _record_value(span: Span, job: CurrentJob, value: Any) -> Any:
    _record_failure(span, attempt_report.failure_error(job.running, value, None))
    return value


def _record_failure(span: Span, failure: BaseException | None) -> None:
    if failure is not None:
        span.record_exception(failure)
        span.set_attribute("error.type", qualified_name(type(failure)))
        span.set_status(Status(StatusCode.ERROR, text_of(failure)))


def _flush(provider: TracerProvider | MeterProvider) -> None:
    # The API's own provider has no such method; only that of the SDK has it.
    flush = getattr(provider, "force_flush", None)
    if flush is not None:
        flush(FLUSH)
