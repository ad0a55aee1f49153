"""Apps, stores and clocks to test with; all of them end with the test."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tarry import App
from tarry.client.clock import FakeClock
from tarry.store.memory.store import MemoryStore
from tarry.store.rules.base import Store
from tarry.store.sqlite.store import SqliteStore
from tarry.worker import capacity, claim_plan, held_leases
from tarry.worker import pump as pumping
from tests.worker.bench import Bench
from tests.worker.manual_pump import MakePump, ManualPump, Monotonic


@pytest.fixture(scope="session")
def _empty_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("empty")


@pytest.fixture(autouse=True)
def nowhere(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, _empty_directory: Path) -> Iterator[None]:
    """No tarry.toml lies about, and no variable says where the store is. To make and remove a directory for each of
    twenty thousand tests takes half a minute: those that have none of their own share one."""
    monkeypatch.delenv("TARRY_STORE", raising=False)
    if "tmp_path" in request.fixturenames:
        monkeypatch.chdir(request.getfixturevalue("tmp_path"))
        yield
    else:
        monkeypatch.chdir(_empty_directory)
        yield
        if left := os.listdir(_empty_directory):
            shutil.rmtree(_empty_directory)
            _empty_directory.mkdir()
            raise AssertionError(f"the test has left {left} where it ran: it needs tmp_path")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(params=["sqlite", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock) -> Iterator[Store]:
    store = MemoryStore(clock.now) if request.param == "memory" else SqliteStore(tmp_path / "tarry.db")
    yield store
    store.close()


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    app = App(f"sqlite:///{tmp_path}/tarry.db", closures=True, retry=None)
    yield app
    app.close()


@pytest.fixture
def bench(app: App, tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(app, lambda: SqliteStore(tmp_path / "tarry.db", durable=False))
    yield bench
    bench.close()


@pytest.fixture(params=["sqlite", "memory"])
def any_bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    if request.param == "memory":
        store = MemoryStore()
        bench = Bench(App(store, closures=True, retry=None), lambda: store)
    else:
        path = tmp_path / "tarry.db"
        bench = Bench(App(f"sqlite:///{path}", closures=True, retry=None), lambda: SqliteStore(path, durable=False))
    yield bench
    bench.close()


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Monotonic:
    """Stands still until told otherwise, also for the pump."""
    time = Monotonic()
    for module in (pumping, capacity, claim_plan, held_leases):
        monkeypatch.setattr(module, "time", time)
    return time


@pytest.fixture
def make(time: Monotonic) -> Iterator[MakePump]:
    beds: list[ManualPump] = []

    def make(**settings: Any) -> ManualPump:
        beds.append(ManualPump(time, **settings))
        return beds[-1]

    yield make
    for manual in beds:
        manual.pump.wakeup.close()
