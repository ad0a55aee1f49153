"""The metrics of OpenTelemetry, as a reader of the SDK collects them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from tarry import App, Retry, Snooze
from tarry.errors import StoreAway
from tarry.instrument.otel import instrument
from tarry.store.sqlite.store import SqliteStore
from tests.worker.bench import Bench, finished, until


class Measured(Bench):
    """An app whose metrics are collected."""

    def __init__(self, path: Path) -> None:
        super().__init__(App(f"sqlite:///{path}", closures=True, retry=None), lambda: SqliteStore(path, durable=False))
        self.reader = InMemoryMetricReader()
        instrument(self.app, meter_provider=MeterProvider([self.reader]))

    def points(self, name: str) -> list[Any]:
        """The points of a metric that were collected just now."""
        data = self.reader.get_metrics_data()
        found = [] if data is None else data.resource_metrics
        scopes = [scope for resource in found for scope in resource.scope_metrics]
        return [
            point for scope in scopes for one in scope.metrics if one.name == name for point in one.data.data_points
        ]

    def values(self, name: str, *keys: str) -> dict[tuple[Any, ...], Any]:
        """What was counted, or how often it was measured, by these attributes."""
        return {
            tuple(point.attributes.get(key) for key in keys): getattr(point, "value", None)
            if hasattr(point, "value")
            else point.count
            for point in self.points(name)
        }


@pytest.fixture
def measured(tmp_path: Path) -> Iterator[Measured]:
    measured = Measured(tmp_path / "tarry.db")
    yield measured
    measured.close()


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_enqueues_and_attempts_are_measured(measured: Measured, kind: str) -> None:
    def work() -> None: ...

    async def awork() -> None: ...

    task: Any = measured.app.task(name="pay", queue="money")(work if kind == "sync" else awork)
    measured.work()
    finished(task.enqueue())
    keys = ("messaging.operation.name", "messaging.destination.name", "tarry.task", "error.type")
    until(lambda: measured.points("messaging.process.duration"))
    for name in ("messaging.client.sent.messages", "messaging.client.operation.duration"):
        assert measured.values(name, *keys) == {("send", "money", "pay", None): 1}
    for name in ("messaging.client.consumed.messages", "messaging.process.duration"):
        assert measured.values(name, *keys) == {("process", "money", "pay", None): 1}
    (point,) = measured.points("messaging.process.duration")
    assert point.attributes["messaging.system"] == "tarry"
    assert point.explicit_bounds[-1] == 1800


@pytest.mark.parametrize(
    ("ends", "error"),
    [
        (ValueError("no"), "ValueError"),
        (Retry.after(3600), "tarry.model.verdict.RetryAfter"),
        (Snooze(3600), None),
    ],
)
def test_a_failed_attempt_has_its_kind_of_error(measured: Measured, ends: Any, error: str | None) -> None:
    @measured.app.task(name="pay")
    def pay() -> None:
        raise ends

    measured.work()
    pay.enqueue()
    until(lambda: measured.points("messaging.process.duration"))
    assert measured.values("messaging.process.duration", "error.type") == {(error,): 1}


def test_an_enqueue_that_fails_is_measured(measured: Measured, monkeypatch: pytest.MonkeyPatch) -> None:
    @measured.app.task(name="pay")
    def pay() -> None: ...

    def away(*_: object, **__: object) -> None:
        raise StoreAway("away")

    monkeypatch.setattr(measured.app.client.store, "insert", away)
    with pytest.raises(StoreAway):
        pay.enqueue()
    assert measured.values("messaging.client.sent.messages", "error.type") == {("tarry.errors.StoreAway",): 1}


def test_only_who_has_a_keeper_shows_the_store(measured: Measured) -> None:
    @measured.app.task(name="pay", queue="money")
    def pay() -> None: ...

    pay.enqueue()
    assert measured.points("tarry.queue.depth") == []
    store, is_own = measured.app.connection()
    keeper = measured.app.keeper(store)
    keys = ("messaging.destination.name", "tarry.state")
    depth = measured.values("tarry.queue.depth", *keys)
    assert (depth["money", "ready"], depth["money", "running"]) == (1, 0)
    assert measured.values("tarry.queue.oldest", "messaging.destination.name")["money",] >= 0
    keeper.close()
    measured.app.close()
    assert measured.points("tarry.queue.depth") == []
    if is_own:
        store.close()
