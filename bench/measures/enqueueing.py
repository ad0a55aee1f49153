"""How fast jobs are taken: every one of them is on the disk before its enqueue returns."""

import asyncio
import threading
from collections.abc import Iterator

from bench.app import BODY, noop
from bench.measure import Figure, at_least, goal, measure, rate
from bench.measures import raw
from bench.place import Bench


@measure("enqueue-sync", limit=60)
def sync(bench: Bench) -> Iterator[Figure]:
    count = bench.scaled(10_000)
    with bench.place():
        noop.enqueue(0, BODY)
        name = "enqueue, one by one, sync"
        target = goal(bench, redis=at_least(5500), postgresql=at_least(2000), mysql=at_least(2000))
        yield rate(name, count, lambda: _one_by_one(range(count)), raw.ONE, target)


@measure("enqueue-async", limit=60)
def awaited(bench: Bench) -> Iterator[Figure]:
    count = bench.scaled(10_000)
    with bench.place():
        noop.enqueue(0, BODY)
        yield rate("enqueue, one by one, async", count, lambda: asyncio.run(_aone_by_one(range(count))), raw.ONE)


@measure("enqueue-100-tasks", limit=60)
def tasks(bench: Bench) -> Iterator[Figure]:
    count = bench.scaled(100_000)
    name = "enqueue, 100 asyncio tasks at once"
    with bench.place():
        asyncio.run(_at_once(2, 200))
        goals = {"sqlite": 20_000, "redis": 40_000, "postgresql": 20_000, "mysql": 10_000}
        target = at_least(goals[bench.kind])
        yield rate(name, count, lambda: asyncio.run(_at_once(100, count)), raw.HUNDRED, target)


@measure("enqueue-8-threads", limit=60)
def threads(bench: Bench) -> Iterator[Figure]:
    count = bench.scaled(40_000)
    with bench.place():
        noop.enqueue(0, BODY)
        yield rate("enqueue, 8 threads at once", count, lambda: _in_threads(8, count), raw.ONE)


@measure("enqueue-bulk", limit=60)
def bulk(bench: Bench) -> Iterator[Figure]:
    count = bench.scaled(200_000)
    with bench.place():
        put(range(1000))
        name = "enqueue_many of 1000"
        goals = {"sqlite": 100_000, "redis": 100_000, "postgresql": 80_000, "mysql": 50_000}
        yield rate(name, count, lambda: put(range(count)), raw.THOUSAND, at_least(goals[bench.kind]))


def put(jobs: range, delay: float | None = None, size: int = 1000) -> None:
    """Enqueues no-ops of these numbers, so many a call."""
    task = noop if delay is None else noop.using(delay=delay)
    for start in range(jobs.start, jobs.stop, size):
        task.enqueue_many([(number, BODY) for number in range(start, min(start + size, jobs.stop))])


def _one_by_one(jobs: range) -> None:
    for number in jobs:
        noop.enqueue(number, BODY)


async def _aone_by_one(jobs: range) -> None:
    for number in jobs:
        await noop.aenqueue(number, BODY)


async def _at_once(callers: int, count: int) -> None:
    await asyncio.gather(*(_aone_by_one(range(first, count, callers)) for first in range(callers)))


def _in_threads(callers: int, count: int) -> None:
    threads = [
        threading.Thread(target=_one_by_one, args=(range(first, count, callers),), daemon=True)
        for first in range(callers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
