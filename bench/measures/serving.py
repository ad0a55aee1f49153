"""What a store's server sees of it: how often it is asked, how much it keeps, and how it bears what others do to it."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import unquote, urlsplit

from bench.app import BODY, noop
from bench.board import BOARD
from bench.measure import NONE, Figure, below, measure, percentile
from bench.measures.draining import wait_for
from bench.measures.enqueueing import put
from bench.place import Bench

_JOBS = 100_000
_HELD = 120.0
_RATE = 800


@measure("trips", limit=120)
def asked(bench: Bench) -> Iterator[Figure]:
    """What the server counts while two workers drain; those of the keeper and of the look at the end included."""
    if bench.kind not in _COUNTERS:
        return
    what, count = _COUNTERS[bench.kind]
    numbers = range(bench.scaled(_JOBS))
    with bench.place() as place:
        place.hold_back()
        put(numbers)
        with place.workers(2):
            before = count(bench.url)
            place.let_go()
            done = wait_for(numbers, len(numbers), 60)
            after = count(bench.url)
    yield Figure(f"{what} a job, busy, 2 workers", (after - before) / max(done, 1), "", target=below(0.05))


def _scripts(url: str) -> int:
    import redis  # noqa: PLC0415 - only where that store is measured

    with redis.Redis.from_url(url) as connection:
        told: Any = connection.info("commandstats")
    return sum(int(told.get(f"cmdstat_{name}", {}).get("calls", 0)) for name in ("eval", "evalsha", "fcall", "get"))


def _transactions(url: str) -> int:
    import psycopg  # noqa: PLC0415

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SELECT pg_stat_clear_snapshot()")
        row = connection.execute(
            "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()"
        ).fetchone()
    assert row is not None
    return int(row[0])


def _statements(url: str) -> int:
    import pymysql  # noqa: PLC0415

    parts = urlsplit(url)
    connection = pymysql.connect(
        host=parts.hostname, port=parts.port or 3306, user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
    )  # fmt: skip
    with contextlib.closing(connection), connection.cursor() as cursor:
        cursor.execute("SHOW GLOBAL STATUS LIKE 'Questions'")
        row: Any = cursor.fetchone()
    return int(row[1])


_COUNTERS: dict[str, tuple[str, Callable[[str], int]]] = {
    "redis": ("scripts", _scripts),
    "postgresql": ("transactions", _transactions),
    "mysql": ("statements", _statements),
}


@measure("footprint", limit=60)
def kept(bench: Bench) -> Iterator[Figure]:
    """Memory of a Redis server for each waiting job of 64 bytes."""
    if bench.kind != "redis":
        return
    import redis  # noqa: PLC0415

    count = bench.scaled(_JOBS)
    with bench.place() as place, redis.Redis.from_url(bench.url) as connection:
        place.hold_back()
        before: Any = connection.info("memory")
        put(range(count))
        after: Any = connection.info("memory")
    used = (after["used_memory"] - before["used_memory"]) / count
    yield Figure("memory of a waiting job", used, "bytes", target=below(250))


@measure("snapshot", limit=200)
def snapshot(bench: Bench) -> Iterator[Figure]:
    """Somebody's transaction is open for two minutes, so that nothing that is dead can be cleaned up meanwhile."""
    if bench.kind != "postgresql":
        return
    import psycopg  # noqa: PLC0415

    seconds = _HELD / 10 if bench.quick else _HELD
    numbers = range(int(seconds * _RATE))
    with bench.place() as place, place.workers(1), psycopg.connect(bench.url) as holder:
        holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        holder.execute("SELECT count(*) FROM pg_class")
        producers = [threading.Thread(target=_at_rate, args=(numbers[first::4],), daemon=True) for first in range(4)]
        for producer in producers:
            producer.start()
        for producer in producers:
            producer.join()
        done = wait_for(numbers, len(numbers), 30)
        holder.rollback()
    waited = [(BOARD.start[i] - BOARD.put[i]) * 1e3 for i in numbers if BOARD.done[i]]
    name = f"a snapshot held for {seconds:g} s at {_RATE} jobs/s"
    for part, fifth in (("first", waited[: len(waited) // 5]), ("last", waited[-len(waited) // 5 :])):
        yield Figure(f"{name}: from enqueue to start, p50, {part} fifth", percentile(fifth, 0.5), "ms")
        yield Figure(
            f"{name}: from enqueue to start, p99, {part} fifth", percentile(fifth, 0.99), "ms", target=below(20)
        )
    yield Figure(f"{name}: lost", len(numbers) - done, "jobs", target=NONE)


def _at_rate(numbers: range) -> None:
    begin = time.monotonic()
    for count, number in enumerate(numbers):
        time.sleep(max(0.0, begin + count * 4 / _RATE - time.monotonic()))
        BOARD.put[number] = time.monotonic()
        noop.enqueue(number, BODY)
