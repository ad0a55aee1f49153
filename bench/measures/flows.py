"""Jobs that wait for each other: how fast the links of a chain follow each other, what a group with a callback costs
beside the same jobs without one, and how fast durable steps are."""

from collections.abc import Iterator
from statistics import median

from bench.app import BODY, app, join, link, noop, walk
from bench.board import BOARD
from bench.measure import NONE, Figure, at_least, goal, measure, share
from bench.measures.draining import end_rate, wait_for
from bench.measures.enqueueing import put
from bench.place import Bench

_LINKS, _CHAINS = 1000, 5
_GROUP = 100_000
_STEPS, _WALKERS = 500, 100


@measure("flow-chain", limit=90)
def chain(bench: Bench) -> Iterator[Figure]:
    """One chain after the other, each alone on an idle system; from the first end to the last."""
    name = f"chain of {_LINKS:,} no-ops, 1 worker"
    rates = list[float]()
    with bench.place() as place, place.workers():
        for start in range(0, _CHAINS * _LINKS, _LINKS):
            numbers = range(start, start + _LINKS)
            app.chain(link.call(0, start, BODY), *(link.call(number, BODY) for number in numbers[1:]))
            wait_for(numbers, _LINKS, 15)
            rates.append(end_rate(numbers))
        every = range(_CHAINS * _LINKS)
        target = goal(bench, sqlite=at_least(3000), redis=at_least(3000))
        yield Figure(name, median(rates), "nodes/s", target=target)
        yield Figure(f"{name}: lost", len(every) - BOARD.count(every), "jobs", target=NONE)
        yield Figure(f"{name}: run twice", BOARD.doubled(every), "jobs", target=NONE)


@measure("flow-group", limit=180)
def group(bench: Bench) -> Iterator[Figure]:
    """A drain of plain jobs, and right after it one of a group of as many with a callback."""
    count = bench.scaled(_GROUP)
    plain, name = f"drain of {count:,} plain jobs, 1 worker", f"group of {count:,} with a callback, 1 worker"
    yield Figure(plain, _drain_rate(bench, count, is_group=False), "jobs/s")
    yield Figure(name, _drain_rate(bench, count, is_group=True), "jobs/s", plain, share(0.7))
    yield Figure(f"{name}: lost", count + 1 - BOARD.count(range(count + 1)), "jobs", target=NONE)
    yield Figure(f"{name}: run twice", BOARD.doubled(range(count + 1)), "jobs", target=NONE)


def _drain_rate(bench: Bench, count: int, is_group: bool) -> float:
    """From the first end to the last, which in a group is that of the callback."""
    numbers = range(count + is_group)
    with bench.place() as place:
        place.hold_back()
        if is_group:
            app.chord((noop.call(number, BODY) for number in range(count)), join.call(count, BODY))
        else:
            put(numbers)
        with place.workers():
            place.let_go()
            wait_for(numbers, len(numbers), 60)
            return end_rate(numbers)


@measure("flow-steps", limit=60)
def steps(bench: Bench) -> Iterator[Figure]:
    yield from _steps(bench, 1, _STEPS)
    yield from _steps(bench, _WALKERS, _STEPS // 5)


def _steps(bench: Bench, walkers: int, count: int) -> Iterator[Figure]:
    """Steps of async tasks that run at once, from their first start to their last end."""
    name = f"steps, {walkers} async task{'s' if walkers > 1 else ''} at once"
    numbers = range(walkers)
    with bench.place() as place, place.workers():
        walk.enqueue_many([(number, count) for number in numbers])
        done = wait_for(numbers, walkers, 30)
        seconds = max(BOARD.end[number] for number in numbers) - min(BOARD.start[number] for number in numbers)
        yield Figure(name, done * count / seconds, "steps/s")
