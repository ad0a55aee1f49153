"""Fixtures: one certificate authority for a test run, servers, and apps that deliver."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tarry import App
from tarry.store.memory.store import MemoryStore
from tarry.store.sqlite.store import SqliteStore
from tests.push.certificates import Authority
from tests.push.fixture import DeliveryFixture
from tests.push.server import Server


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def certificate(authority: Authority) -> Path:
    return authority.sign(["hooks.example", "127.0.0.1"])


@pytest.fixture(autouse=True)
def _nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hides any tarry.toml and TARRY_STORE of the environment."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TARRY_STORE", raising=False)


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        yield server


@pytest.fixture
def delivery(server: Server, tmp_path: Path) -> Iterator[DeliveryFixture]:
    path = tmp_path / "tarry.db"
    delivery = DeliveryFixture(
        App(f"sqlite:///{path}", closures=True), lambda: SqliteStore(path, durable=False), server, tmp_path
    )
    yield delivery
    delivery.close()


@pytest.fixture(params=["sqlite", "memory"])
def any_delivery(request: pytest.FixtureRequest, server: Server, tmp_path: Path) -> Iterator[DeliveryFixture]:
    if request.param == "memory":
        store = MemoryStore()
        delivery = DeliveryFixture(App(store, closures=True), lambda: store, server, tmp_path)
    else:
        path = tmp_path / "tarry.db"
        connect = lambda: SqliteStore(path, durable=False)  # noqa: E731
        delivery = DeliveryFixture(App(f"sqlite:///{path}", closures=True), connect, server, tmp_path)
    yield delivery
    delivery.close()
