"""An app, and what works for it, on each kind of store that keeps signals."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tarry import App
from tarry.store.memory.store import MemoryStore
from tarry.store.rules.base import Store
from tests.apps import nowhere  # noqa: F401 - a fixture of all tests here
from tests.servers.redis import RedisServer
from tests.worker.bench import Bench

STORES = ["memory", "sqlite", "sqlite-shards", "postgres", "mariadb", "redis"]


@pytest.fixture(params=STORES)
def durable(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    """On each kind of store."""
    kind = request.param
    if kind == "memory":
        store: Store | str | list[str] = MemoryStore()
    elif kind == "redis":
        server: RedisServer = request.getfixturevalue("redis_server")
        server.empty()
        store = server.url
    elif kind == "sqlite-shards":
        store = [f"sqlite:///{tmp_path}/{number}.db" for number in range(2)]
    else:
        store = f"sqlite:///{tmp_path}/jobs.db" if kind == "sqlite" else request.getfixturevalue(f"{kind}_url")
    yield from _open(store)


@pytest.fixture
def fast(tmp_path: Path) -> Iterator[Bench]:
    """On SQLite alone: for what is the same everywhere."""
    yield from _open(f"sqlite:///{tmp_path}/jobs.db")


def _open(store: Store | str | list[str]) -> Iterator[Bench]:
    app = App(store, closures=True, retry=3)
    bench = Bench(app, (lambda: store) if isinstance(store, Store) else lambda: app.open_store(durable=False))
    yield bench
    bench.close()
