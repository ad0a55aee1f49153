"""What flows and steps ask of the store: its calls, and its bytes for each job that waits for others."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

import apsw

from bench.app import BODY, app, link, walk
from bench.board import BOARD
from bench.measure import Figure, below, measure
from bench.measures.draining import wait_for
from bench.place import Bench
from tarry.store.flaky import FlakyStore
from tarry.store.opening import open_store
from tarry.worker.worker import Worker, WorkerSettings

_LINKS, _STEPS, _WALKERS = 1000, 200, 100
_WAITING = 20_000
_AT_ONCE = 1000

Asked = ParamSpec("Asked")
Answer = TypeVar("Answer")


class CountingStore(FlakyStore):
    """Counts its calls by verb, and never fails."""

    def __init__(self, url: str) -> None:
        super().__init__(open_store(url), 0, after=False)
        self.verbs = Counter[str]()

    def _call(self, verb: Callable[Asked, Answer], *args: Asked.args, **kwargs: Asked.kwargs) -> Answer:
        self.verbs[verb.__name__] += 1
        return super()._call(verb, *args, **kwargs)


@contextmanager
def _counted(url: str) -> Iterator[Counter[str]]:
    """A worker in a thread of this process; the calls of its store."""
    store = CountingStore(url)
    worker = Worker(store, app.tasks, WorkerSettings(), rules=app.rules, main_thread=False)
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        yield store.verbs
    finally:
        worker.stop()
        thread.join()
        store.close()


@measure("flow-calls", limit=60)
def calls(bench: Bench) -> Iterator[Figure]:
    """A busy machine has more of them: while the worker waits for a processor it takes itself for idle, and looks."""
    with bench.place() as place, _counted(place.url) as verbs:
        numbers = range(_LINKS)
        with _counting(verbs) as counts:
            app.chain(link.call(0, 0, BODY), *(link.call(number, BODY) for number in numbers[1:]))
            wait_for(numbers, _LINKS, 20)
        yield Figure("chain: calls of the store for each node", counts.total() / _LINKS, "calls", target=below(1.1))
        for walkers in (1, _WALKERS):
            numbers = range(_LINKS, _LINKS + walkers)
            with _counting(verbs) as counts:
                walk.enqueue_many([(number, _STEPS) for number in numbers])
                wait_for(numbers, walkers, 20)
            name = f"steps, {walkers} async task{'s' if walkers > 1 else ''} at once"
            saves = counts["save_progress"]
            yield Figure(f"{name}: steps stored by each call", walkers * _STEPS / saves, "steps")
            yield Figure(f"{name}: other calls for each of these", (counts.total() - saves) / saves, "calls")
            BOARD.clear()


@contextmanager
def _counting(verbs: Counter[str]) -> Iterator[Counter[str]]:
    before, counts = verbs.copy(), Counter[str]()
    yield counts
    counts.update(verbs - before)


@measure("flow-footprint", limit=120)
def footprint(bench: Bench) -> Iterator[Figure]:
    """Bytes of the store for each job: of jobs that are ready, of chains, and of nodes that wait for the two before
    them, so that each has a gate of its own."""
    count = bench.scaled(_WAITING)
    plain = _bytes_each(bench, count, _put_plain)
    yield Figure("bytes of a job that waits for a worker", plain, "bytes")
    for name, put in (("a link of a chain", _put_chain), ("a node with two parents", _put_ladder)):
        used = _bytes_each(bench, count, put)
        yield Figure(f"bytes of {name}", used, "bytes")
        yield Figure(
            f"bytes of {name}, of those of a job that waits for a worker", used / plain, "x", target=below(1.3)
        )


def _bytes_each(bench: Bench, count: int, put: Callable[[range], None]) -> float:
    with bench.place() as place:
        place.hold_back()
        size = _SIZES[bench.kind]
        # What a store writes once is written by the first ones.
        put(range(_AT_ONCE))
        before = size(place.url)
        for start in range(_AT_ONCE, _AT_ONCE + count, _AT_ONCE):
            put(range(start, start + _AT_ONCE))
        return (size(place.url) - before) / count


def _put_plain(numbers: range) -> None:
    link.enqueue_many([(0, number, BODY) for number in numbers])


def _put_chain(numbers: range) -> None:
    app.chain(link.call(0, numbers[0], BODY), *(link.call(number, BODY) for number in numbers[1:]))


def _put_ladder(numbers: range) -> None:
    with app.flow("ladder") as flow:
        nodes = list[Any]()
        for number in numbers:
            nodes.append(flow.add(link.call(0, number, BODY), after=nodes[-2:]))


def _sqlite_size(url: str) -> float:
    file = apsw.Connection(url.removeprefix("sqlite:///"))
    try:
        pages = file.pragma("page_count") - file.pragma("freelist_count")
        return float(pages * file.pragma("page_size"))
    finally:
        file.close()


def _redis_size(url: str) -> float:
    import redis  # noqa: PLC0415

    with redis.Redis.from_url(url) as connection:
        memory: Any = connection.info("memory")
    return float(memory["used_memory"])


def _postgresql_size(url: str) -> float:
    import psycopg  # noqa: PLC0415

    with psycopg.connect(url) as connection:
        row: Any = connection.execute("SELECT pg_database_size(current_database())").fetchone()
    return float(row[0])


def _mysql_size(url: str) -> float:
    """As the server estimates it after a look at each table."""
    from bench.raw.mysql import connected  # noqa: PLC0415

    with connected(url) as connection, connection.cursor() as cursor:
        cursor.execute("SHOW TABLES LIKE 'tarry%'")
        tables = [name for (name,) in cursor.fetchall()]
        cursor.execute(f"ANALYZE TABLE {', '.join(tables)}")
        cursor.fetchall()
        cursor.execute(
            "SELECT sum(data_length + index_length) FROM information_schema.tables WHERE table_schema = database()"
        )
        row: Any = cursor.fetchone()
    return float(row[0])


_SIZES: dict[str, Callable[[str], float]] = {
    "sqlite": _sqlite_size,
    "redis": _redis_size,
    "postgresql": _postgresql_size,
    "mysql": _mysql_size,
}
