"""What Sentry is told, by a transport that keeps it."""

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import sentry_sdk
from sentry_sdk.envelope import Envelope
from sentry_sdk.integrations.logging import LoggingIntegration
from sentry_sdk.transport import Transport

from tarry import App, Cancel, CurrentJob, Fail, Retry, Snooze, State
from tarry.client.clock import FakeClock
from tarry.errors import ConfigError
from tarry.instrument import add_headers
from tarry.instrument.sentry import instrument
from tarry.keeper.chores import Keeper
from tarry.model.duration import SECOND
from tarry.model.job import Job
from tarry.store.memory.store import MemoryStore
from tarry.store.rules import ids
from tarry.store.rules.base import BANDS, Want
from tests.worker.bench import LIMIT, Bench, finished, until

kinds = pytest.mark.parametrize("kind", ["sync", "async"])


class Kept(Transport):
    """Sends nothing anywhere."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[dict[str, Any]] = []
        self.transactions: list[dict[str, Any]] = []
        self.flushed = 0

    def capture_envelope(self, envelope: Envelope) -> None:
        for item in envelope.items:
            payload: Any = item.payload.json
            if item.type == "event":
                self.events.append(payload)
            elif item.type == "transaction":
                self.transactions.append(payload)

    def flush(self, timeout: float, callback: Any | None = None) -> None:
        self.flushed += 1


@pytest.fixture
def sentry() -> Iterator[Kept]:
    kept = Kept()
    with sentry_sdk.isolation_scope():
        sentry_sdk.init(
            dsn="http://key@localhost/1",
            transport=kept,
            traces_sample_rate=1.0,
            default_integrations=False,
            integrations=[LoggingIntegration()],
        )
        yield kept
        sentry_sdk.get_client().close(timeout=0)
        sentry_sdk.get_global_scope().set_client(None)


def made(app: App, kind: str, body: Any, **settings: Any) -> Any:
    def work(a: int = 0) -> Any:
        return body()

    async def awork(a: int = 0) -> Any:
        await asyncio.sleep(0)
        return body()

    return app.task(name="pay", **settings)(work if kind == "sync" else awork)


def fail() -> None:
    sentry_sdk.set_tag("of", "this attempt")
    sentry_sdk.add_breadcrumb(message="about to fail")
    raise ValueError("no money")


def runs(sentry: Kept, count: int = 1) -> list[dict[str, Any]]:
    """The transactions of so many attempts, once they are there."""

    def found() -> list[dict[str, Any]]:
        return [told for told in sentry.transactions if told["contexts"]["trace"]["op"] == "queue.task.tarry"]

    until(lambda: len(found()) >= count)
    return found()


@kinds
def test_each_failed_attempt_is_told_once(bench: Bench, sentry: Kept, kind: str) -> None:
    instrument(bench.app, arguments=True)
    task = made(bench.app, kind, fail, retry=Retry(1, base=0), queue="money")
    bench.work()
    job = task.enqueue(7)
    assert finished(job) is State.DEAD
    first, second = runs(sentry, 2)
    assert len(sentry.events) == 2
    for attempt, event, run in zip((1, 2), sentry.events, (first, second), strict=True):
        (error,) = event["exception"]["values"]
        assert (error["type"], error["value"]) == ("ValueError", "no money")
        assert error["mechanism"] == {"type": "tarry", "handled": False}
        assert error["stacktrace"]["frames"][-1]["function"] == "fail"
        known = {"tarry.task": "pay", "tarry.queue": "money", "tarry.job": job.id, "tarry.attempt": str(attempt)}
        assert {name: str(value) for name, value in event["tags"].items()} == {**known, "of": "this attempt"}
        assert event["transaction"] == "pay"
        assert [crumb["message"] for crumb in event["breadcrumbs"]["values"]] == ["about to fail"]
        assert event["contexts"]["tarry"]["args"] == [7]
        assert event["contexts"]["trace"]["span_id"] == run["contexts"]["trace"]["span_id"]
        assert run["contexts"]["trace"]["status"] == "internal_error"


@kinds
def test_only_the_last_failure_if_asked(bench: Bench, sentry: Kept, kind: str) -> None:
    instrument(bench.app, only_dead=True)
    task = made(bench.app, kind, fail, retry=Retry(2, base=0))
    bench.work()
    assert finished(task.enqueue()) is State.DEAD
    (event,) = sentry.events
    assert event["tags"]["tarry.attempt"] in (3, "3")
    assert event["breadcrumbs"]["values"][0]["message"] == "about to fail"
    assert "tarry" not in event["contexts"], "arguments may be personal"


@kinds
def test_what_is_no_failure_is_not_told(bench: Bench, sentry: Kept, kind: str) -> None:
    verdicts = iter([Snooze(0), Cancel("never mind")])

    def body() -> None:
        raise next(verdicts)

    instrument(bench.app)
    task = made(bench.app, kind, body)
    bench.work()
    assert finished(task.enqueue()) is State.CANCELLED
    assert [run["contexts"]["trace"].get("status") for run in runs(sentry, 2)] == ["ok", "ok"]
    assert sentry.events == []


@kinds
def test_failures_without_an_error_of_the_tasks_own(bench: Bench, sentry: Kept, kind: str) -> None:
    values = iter([Fail("hopeless"), object()])
    instrument(bench.app, arguments=True)
    task = made(bench.app, kind, lambda: next(values))

    @bench.app.task(name="slow", timeout=0.05)
    async def slow() -> None:
        await asyncio.sleep(LIMIT)

    bench.work()
    for job in (task.enqueue(), task.enqueue(), slow.enqueue()):
        assert finished(job) is State.DEAD
    misfit = Job(ids.uuid7(), "pay", b'["x"]', due=bench.app.client.clock.now())
    bench.store().insert([misfit])
    assert finished(bench.app.get(misfit.id)) is State.DEAD
    told = {event["exception"]["values"][-1]["type"]: event for event in sentry.events}
    assert set(told) == {"Fail", "JobFailed", "TimeLimit", "ArgumentError"}
    assert all(event["tags"]["tarry.job"] for event in sentry.events)
    assert told["ArgumentError"]["contexts"]["tarry"]["args"].startswith("pay: argument a")


@kinds
@pytest.mark.parametrize("way", ["enqueue", "aenqueue"])
def test_a_run_is_in_the_trace_of_its_enqueue(bench: Bench, sentry: Kept, kind: str, way: str) -> None:
    instrument(bench.app)
    task = made(bench.app, kind, lambda: sentry_sdk.start_span(op="charge", name="card").__enter__().finish())
    bench.work()
    with sentry_sdk.start_transaction(op="http.server", name="/buy"):
        job = task.enqueue() if way == "enqueue" else asyncio.run(task.aenqueue())
    job.result(LIMIT)
    (run,) = runs(sentry)
    (request,) = [told for told in sentry.transactions if told["transaction"] == "/buy"]
    (publish,) = request["spans"]
    assert (publish["op"], publish["description"]) == ("queue.publish", "pay")
    assert publish["data"]["messaging.message.id"] == job.id
    assert run["contexts"]["trace"]["trace_id"] == request["contexts"]["trace"]["trace_id"]
    assert run["contexts"]["trace"]["parent_span_id"] == publish["span_id"]
    assert run["transaction"] == "pay"
    assert run["contexts"]["trace"]["data"]["messaging.destination.name"] == "default"
    assert [span["op"] for span in run["spans"]] == ["charge"]


@kinds
def test_attempts_at_the_same_time_are_kept_apart(bench: Bench, sentry: Kept, kind: str) -> None:
    numbers = iter(range(20))

    def body() -> None:
        number = next(numbers)
        sentry_sdk.set_tag(f"number {number}", "here")
        raise ValueError(number)

    instrument(bench.app)
    task = made(bench.app, kind, body)
    jobs = task.enqueue_many([(n,) for n in range(20)])
    bench.work(threads=4)
    for job in jobs:
        assert finished(job) is State.DEAD
    for event in sentry.events:
        number = event["exception"]["values"][0]["value"]
        assert [name for name in event["tags"] if name.startswith("number")] == [f"number {number}"]


def test_other_errors_in_the_log_are_told_as_ever(bench: Bench, sentry: Kept) -> None:
    instrument(bench.app)
    task = made(bench.app, "sync", lambda: 1)

    @bench.app.on_success
    def broken(job: CurrentJob, value: Any) -> None:
        raise KeyError("a bug in a hook")

    bench.work()
    task.enqueue().result(LIMIT)
    logging.getLogger("tarry.worker").error("the store is away")
    assert [event["logentry"]["message"][:8] for event in sentry.events] == ["hook %s ", "the stor"]


def test_a_job_whose_workers_died_is_told_by_the_keeper(bench: Bench, sentry: Kept) -> None:
    app, clock = bench.app, FakeClock()
    instrument(app)
    made(app, "sync", lambda: 1)
    store = MemoryStore(clock.now)
    keeper: Keeper = app.keeper(store, clock)
    store.insert([Job(ids.uuid7(), "pay", b"[]", due=clock.now(), failures=2, crashes=2)])
    (job,) = store.claim([Want("default", band, 1) for band in BANDS], 1, "gone", 30 * SECOND, clock.now())
    keeper.rescue("gone", on=[job.id.hex()])
    keeper.close()
    (event,) = sentry.events
    assert event["exception"]["values"][0]["type"] == "JobFailed"
    assert event["tags"]["tarry.job"] == ids.text(job.id)


def test_what_is_left_is_sent_when_the_app_is_closed(bench: Bench, sentry: Kept) -> None:
    instrument(bench.app)
    bench.app.close()
    assert sentry.flushed == 1


def test_without_sentry_all_goes_on(bench: Bench) -> None:
    instrument(bench.app)
    task = made(bench.app, "sync", fail)
    bench.work()
    assert finished(task.enqueue()) is State.DEAD


def test_an_app_is_instrumented_once(bench: Bench) -> None:
    instrument(bench.app)
    with pytest.raises(ConfigError, match="this app is instrumented already"):
        instrument(bench.app)


def test_baggage_of_several_tools_travels_together() -> None:
    headers = {"baggage": "customer=7", "traceparent": "1"}
    add_headers(headers, {"baggage": "sentry-trace_id=5", "traceparent": "2", "sentry-trace": "3"})
    assert headers == {"baggage": "customer=7,sentry-trace_id=5", "traceparent": "2", "sentry-trace": "3"}
