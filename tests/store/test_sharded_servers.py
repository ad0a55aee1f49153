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
from tarry.store.base import Store
from tarry.store.opening import open_store
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


def test_a_server_that_hangs_fails_an_enqueue_in_time(redis: RedisServer, tmp_path: Path) -> None:
    app = App([f"{redis.url}?timeout=1s", f"sqlite:///{tmp_path}/tarry.db"], closures=True)

    @app.task
    def run(number: int) -> int:
        return number

    for number in range(20):
        run.enqueue(number)
    redis.halt()
    try:
        longest = 0.0
        for number in range(200):
            started = time.monotonic()
            try:
                run.enqueue(number)
            except StoreUnavailable:
                longest = max(longest, time.monotonic() - started)
        assert 0.9 < longest < 8
    finally:
        redis.resume()
        app.close()
