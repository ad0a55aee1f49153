"""Whether a worker is slowed by what waits, or by what is scheduled, behind the jobs that it runs."""

from collections.abc import Iterator

from bench.board import BOARD
from bench.measure import NONE, Figure, Target, measure, share
from bench.measures.draining import end_rate, wait_for
from bench.measures.enqueueing import put
from bench.place import Bench

_FIRST = 20_000
_MONTH = 30 * 86400.0


@measure("waiting-1k", limit=60)
def waiting_1k(bench: Bench) -> Iterator[Figure]:
    yield from _waiting(bench, 1000)


@measure("waiting-20k", limit=60)
def waiting_20k(bench: Bench) -> Iterator[Figure]:
    yield from _waiting(bench, _FIRST)


@measure("waiting-100k", limit=60)
def waiting_100k(bench: Bench) -> Iterator[Figure]:
    yield from _waiting(bench, 100_000, _name(bench, _FIRST), share(0.8))


@measure("waiting-1m", limit=180)
def waiting_1m(bench: Bench) -> Iterator[Figure]:
    yield from _waiting(bench, 1_000_000, _name(bench, _FIRST), share(0.8))


@measure("scheduled-1m", limit=180)
def scheduled_1m(bench: Bench) -> Iterator[Figure]:
    numbers, later = range(bench.scaled(_FIRST)), bench.scaled(1_000_000)
    name = f"drain of {len(numbers):,} with {later:,} scheduled"
    with bench.place() as place:
        place.hold_back()
        put(range(len(numbers), len(numbers) + later), _MONTH)
        put(numbers)
        with place.workers():
            place.let_go()
            done = wait_for(numbers, len(numbers), 30)
            yield Figure(name, end_rate(numbers), "/s", _name(bench, _FIRST), share(0.8))
            yield Figure(f"{name}: lost", len(numbers) - done, "jobs", target=NONE)
            early = BOARD.count(range(len(numbers), len(numbers) + later))
            yield Figure(f"{name}: started early", early, "jobs", target=NONE)


def _name(bench: Bench, count: int) -> str:
    first = bench.scaled(min(count, _FIRST))
    return f"drain of the first {first:,} with {bench.scaled(count):,} waiting"


def _waiting(bench: Bench, count: int, against: str = "", target: Target | None = None) -> Iterator[Figure]:
    numbers, first, name = range(bench.scaled(count)), bench.scaled(min(count, _FIRST)), _name(bench, count)
    with bench.place() as place:
        place.hold_back()
        put(numbers)
        with place.workers():
            place.let_go()
            done = wait_for(numbers, first, 30)
        yield Figure(name, end_rate(numbers, first), "/s", against, target)
        yield Figure(f"{name}: lost", max(0, first - done), "jobs", target=NONE)
        yield Figure(f"{name}: run twice", BOARD.doubled(numbers), "jobs", target=NONE)
