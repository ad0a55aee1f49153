"""The promises, kept by every store that we bring."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tarry.store.base import Store
from tarry.store.conformance import Conformance
from tarry.store.memory import MemoryStore
from tarry.store.sharded import ShardedStore
from tarry.store.sqlite import SqliteStore


class TestMemory(Conformance):
    @pytest.fixture
    def store(self) -> Store:
        return MemoryStore()


class TestSqlite(Conformance):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[Store]:
        store = SqliteStore(tmp_path / "jobs.db", durable=False)
        yield store
        store.close()

    def reopen(self, store: Store) -> Store:
        assert isinstance(store, SqliteStore)
        store.close()
        return SqliteStore(store.path)


class OfTwoShards(Conformance):
    shards = 2

    def together(self, store: Store, count: int) -> list[bytes]:
        assert isinstance(store, ShardedStore)
        ids: list[bytes] = []
        while len(ids) < count:
            ids += [drawn for drawn in [store.mint("mail", None)] if store.shard(drawn) == 0]
        return ids


class TestMemoryShards(OfTwoShards):
    @pytest.fixture
    def store(self) -> Store:
        return ShardedStore([MemoryStore(name="a"), MemoryStore(name="b")])


class TestSqliteShards(OfTwoShards):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[Store]:
        store = ShardedStore([SqliteStore(tmp_path / f"{n}.db", durable=False) for n in range(2)])
        yield store
        store.close()

    def reopen(self, store: Store) -> Store:
        assert isinstance(store, ShardedStore)
        store.close()
        return ShardedStore([SqliteStore(part.path) for part in store.stores if isinstance(part, SqliteStore)])
