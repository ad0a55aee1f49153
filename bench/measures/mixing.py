"""One producer that waits for each enqueue, and two workers at the same time: the usual life of a queue."""

import time
from collections.abc import Iterator

from bench.app import BODY, noop
from bench.board import BOARD, CAPACITY
from bench.measure import NONE, Figure, at_least, goal, measure
from bench.measures import raw
from bench.measures.draining import wait_for
from bench.place import Bench


@measure("mixed", limit=60)
def mixed(bench: Bench) -> Iterator[Figure]:
    name = "mixed, 1 producer and 2 workers"
    with bench.place() as place, place.workers(2):
        begin = time.monotonic()
        numbers = range(_produce(begin + (2 if bench.quick else 10)))
        seconds = time.monotonic() - begin
        done = BOARD.count(numbers)
        yield Figure(f"{name}: produced", len(numbers) / seconds, "/s", raw.ONE, goal(bench, sqlite=at_least(3000)))
        yield Figure(f"{name}: consumed", done / seconds, "/s", f"{name}: produced", goal(bench, sqlite=at_least(3000)))
        yield Figure(f"{name}: left behind", len(numbers) - done, "jobs")
        stopped = time.monotonic()
        left = len(numbers) - wait_for(numbers, len(numbers), 20)
        last = BOARD.ends(numbers)[-1] if numbers else stopped
        yield Figure(f"{name}: until nothing is left", max(0.0, last - stopped) * 1e3, "ms")
        yield Figure(f"{name}: lost", left, "jobs", target=NONE)


def _produce(until: float) -> int:
    number = 0
    while number < CAPACITY and time.monotonic() < until:
        noop.enqueue(number, BODY)
        number += 1
    return number
