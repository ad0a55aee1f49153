"""Whether a worker is slowed by what waits, or by what is scheduled, behind the jobs that it runs."""

from collections.abc import Iterator

from bench.board import BOARD
from bench.measure import NONE, Figure, Target, measure, share
from bench.measures.draining import end_rate, wait_for
from bench.measures.enqueueing import put
from bench.place import Bench

_FIRST = 20_000
_MONTH = 30 * 86400.0
_BASE = "drain of the first 20,000 with 20,000 waiting"


@measure("waiting-1k", limit=60)
def waiting_1k(bench: Bench) -> Iterator[Figure]:
    yield from _waiting(bench, "drain of 1,000 with 1,000 waiting", 1000, "", None)


@measure("waiting-20k", limit=60)
def waiting_20k(bench: Bench) -> Iterator[Figure]:
    yield from _waiting(bench, _BASE, 20_000, "", None)


@measure("waiting-100k", limit=60)
def waiting_100k(bench: Bench) -> Iterator[Figure]:
    yield from _waiting(bench, "drain of the first 20,000 with 100,000 waiting", 100_000, _BASE, share(0.8))


@measure("waiting-1m", limit=180)
def waiting_1m(bench: Bench) -> Iterator[Figure]:
    yield from _waiting(bench, "drain of the first 20,000 with 1,000,000 waiting", 1_000_000, _BASE, share(0.8))


@measure("scheduled-1m", limit=180)
def scheduled_1m(bench: Bench) -> Iterator[Figure]:
    name = "drain of 20,000 with 1,000,000 scheduled"
    with bench.place() as place:
        place.hold_back()
        put(range(_FIRST, _FIRST + bench.scaled(1_000_000)), _MONTH)
        put(range(_FIRST))
        with place.workers():
            place.let_go()
            done = wait_for(range(_FIRST), _FIRST, 30)
            yield Figure(name, end_rate(range(_FIRST)), "/s", _BASE, share(0.8))
            yield Figure(f"{name}: lost", _FIRST - done, "jobs", target=NONE)


def _waiting(bench: Bench, name: str, count: int, against: str, target: Target | None) -> Iterator[Figure]:
    numbers = range(max(bench.scaled(count), min(count, _FIRST)))
    with bench.place() as place:
        place.hold_back()
        put(numbers)
        with place.workers():
            place.let_go()
            wait_for(numbers, min(_FIRST, len(numbers)), 30)
        yield Figure(name, end_rate(numbers, _FIRST), "/s", against, target)
        yield Figure(f"{name}: run twice", BOARD.doubled(numbers), "jobs", target=NONE)
