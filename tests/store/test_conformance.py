"""The promises, kept by every store that we bring."""

from collections.abc import Iterator
from pathlib import Path
from typing import cast
from unittest.mock import patch

import psycopg
import pytest

from tarry.model.job import Job
from tarry.model.limit import Level
from tarry.store.conformance import Conformance
from tarry.store.conformance.claiming import Claiming
from tarry.store.conformance.error_grouping import ErrorGrouping
from tarry.store.conformance.limits.bulk_limiting import BulkLimiting
from tarry.store.conformance.limits.limiting import Limiting
from tarry.store.conformance.limits.place_keeping import PlaceKeeping
from tarry.store.conformance.limits.relimiting import LaneAssignment, Relimiting
from tarry.store.conformance.losing import Losing, LossyLine
from tarry.store.conformance.racing import Racing
from tarry.store.conformance.waking import Waking
from tarry.store.memory.store import MemoryStore
from tarry.store.mysql.store import MysqlStore
from tarry.store.opening import open_store
from tarry.store.payloads.payload_store import PayloadStore
from tarry.store.postgres import scan_start
from tarry.store.postgres.constants import in_schema
from tarry.store.postgres.link.url import parse_url
from tarry.store.postgres.store import PostgresStore
from tarry.store.postgres.stored_functions import FUNCTIONS
from tarry.store.redis.link.connection import RedisConnection
from tarry.store.redis.store import RedisStore
from tarry.store.rules.base import Store
from tarry.store.sealing.fields import FieldSealer
from tarry.store.sealing.key_ring import KeyRing
from tarry.store.sealing.sealed_store import SealedStore
from tarry.store.shards.sharded import ShardedStore
from tarry.store.sql import lane_claim
from tarry.store.sqlite.store import SqliteStore
from tests.away.proxy import lossy
from tests.payloads.memory_place import MemoryPlace
from tests.servers.redis import RedisCluster, RedisServer, Watched
from tests.store.one_shard import LanesTogether, with_lanes_together

_LEVEL = "INSERT INTO {} (name, running, next) VALUES ('{}', {}, 0) {}"


def miscount(store: Store, name: str, running: int) -> None:
    """Lets the level say that so many run, in each part of the store."""
    if isinstance(store, ShardedStore):
        for part in store.stores:
            miscount(part, name, running)
    elif isinstance(store, MemoryStore):
        store._levels[name] = Level(running, 0)
    elif isinstance(store, SqliteStore):
        store._db.execute(_LEVEL.format("tarry_level", name, running, f"ON CONFLICT DO UPDATE SET running = {running}"))
    elif isinstance(store, PostgresStore):
        text = _LEVEL.format("{s}.level", name, running, f"ON CONFLICT (name) DO UPDATE SET running = {running}")
        store._call(lambda link: link.run(store._for_schema(text)))
    elif isinstance(store, MysqlStore):
        text = _LEVEL.format("tarry_level", name, running, f"ON DUPLICATE KEY UPDATE running = {running}")
        store._write(lambda link: link.run(text))
    else:
        assert isinstance(store, RedisStore)
        store._link.command("HSET", f"{store._prefix}:levels", name, f"{running} 0")


def lose(store: Store, job: Job) -> bool:
    """Deletes a blocked job behind the store's back."""
    if isinstance(store, ShardedStore):
        return any(lose(part, job) for part in store.stores)
    if isinstance(store, MemoryStore):
        return store._jobs.pop(job.id, None) is not None
    if isinstance(store, SqliteStore):
        return bool(store._change("DELETE FROM tarry_job WHERE id = ?1", (job.id,)))
    if isinstance(store, MysqlStore):
        return bool(store._change("DELETE FROM tarry_job WHERE id = ?1", (job.id,)))
    if isinstance(store, PostgresStore):
        return bool(store._change("DELETE FROM {s}.job WHERE id = encode(?1, 'hex')::uuid", (job.id,)))
    assert isinstance(store, RedisStore)
    pages = store._command("ZRANGE", "ids", 0, -1)
    (page,) = [page for page in pages if job.id in page] or [b""]
    if not page:
        return False
    store._command("ZREM", "ids", page)
    if rest := page.replace(job.id, b""):
        store._command("ZADD", "ids", 0, rest)
    return bool(store._command("HDEL", "jobs", job.id))


def count_labels(store: Store) -> int:
    """How many labels of jobs are in the index of each part of the store."""
    if isinstance(store, ShardedStore):
        return sum(map(count_labels, store.stores))
    if isinstance(store, MemoryStore):
        return sum(map(len, store._index.labelled.values()))
    if isinstance(store, RedisStore):
        lines = store._command("KEYS", "label:*")
        pages = [store._link.command("ZRANGE", line, 0, -1) for line in lines]
        return sum(len(b"".join(some)) for some in pages) // 16
    assert isinstance(store, SqliteStore | PostgresStore | MysqlStore)
    ((count,),) = store._rows(f"SELECT count(*) FROM {store._sql.tables}label")
    return int(count)


def sealed(store: Store) -> Store:
    """The store, with a key."""
    return cast("Store", SealedStore(store, FieldSealer(KeyRing([b"k" * 32])), lambda task: True))


class Loader(FieldSealer):
    """Opens what a `PayloadStore` keeps apart, and seals nothing."""

    def __init__(self, store: PayloadStore) -> None:
        super().__init__(KeyRing([b"k" * 32]))
        self._store = store

        for verb in ("change", "progress", "flow_change", "signal", "result"):
            setattr(self, f"seal_{verb}", lambda *args: args[-1])

    def open_job(self, job: Job) -> Job:
        return self._store.load_result(self._store.load_arguments(job))


def apart(store: Store) -> Store:
    """The store, with a place for all arguments and results; whoever reads its jobs gets them whole."""
    kept = PayloadStore(store, MemoryPlace(), over=1, most=2**30)
    return cast("Store", SealedStore(cast("Store", kept), Loader(kept), lambda task: False))


class Ours(Conformance):
    is_variant = False
    """The same engine has all tests in another class: `make test` runs each of them with one of its parameters."""
    differs_in: tuple[type, ...] = ()
    """Of a variant: these tests alone, where no other call is made in another way."""

    @pytest.fixture(autouse=True)
    def every_claim_asks_all(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A busy worker asks some of several stores only now and then: `test_asked_shards`."""
        monkeypatch.setattr("tarry.store.shards.exchange.BUSY_AFTER", 10**9)

    def count_labels(self, store: Store) -> int:
        return count_labels(store)

    def lose(self, store: Store, job: Job) -> bool:
        return lose(store, job)

    def miscount(self, store: Store, name: str, running: int) -> bool:
        miscount(store, name, running)
        return True


class TestMemory(Ours):
    @pytest.fixture
    def store(self) -> Store:
        return MemoryStore()


class TestSqlite(Ours):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[Store]:
        store = SqliteStore(tmp_path / "jobs.db", durable=False)
        yield store
        store.close()

    def reopen(self, store: Store) -> Store:
        assert isinstance(store, SqliteStore)
        store.close()
        return SqliteStore(store.path)


_BY_SIZE = (
    "test_prune_by_bytes", "test_prune_by_time_counts_for_the_bytes", "test_prune_by_the_bytes_of_each_queue",
    "test_counts", "test_it_comes_with_the_job", "test_of_two_edits_the_second_is_refused",
)  # fmt: skip
_BY_SIZE_OR_MESSAGE = (
    *_BY_SIZE,
    "test_a_node_that_fails_counts_once_and_its_flow_not",
    *(name for name in vars(ErrorGrouping) if name.startswith("test_")),
)  # fmt: skip


class Sealed(Ours):
    """What jobs say is sealed before the store sees it: all is as without, but that it takes more bytes, and that the
    messages of errors are not told."""

    is_variant = True
    locals().update(dict.fromkeys(_BY_SIZE_OR_MESSAGE))


class TestMemorySealed(Sealed):
    @pytest.fixture
    def store(self) -> Store:
        return sealed(MemoryStore())


class Apart(Ours):
    """Arguments and results are kept outside of the store: all is as without, but that they take fewer bytes there."""

    is_variant = True
    locals().update(dict.fromkeys(_BY_SIZE))


class TestMemoryApart(Apart):
    @pytest.fixture
    def store(self) -> Store:
        return apart(MemoryStore())


class TestSqliteApart(Apart):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[Store]:
        store = SqliteStore(tmp_path / "jobs.db", durable=False)
        yield apart(store)
        store.close()


class TestSqliteSealed(Sealed):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[Store]:
        store = SqliteStore(tmp_path / "jobs.db", durable=False)
        yield sealed(store)
        store.close()


class OfTwoShards(Ours):
    shards = 2

    def together(self, store: Store, count: int) -> list[bytes]:
        assert isinstance(store, ShardedStore)
        ids: list[bytes] = []
        while len(ids) < count:
            ids += [drawn for drawn in [store.new_id("mail", None)] if store.shard(drawn) == 0]
        return ids


class TestMemoryShards(OfTwoShards):
    @pytest.fixture
    def store(self) -> Store:
        return LanesTogether([MemoryStore(name="a"), MemoryStore(name="b")])


class TestSqliteShards(OfTwoShards):
    is_variant = True

    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[Store]:
        store = LanesTogether([SqliteStore(tmp_path / f"{n}.db", durable=False) for n in range(2)])
        yield store
        store.close()

    def reopen(self, store: Store) -> Store:
        assert isinstance(store, ShardedStore)
        store.close()
        return LanesTogether([SqliteStore(part.path) for part in store.stores if isinstance(part, SqliteStore)])


class TestRedis(Ours):
    own_clock = True

    @pytest.fixture
    def store(self, redis_server: RedisServer) -> Iterator[Store]:
        redis_server.empty()
        store = open_store(redis_server.url)
        yield store
        store.close()

    def reopen(self, store: Store) -> Store:
        store.close()
        return open_store(store.url)

    def line(self, store: Store) -> Iterator[LossyLine]:
        return lossy(store, "?timeout=1s")


class TestRedisWithoutFunctions(TestRedis):
    """As where the account may call none, or the server has none."""

    is_variant = True

    @pytest.fixture(autouse=True)
    def only_scripts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(RedisConnection, "calls_functions", False)


class TestRedisCluster(OfTwoShards):
    is_variant = True
    own_clock = True
    shards = 6

    @pytest.fixture
    def store(self, redis_cluster: RedisCluster) -> Iterator[Store]:
        redis_cluster.empty()
        store = with_lanes_together(open_store(f"{redis_cluster.url}?timeout=15s"))
        yield store
        store.close()

    def reopen(self, store: Store) -> Store:
        store.close()
        return with_lanes_together(open_store(store.url))


class TestRedisSentinel(TestRedis):
    is_variant = True
    differs_in = (Claiming, Racing, Waking)

    @pytest.fixture
    def store(self, redis_watched: Watched) -> Iterator[Store]:
        redis_watched.master.empty()
        store = open_store(f"{redis_watched.url}?timeout=15s")
        yield store
        store.close()

    def line(self, store: Store) -> Iterator[LossyLine]:
        # The sentinels name the server itself, so no proxy is in the way.
        return iter(())


class TestPostgres(Ours):
    own_clock = True
    options = ""

    @pytest.fixture
    def store(self, postgres_url: str) -> Iterator[Store]:
        store = open_store(postgres_url + self.options, durable=False)
        yield store
        store.close()

    def reopen(self, store: Store) -> Store:
        store.close()
        return open_store(store.url)

    def line(self, store: Store) -> Iterator[LossyLine]:
        # As if each call took long: what is stored is set aside by a second one.
        with patch.object(scan_start, "STORED_WITHIN", -1):
            yield from lossy(store, "&timeout=1" + self.options)


class TestPostgresBehindAPooler(TestPostgres):
    is_variant = True
    differs_in = (Claiming, Losing, Racing, Waking)
    options = "&notify=no"


class TestPostgresBehindPgbouncer(TestPostgres):
    """In transaction mode, with another session for each transaction."""

    is_variant = True
    options = "&notify=no"

    @pytest.fixture
    def store(self, pgbouncer_url: str) -> Iterator[Store]:
        store = open_store(pgbouncer_url, durable=False)
        yield store
        store.close()


class TestPostgresLanesFromOutside(TestPostgres):
    """Every claim under limits is one for Python, as where keys have numbers of their own. It closes each full lane."""

    is_variant = True
    differs_in = (BulkLimiting, LaneAssignment, Limiting, PlaceKeeping, Relimiting)

    @pytest.fixture
    def store(self, postgres_url: str) -> Iterator[Store]:
        (claim,) = (text for text in FUNCTIONS.statements if "FUNCTION {s}.claim_in_lanes_v1(" in text)
        does_nothing = claim.partition("#variable_conflict")[0] + "BEGIN\nEND\n$function$"
        with psycopg.connect(postgres_url.partition("?")[0], autocommit=True) as link:
            link.execute(in_schema(does_nothing, parse_url(postgres_url).schema))
        store = open_store(postgres_url, durable=False)
        with patch.object(lane_claim, "FEW_FULL", 0):
            yield store
        store.close()


class TestMariadb(Ours):
    own_clock = True
    options = ""

    @pytest.fixture
    def store(self, mariadb_url: str) -> Iterator[Store]:
        store = open_store(mariadb_url + self.options)
        yield store
        store.close()

    def reopen(self, store: Store) -> Store:
        store.close()
        return open_store(store.url + self.options)

    def line(self, store: Store) -> Iterator[LossyLine]:
        return lossy(store, self.options)


class TestMariadbWithoutSkipLocked(TestMariadb):
    is_variant = True
    differs_in = (BulkLimiting, Claiming, LaneAssignment, Limiting, Losing, PlaceKeeping, Racing, Relimiting, Waking)
    options = "?skip_locked=no"

    @pytest.fixture
    def store(self, mariadb_url: str) -> Iterator[Store]:
        store = open_store(mariadb_url + self.options)
        with patch.object(lane_claim, "FEW_FULL", 0):
            yield store
        store.close()
