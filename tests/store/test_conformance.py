"""The promises, kept by every store that we bring."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tarry.store.base import Store
from tarry.store.conformance import Conformance
from tarry.store.memory import MemoryStore
from tarry.store.opening import open_store
from tarry.store.shards.sharded import ShardedStore
from tarry.store.sqlite.store import SqliteStore
from tests.servers.redis import RedisCluster, RedisServer, Watched


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


class TestRedis(Conformance):
    @pytest.fixture
    def store(self, redis_server: RedisServer) -> Iterator[Store]:
        redis_server.empty()
        store = open_store(redis_server.url)
        yield store
        store.close()

    def reopen(self, store: Store) -> Store:
        store.close()
        return open_store(store.url)


class TestRedisCluster(OfTwoShards):
    shards = 6

    @pytest.fixture
    def store(self, redis_cluster: RedisCluster) -> Iterator[Store]:
        redis_cluster.empty()
        store = open_store(f"{redis_cluster.url}?timeout=15s")
        yield store
        store.close()

    def reopen(self, store: Store) -> Store:
        store.close()
        return open_store(store.url)


class TestRedisSentinel(TestRedis):
    @pytest.fixture
    def store(self, redis_watched: Watched) -> Iterator[Store]:
        redis_watched.master.empty()
        store = open_store(f"{redis_watched.url}?timeout=15s")
        yield store
        store.close()


class TestPostgres(Conformance):
    options = ""

    @pytest.fixture
    def store(self, postgres_url: str) -> Iterator[Store]:
        store = open_store(postgres_url + self.options, durable=False)
        yield store
        store.close()

    def reopen(self, store: Store) -> Store:
        store.close()
        return open_store(store.url)


class TestPostgresBehindAPooler(TestPostgres):
    options = "&notify=no"


class TestMariadb(Conformance):
    options = ""

    @pytest.fixture
    def store(self, mariadb_url: str) -> Iterator[Store]:
        store = open_store(mariadb_url + self.options)
        yield store
        store.close()

    def reopen(self, store: Store) -> Store:
        store.close()
        return open_store(store.url + self.options)


class TestMariadbWithoutSkipLocked(TestMariadb):
    options = "?skip_locked=no"
