from collections.abc import Iterator
from pathlib import Path

import pytest

from tarry import App
from tarry.store.sqlite.store import SqliteStore
from tests.worker.bench import Bench


@pytest.fixture(autouse=True)
def _nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No tarry.toml lies about, and no variable says where the store is."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TARRY_STORE", raising=False)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    path = tmp_path / "tarry.db"
    bench = Bench(App(f"sqlite:///{path}", closures=True, retry=None), lambda: SqliteStore(path, durable=False))
    yield bench
    bench.close()
