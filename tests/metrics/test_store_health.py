"""How a store is: what is told of one, of several, and of one that is away."""

from pathlib import Path

import pytest

from tarry.metrics.store_health import read_health
from tarry.store.memory.store import MemoryStore
from tarry.store.rules.base import Store
from tarry.store.sqlite.store import SqliteStore
from tests.store.switched import Switched, memories


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_store_that_answers(kind: str, tmp_path: Path) -> None:
    store: Store = MemoryStore() if kind == "memory" else SqliteStore(tmp_path / "tarry.db")
    (found,) = read_health(store)
    assert (found.url, found.trouble, found.draining) == (store.url, "", False)
    assert found.latency is not None
    assert 0 < found.latency < 10
    assert list(found.facts) == store.diagnostics()


def test_a_store_that_is_away_says_why() -> None:
    store = Switched(MemoryStore())
    store.down()
    (found,) = read_health(store)
    assert (found.trouble, found.latency, found.facts) == (f"{store.url}: no answer", None, ())


def test_each_of_several_stores_is_told_of() -> None:
    store, (first, second) = memories("ab")
    store.shards[0].draining = True
    second.down()
    up, away = read_health(store)
    assert (up.url, up.trouble, up.draining, up.latency is not None) == (first.url, "", True, True)
    assert (away.url, away.latency) == (second.url, None)
    assert "no answer" in away.trouble
    store.close()
