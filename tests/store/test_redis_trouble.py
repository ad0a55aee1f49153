"""What happens to Redis servers while jobs are put and run: nothing that was promised is lost, and nobody has to start
anything again but the server."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from msgspec.structs import replace

from tarry.errors import StoreFull, StoreReadOnly, StoreUnavailable
from tarry.model import lifecycle
from tarry.model.job import Job
from tarry.model.lifecycle import DEFAULT
from tarry.model.outcome import Returned
from tarry.store.conformance.cases.jobs import NOW, made, put, taken
from tarry.store.opening import open_store
from tarry.store.redis.link.cluster import slot_of, tags
from tarry.store.rules.base import Store
from tests.servers.redis import RedisCluster, RedisServer, Watched, until
from tests.store.redis_load import Load
from tests.store.redis_moving import Slot

PATIENT = "?timeout=15s"


def started(path: Path, *options: str) -> Iterator[RedisServer]:
    server = RedisServer(path / "redis", *options)
    server.start()
    yield server
    server.kill()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    yield from started(tmp_path)


# Not everysec: while a slow disk is busy with a sync, the server answers before it writes.
@pytest.fixture(params=["always", "no"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RedisServer]:
    """A server that keeps what it has on disk."""
    yield from started(tmp_path, "--appendonly", "yes", "--appendfsync", request.param)


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[RedisServer]:
    """One that answers while it reads its data."""
    yield from started(tmp_path, "--appendonly", "yes", "--loading-process-events-interval-bytes", "1024")


@pytest.fixture
def store(server: RedisServer) -> Iterator[Store]:
    store = open_store(f"{server.url}{PATIENT}")
    yield store
    store.close()


class TestUnderLoad:
    def test_its_scripts_are_forgotten(self, server: RedisServer) -> None:
        with Load(server.url + PATIENT) as load:
            for _ in range(5):
                server.call("SCRIPT", "FLUSH")
                server.call("FUNCTION", "FLUSH")
                load.goes_on()
        assert load.errors == []

    def test_connections_are_cut(self, server: RedisServer) -> None:
        """No enqueue fails: it is sent again, and stored once all the same."""
        with Load(server.url + PATIENT) as load:
            for _ in range(10):
                server.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
                server.call("CLIENT", "KILL", "TYPE", "pubsub")
                load.goes_on(20)
        assert load.errors == []

    def test_killed(self, kept: RedisServer) -> None:
        """With an append-only file: the death of the process alone loses nothing that was written."""
        with Load(kept.url + PATIENT) as load:
            for _ in range(3):
                kept.kill()
                kept.start()
                load.goes_on()

    def test_halted(self, server: RedisServer) -> None:
        """Calls fail within the time limit; afterwards everything goes on."""
        with Load(f"{server.url}?timeout=300ms") as load:
            server.halt()
            until(lambda: len(load.errors) >= 4, "calls to fail")
            server.resume()
            load.goes_on()
        assert all(isinstance(error, StoreUnavailable) for error in load.errors)


class TestServer:
    def test_halted_is_noticed_in_time(self, server: RedisServer) -> None:
        store = open_store(f"{server.url}?timeout=300ms")
        server.halt()
        start = time.monotonic()
        with pytest.raises(StoreUnavailable, match="no answer in time"):
            store.next_due()
        assert time.monotonic() - start < 15
        server.resume()
        assert store.next_due() is None
        store.close()

    def test_away_for_long(self, server: RedisServer) -> None:
        """An outage is waited out once; after that calls fail at once, and when it is back nothing needs a restart."""
        store = open_store(f"{server.url}?timeout=500ms")
        server.kill()
        with pytest.raises(StoreUnavailable, match="Connection refused"):
            put(store)
        start = time.monotonic()
        for _ in range(20):
            with pytest.raises(StoreUnavailable, match="Connection refused"):
                store.next_due()
        assert time.monotonic() - start < 5, "twenty times the time limit would be ten"
        server.start()
        assert put(store)
        store.close()

    def test_loading(self, slow: RedisServer) -> None:
        """It has started, and still reads its data: that is waited out too."""
        store = open_store(f"{slow.url}{PATIENT}")
        (job, *_) = [put(store)[0] for _ in range(700)]
        slow.kill()
        slow.options = (*slow.options, "--key-load-delay", "500")

        def meanwhile() -> list[Job | None]:
            until(lambda: "LOADING" in said(slow), "it to load")
            with pytest.raises(StoreUnavailable, match=r"reading its data|no answer in time"):
                open_store(f"{slow.url}?timeout=1s").close()
            return store.get([job.id])

        with ThreadPoolExecutor(1) as pool:
            found = pool.submit(meanwhile)
            slow.start()
            assert found.result(60) == [job]
        store.close()

    def test_full(self, server: RedisServer, store: Store) -> None:
        """New jobs are refused, with nothing stored; what is there is still worked off; then there is room again."""
        put(store, 2000, body=b"x" * 1000)
        server.call("CONFIG", "SET", "maxmemory", "1mb")
        (refused,) = made(store)
        with pytest.raises(StoreFull, match="maxmemory"):
            store.insert([refused])
        assert store.get([refused.id]) == [None]
        while jobs := taken(store, 100):
            changes = [lifecycle.after(job, Returned(), replace(DEFAULT, keep_done=0), NOW) for job in jobs]
            assert store.exchange(changes, (), 0, "ann", 1, NOW).valid == [True] * len(jobs)
        server.call("CONFIG", "SET", "maxmemory", "0")
        assert store.insert([refused]) == [refused.id]

    def test_made_a_replica(self, server: RedisServer, store: Store, redis_server: RedisServer) -> None:
        (job,) = put(store)
        server.call("REPLICAOF", "127.0.0.1", "1")
        with pytest.raises(StoreReadOnly, match=r"redis\+sentinel://"):
            put(store)
        with pytest.raises(StoreReadOnly, match=r"redis\+sentinel://"):
            open_store(server.url)
        server.call("REPLICAOF", "NO", "ONE")
        assert [found.id for found in taken(store)] == [job.id]


@pytest.mark.chaos
class TestFailover:
    def test_sentinels(self, tmp_path: Path) -> None:
        """Under load the master dies for good, and its replica takes over: what was confirmed by it is there."""
        watched = Watched(tmp_path)
        watched.start()
        try:
            with Load(f"{watched.url}{PATIENT}", replica=True) as load:
                dead = watched.master
                dead.kill()
                until(lambda: watched.master is not dead, "the sentinels to choose")
                until(lambda: any("0 of 1" in str(error) for error in load.errors), "the new master to be alone")
                dead.start()
                # The sentinels would say so too, in some ten seconds.
                dead.call("REPLICAOF", "127.0.0.1", str(watched.master.port))
                load.goes_on()
        finally:
            watched.stop()

    def test_a_cluster(self, tmp_path: Path) -> None:
        """The same of one master of three; the parts of the others go on meanwhile."""
        cluster = RedisCluster(tmp_path)
        cluster.start()
        try:
            with Load(f"{cluster.url}?timeout=15s&parts=6", replica=True, producers=6) as load:
                dead = cluster.masters()[0]
                dead.kill()
                until(lambda: len(cluster.masters()) == 3, "its replica to take over")
                dead.start()
                until(lambda: "master_link_status:up" in dead.call("INFO", "replication"), "it to be in step")
                load.goes_on()
        finally:
            cluster.stop()

    def test_slots_move(self, redis_cluster: RedisCluster) -> None:
        """Slots of parts go to other nodes and back, under load."""
        redis_cluster.empty()
        with Load(f"{redis_cluster.url}?timeout=15s&parts=3") as load:
            for tag in tags("tarry", 3):
                slot = Slot(redis_cluster, slot_of(tag))
                for _ in range(2):
                    slot.begin()
                    slot.carry(1)
                    slot.finish()
                    load.goes_on()
        assert load.errors == []


def said(server: RedisServer) -> str:
    """Its answer to a PING; "" while it does not listen."""
    try:
        return server.call("PING")
    except OSError:
        return ""
