"""Spans, and how they hang together."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import baggage, context
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from tarry import App, Cancel, Fail, Retry, Snooze, State
from tarry.errors import ConfigError
from tarry.instrument.otel import instrument
from tarry.store.sqlite.store import SqliteStore
from tarry.tasks.new_job import NewJob
from tests.worker.bench import LIMIT, Bench, finished, until

kinds = pytest.mark.parametrize("kind", ["sync", "async"])


class Traced(Bench):
    """An app whose spans are kept."""

    def __init__(self, app: App, path: Path) -> None:
        super().__init__(app, lambda: SqliteStore(path, durable=False))
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    def spans(self, name: str, count: int = 1) -> list[ReadableSpan]:
        """So many of them, once they have ended."""
        until(lambda: len(self._named(name)) >= count)
        return self._named(name)

    def _named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    def task(self, kind: str, body: Any, **settings: Any) -> Any:
        def work() -> Any:
            return body()

        async def awork() -> Any:
            await asyncio.sleep(0)
            return body()

        return self.app.task(name="pay", **settings)(work if kind == "sync" else awork)


@pytest.fixture
def traced(tmp_path: Path) -> Iterator[Traced]:
    path = tmp_path / "tarry.db"
    traced = Traced(App(f"sqlite:///{path}", closures=True, retry=None), path)
    yield traced
    traced.close()


def enqueued(task: Any, way: str) -> Any:
    match way:
        case "enqueue":
            return task.enqueue()
        case "aenqueue":
            return asyncio.run(task.aenqueue())
        case "enqueue_many":
            return task.enqueue_many([()])[0]
        case _:
            return asyncio.run(task.aenqueue_many([()]))[0]


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


@kinds
@pytest.mark.parametrize("way", ["enqueue", "aenqueue", "enqueue_many", "aenqueue_many"])
def test_a_run_links_to_its_enqueue(traced: Traced, kind: str, way: str) -> None:
    instrument(traced.app, traced.provider)
    task = traced.task(kind, lambda: 1, queue="money")
    traced.work()
    job = enqueued(task, way)
    assert job.result(LIMIT) == 1
    (send,), (run,) = traced.spans("send pay"), traced.spans("process pay")
    assert (send.kind, run.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert [(link.context.trace_id, link.context.span_id) for link in run.links] == [
        (send.context.trace_id, send.context.span_id)
    ]
    assert run.parent is None
    assert run.context.trace_id != send.context.trace_id
    shared = {"messaging.system": "tarry", "messaging.destination.name": "money", "tarry.task": "pay"}
    kept = {**shared, "messaging.message.id": job.id}
    assert attributes(send) == kept | {"messaging.operation.type": "send", "messaging.operation.name": "send"}
    assert attributes(run) == kept | {
        "messaging.operation.type": "process",
        "messaging.operation.name": "process",
        "tarry.attempt": 1,
    }
    assert (send.status.status_code, run.status.status_code) == (StatusCode.UNSET, StatusCode.UNSET)


@kinds
def test_a_run_may_be_a_child_of_its_enqueue(traced: Traced, kind: str) -> None:
    instrument(traced.app, traced.provider, as_parent=True)
    task = traced.task(kind, lambda: 1)
    traced.work()
    with traced.provider.get_tracer("test").start_as_current_span("request"):
        job = task.enqueue()
    job.result(LIMIT)
    (request,), (send,), (run,) = traced.spans("request"), traced.spans("send pay"), traced.spans("process pay")
    assert request.context.trace_id == send.context.trace_id == run.context.trace_id
    assert (send.parent and send.parent.span_id) == request.context.span_id
    assert (run.parent and run.parent.span_id) == send.context.span_id
    assert run.links == ()


@kinds
def test_what_the_task_traces_is_within_its_run(traced: Traced, kind: str) -> None:
    instrument(traced.app, traced.provider)
    tracer = traced.provider.get_tracer("test")

    def body() -> Any:
        with tracer.start_as_current_span("charge"):
            return baggage.get_baggage("customer")

    task = traced.task(kind, body)
    traced.work()
    token = context.attach(baggage.set_baggage("customer", "7"))
    job = task.enqueue()
    context.detach(token)
    assert job.result(LIMIT) == "7", "baggage travels too"
    (run,), (charge,) = traced.spans("process pay"), traced.spans("charge")
    assert (charge.parent and charge.parent.span_id) == run.context.span_id


def test_the_context_travels_as_the_w3c_says(traced: Traced) -> None:
    instrument(traced.app, traced.provider)
    job = traced.task("sync", lambda: 1).enqueue()
    (send,) = traced.spans("send pay")
    trace_id, span_id = f"{send.context.trace_id:032x}", f"{send.context.span_id:016x}"
    assert (
        job.record().headers == f'{{"traceparent":"00-{trace_id}-{span_id}-{send.context.trace_flags:02x}"}}'.encode()
    )


@kinds
def test_each_attempt_that_fails_has_its_error(traced: Traced, kind: str) -> None:
    def fail() -> None:
        raise ValueError("no money")

    instrument(traced.app, traced.provider)
    task = traced.task(kind, fail, retry=Retry(1, base=0))
    traced.work()
    assert finished(task.enqueue()) is State.DEAD
    runs = traced.spans("process pay", 2)
    assert [attributes(run)["tarry.attempt"] for run in runs] == [1, 2]
    for run in runs:
        assert (run.status.status_code, run.status.description) == (StatusCode.ERROR, "no money")
        assert attributes(run)["error.type"] == "ValueError"
        (event,) = run.events
        assert event.name == "exception"
        assert dict(event.attributes or {})["exception.message"] == "no money"


@kinds
def test_a_returned_failure_and_a_time_limit_are_errors(traced: Traced, kind: str) -> None:
    verdicts = iter([Retry.after(0), Fail("hopeless")])
    instrument(traced.app, traced.provider)
    task = traced.task(kind, lambda: next(verdicts), retry=1)

    @traced.app.task(name="slow", timeout=0.05)
    async def slow() -> None:
        await asyncio.sleep(LIMIT)

    traced.work()
    assert finished(task.enqueue()) is State.DEAD
    assert finished(slow.enqueue()) is State.DEAD
    first, second = traced.spans("process pay", 2)
    (late,) = traced.spans("process slow")
    assert [span.status.description for span in (first, second, late)] == [
        "asked to be retried after 0",
        "hopeless",
        "stopped after its timeout of 0.05 s",
    ]


@kinds
@pytest.mark.parametrize("raised", [True, False])
def test_what_is_no_failure_is_no_error(traced: Traced, kind: str, raised: bool) -> None:
    verdicts = iter([Snooze(0), Cancel("never mind")])

    def body() -> Any:
        if raised:
            raise next(verdicts)
        return next(verdicts)

    instrument(traced.app, traced.provider)
    task = traced.task(kind, body)
    traced.work()
    assert finished(task.enqueue()) is State.CANCELLED
    for run in traced.spans("process pay", 2):
        assert (run.status.status_code, run.events) == (StatusCode.UNSET, ())


def test_an_enqueue_that_fails_has_its_error(traced: Traced) -> None:
    instrument(traced.app, traced.provider)

    @traced.app.middleware("enqueue")
    def refuse(job: NewJob, call_next: Any) -> Any:
        raise PermissionError("not you")

    with pytest.raises(PermissionError):
        traced.task("sync", lambda: 1).enqueue()
    (send,) = traced.spans("send pay")
    assert send.status.status_code is StatusCode.ERROR


def test_a_job_that_was_enqueued_untraced_runs(traced: Traced) -> None:
    task = traced.task("sync", lambda: 1)
    job = task.enqueue()
    instrument(traced.app, traced.provider)
    traced.work()
    assert job.result(LIMIT) == 1
    (run,) = traced.spans("process pay")
    assert run.links == ()


def test_spans_are_sent_when_the_app_is_closed(traced: Traced, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[int] = []
    monkeypatch.setattr(traced.provider, "force_flush", flushed.append)
    instrument(traced.app, traced.provider)
    traced.app.close()
    assert flushed == [2000]


def test_an_app_is_instrumented_once(traced: Traced) -> None:
    instrument(traced.app)
    with pytest.raises(ConfigError, match="this app is instrumented already"):
        instrument(traced.app)
