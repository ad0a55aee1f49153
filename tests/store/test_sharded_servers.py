"""Servers of different kinds as one store: jobs move between them unchanged, and one that dies stops nobody."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tarry import App
from tarry.client.handle import Handle
from tarry.errors import StoreUnavailable
from tarry.store.opening import open_store
from tarry.store.rules.base import Query, Store
from tarry.store.shards import shard
from tarry.store.shards.mover import Mover
from tarry.store.shards.sharded import ShardedStore
from tarry.tasks.running import current
from tests.servers.redis import RedisServer
from tests.store.switched import until
from tests.store.test_sharded_moving import check_home, drained, filled
from tests.worker.bench import LIMIT, Bench

_NUMBERS = count()


@pytest.fixture
def kinds(redis_server: RedisServer, postgres_url: str, mariadb_url: str, tmp_path: Path) -> Iterator[list[Store]]:
    """An empty store of each."""
    redis_server.empty()
    urls = [redis_server.url, postgres_url, mariadb_url, f"sqlite:///{tmp_path}/tarry.db"]
    stores = [open_store(url) for url in urls]
    yield stores
    for store in stores:
        store.close()


@pytest.mark.parametrize("number", range(4), ids=["redis", "postgres", "mariadb", "sqlite"])
def test_jobs_move_between_stores_of_all_kinds_unchanged(kinds: list[Store], number: int) -> None:
    before = filled(ShardedStore(kinds), 60)
    store = drained(kinds, number)
    moved = Mover(store, "ann").run()
    assert (moved.left, moved.away) == (0, [])
    check_home(store, kinds, before)
    back = ShardedStore(kinds)
    Mover(back, "ann").run()
    check_home(back, kinds, before)


@pytest.fixture
def redis(servers_directory: Path) -> Iterator[RedisServer]:
    """One of one's own, which loses nothing that it acknowledged."""
    server = RedisServer(
        servers_directory / f"mortal{next(_NUMBERS)}", "--appendonly", "yes", "--appendfsync", "always"
    )
    server.start()
    yield server
    server.stop()


def test_a_server_that_is_killed_loses_nothing_and_stops_no_producer(redis: RedisServer, tmp_path: Path) -> None:
    urls = [redis.url, f"sqlite:///{tmp_path}/tarry.db"]
    app = App(urls, closures=True)
    bench = Bench(app, lambda: open_store(urls, durable=False))
    runs: Counter[tuple[str, int]] = Counter()

    @app.task
    def run(number: int) -> int:
        running = current.get()
        assert running is not None
        runs[running.job.id.hex(), running.job.epoch] += 1
        return number

    jobs: list[Handle[int]] = []
    refused: list[float] = []
    over = threading.Event()

    def produce() -> None:
        for number in count():
            started = time.monotonic()
            try:
                jobs.append(run.enqueue(number))
            except StoreUnavailable:
                refused.append(time.monotonic() - started)
            if over.wait(0.002):
                return

    producer = threading.Thread(target=produce)
    producer.start()
    workers = [bench.work(threads=2) for _ in range(2)]
    try:
        until(lambda: len(jobs) > 100)
        redis.kill()
        seen = len(jobs)
        until(lambda: len(jobs) > seen + 100)
        assert len(refused) <= 1
        redis.start()
        seen = len(jobs)
        store = app.client.store
        assert isinstance(store, ShardedStore)
        until(lambda: not store.shards[0].away)
        until(lambda: len(jobs) > seen + 100)
    finally:
        over.set()
        producer.join()
    try:
        for job in jobs:
            job.result(LIMIT)
        until(lambda: not any(worker.pump.held_count for worker in workers))
        assert set(runs.values()) == {1}, "an attempt runs once"
        again = [job for job in jobs if job.record().epoch > 1]
        assert {job.record().failures for job in again} <= {0}
    finally:
        bench.close()


class Producer:
    """Enqueues on two stores, of which one halts."""

    def __init__(self, server: RedisServer, directory: Path) -> None:
        self.server = server
        self.app = App([f"{server.url}?timeout=2s", f"sqlite:///{directory}/tarry.db"], closures=True)
        self.jobs: list[Handle[int]] = []
        self.errors: list[StoreUnavailable] = []
        self.run = self.app.task(run)
        self.enqueue(20)

    def enqueue(self, many: int, key: str | None = None) -> float:
        """Enqueues so many. Returns the seconds that the slowest took."""
        longest = 0.0
        for number in range(many):
            started = time.monotonic()
            try:
                self.jobs.append(self.run.using(key=key).enqueue(number))
            except StoreUnavailable as error:
                self.errors.append(error)
            longest = max(longest, time.monotonic() - started)
        return longest

    def stored(self) -> Counter[bytes]:
        """How often each id is stored, once the server goes on and has done what was sent to it."""
        self.server.resume()
        store = self.app.client.store
        assert isinstance(store, ShardedStore)
        until(lambda: not store.shards[0].away)
        return Counter(job.id for shard in store.stores for job in shard.find(Query(limit=1000)))


def run(number: int) -> int:
    return number


@pytest.fixture
def producer(redis: RedisServer, tmp_path: Path) -> Iterator[Producer]:
    found = Producer(redis, tmp_path)
    redis.halt()
    yield found
    redis.resume()
    found.app.close()


def test_a_server_that_hangs_delays_one_enqueue_by_a_second(
    producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As after a moment without an enqueue.
    monkeypatch.setattr(shard, "HEARD_LATELY", 0.0)
    assert 0.9 < producer.enqueue(100) < 2.5
    assert producer.errors == []
    assert producer.enqueue(100) < 0.9
    assert producer.stored() == Counter(job._id for job in producer.jobs), "each once, and under its own id"


def test_what_was_sent_to_a_server_that_hangs_goes_to_no_other(
    producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard, "HEARD_LATELY", 60.0)
    assert 1.4 < producer.enqueue(100) < 8
    (error,) = producer.errors
    assert error.stored is None
    producer.stored()
    again = error.send_again()
    assert again._id == error.job._id
    assert producer.stored() == Counter([again._id, *(job._id for job in producer.jobs)])


def test_a_job_whose_shard_is_fixed_waits_for_it(producer: Producer) -> None:
    store = producer.app.client.store
    assert isinstance(store, ShardedStore)
    key = next(f"k{n}" for n in count() if store.home(producer.run.name, f"k{n}") == 0)
    producer.enqueue(1, key)
    assert [error.stored for error in producer.errors] == [None]
