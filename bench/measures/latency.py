"""How soon a job starts: after its enqueue on an idle system, and after its due time."""

import random
import time
from collections.abc import Iterator

from bench.app import BODY, noop, timed
from bench.board import BOARD
from bench.measure import NONE, Figure, Target, at_least, below, measure, percentile
from bench.measures.draining import wait_for
from bench.place import Bench

_EVERY = 0.05
_SPAN = 10.0


@measure("pick-up", limit=60)
def picked_up(bench: Bench) -> Iterator[Figure]:
    """From before the call of enqueue, its fsync included, to the task's first line."""
    numbers = range(bench.scaled(200))
    with bench.place() as place, place.workers(1):
        time.sleep(0.5)  # idle is a while after the last job
        calls = [_put_at_leisure(number) for number in numbers]
        done = wait_for(numbers, len(numbers), 10)
    waited = [(BOARD.start[i] - BOARD.put[i]) * 1e3 for i in numbers if BOARD.done[i]]
    half, most = {"sqlite": (2, 10), "redis": (1.5, 5), "postgresql": (3, 10), "mysql": (30, 60)}[bench.kind]
    yield from _figures("pick-up on an idle system", waited, {0.5: below(half), 0.99: below(most), 1: None})
    yield Figure("pick-up on an idle system: enqueue alone, p50", percentile(calls, 0.5), "ms")
    yield Figure("pick-up on an idle system: lost", len(numbers) - done, "jobs", target=NONE)


def _put_at_leisure(number: int) -> float:
    BOARD.put[number] = begin = time.monotonic()
    noop.enqueue(number, BODY)
    took = time.monotonic() - begin
    time.sleep(max(0.0, _EVERY - took))
    return took * 1e3


@measure("lateness", limit=90)
def late(bench: Bench) -> Iterator[Figure]:
    """Start minus due, both by the wall clock of this machine. Never less than nothing."""
    numbers = range(bench.scaled(2000))
    chance = random.Random(7)
    with bench.place() as place, place.workers(1):
        # So long that all are put before the first is due, also by a slow disk.
        begin = time.time() + 2 + len(numbers) / 400
        for number in numbers:
            BOARD.put[number] = due = round(begin + chance.random() * _SPAN, 6)
            timed.using(at=due).enqueue(number, BODY)
        if time.time() >= begin:
            raise RuntimeError("the enqueues took too long: some jobs were due before they were put")
        done = wait_for(numbers, len(numbers), begin - time.time() + _SPAN + 10)
    # To the microsecond, in which due times are kept.
    waited = [round((BOARD.start[i] - BOARD.put[i]) * 1e6) / 1e3 for i in numbers if BOARD.done[i]]
    most = {"sqlite": 15, "redis": 10, "postgresql": 15, "mysql": 60}[bench.kind]
    targets = {0.0: at_least(0), 0.5: None, 0.99: below(most), 1: None}
    yield from _figures("lateness of delayed jobs", waited, targets)
    yield Figure("lateness of delayed jobs: lost", len(numbers) - done, "jobs", target=NONE)


def _figures(name: str, values: list[float], targets: dict[float, Target | None]) -> Iterator[Figure]:
    spoken = {0.0: "min", 1: "max"}
    for part, target in targets.items():
        label = spoken.get(part, f"p{part * 100:g}")
        yield Figure(f"{name}: {label}", percentile(values, part), "ms", target=target)
