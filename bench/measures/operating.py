"""What an operator waits for: the start, an answer of `tarry status`; and what a reload costs the jobs."""

import threading
import time
from collections.abc import Iterator, Sequence

from bench.app import BODY, spin
from bench.board import BOARD
from bench.measure import NONE, Figure, Target, below, measure
from bench.measures.draining import wait_for
from bench.place import Bench
from bench.waiting import until

_SPUN = 0.001
"""Seconds of work in a job: enough that two workers keep two cores busy, and nothing else does."""
_CALM = 5.0


@measure("start", limit=60)
def start(bench: Bench) -> Iterator[Figure]:
    """From the command to the first job, with a pool of two workers."""
    if bench.launcher != "master":
        return
    with bench.place() as place:
        spin.enqueue(0, BODY, 0.0)
        with place.started(2) as crew:
            until(lambda: bool(BOARD.done[0]), 20, 0.001)
            yield Figure("start to first job", BOARD.end[0] - crew.begun, "s", target=below(0.6))


@measure("status", limit=60)
def status(bench: Bench) -> Iterator[Figure]:
    if bench.launcher != "master":
        return
    for workers in (2, 64):
        with bench.place() as place, place.started(workers) as crew:
            until(lambda: len(crew.everybody) >= workers + 2, 30)  # noqa: B023
            time.sleep(1)  # they share the cores with us until they are up
            times = [place.ask("status") for _ in range(10)]
            yield Figure(f"`tarry status`, {workers} workers", sorted(times)[5], "s", target=below(0.15))


@measure("reload", limit=300)
def reload(bench: Bench) -> Iterator[Figure]:
    """While two workers have all they can do: one a second, and one right after the other."""
    if bench.launcher == "master":
        yield from _reloaded(bench, "one a second", 1.0, below(20))
        yield from _reloaded(bench, "in a row", 0.0, None)


def _reloaded(bench: Bench, how: str, every: float, target: Target | None) -> Iterator[Figure]:
    times = bench.scaled(100)
    with bench.place() as place, place.workers(2):
        feeder = _Feeder()
        feeder.start()
        time.sleep(_CALM)
        began = time.monotonic()
        took = []
        for number in range(times):
            took.append(place.ask("reload"))
            time.sleep(max(0.0, began + every * (number + 1) - time.monotonic()))
        ended = time.monotonic()
        time.sleep(_CALM)
        numbers = feeder.end()
        done = wait_for(numbers, len(numbers), 60)
    ends = BOARD.ends(numbers)
    calm = (_rate(ends, began - _CALM + 1, began) + _rate(ends, ended + 1, ended + _CALM)) / 2
    name, meanwhile = f"{times} reloads under full load, {how}", _rate(ends, began, ended)
    yield Figure(name, sorted(took)[len(took) // 2], "s")
    yield Figure(f"{name}: jobs before and after", calm, "/s")
    yield Figure(f"{name}: fewer jobs meanwhile", (1 - meanwhile / calm) * 100, "%", target=target)
    yield Figure(f"{name}: lost", len(numbers) - done, "jobs", target=NONE)
    yield Figure(f"{name}: run twice", BOARD.doubled(numbers), "jobs", target=NONE)


class _Feeder(threading.Thread):
    """Sees to it that jobs wait, until it is told to end."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._put, self._over = 0, threading.Event()

    def run(self) -> None:
        while not self._over.wait(0.05):
            while self._put - BOARD.count(range(self._put)) < 1000:
                spin.enqueue_many([(number, BODY, _SPUN) for number in range(self._put, self._put + 1000)])
                self._put += 1000

    def end(self) -> range:
        """The numbers of all jobs that were put."""
        self._over.set()
        self.join()
        return range(self._put)


def _rate(ends: Sequence[float], begin: float, end: float) -> float:
    return sum(begin <= moment < end for moment in ends) / (end - begin)
