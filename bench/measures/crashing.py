"""A worker is killed by SIGKILL with 50 jobs running: how soon all of them run again."""

import os
import signal
import time
from collections.abc import Iterator

from bench.app import hold
from bench.board import BOARD
from bench.measure import NONE, Figure, below, measure
from bench.measures.draining import wait_for
from bench.place import Bench
from bench.waiting import until

_JOBS = range(50)


@measure("sigkill", limit=90)
def killed(bench: Bench) -> Iterator[Figure]:
    """Without a master nobody starts another worker, and there is nothing to measure."""
    if bench.launcher != "master":
        return
    with bench.place() as place, place.workers() as crew:
        hold.enqueue_many([(number, 2.0) for number in _JOBS])
        if not until(lambda: all(BOARD.starts[number] for number in _JOBS), 20):
            raise RuntimeError("not all of the jobs were started before the kill")
        begin = time.monotonic()
        os.kill(crew.pids[0], signal.SIGKILL)
        until(lambda: all(BOARD.starts[number] > 1 for number in _JOBS), 40)
        again = [BOARD.start[number] - begin for number in _JOBS if BOARD.starts[number] > 1]
        name = "SIGKILL of a worker with 50 jobs running"
        yield Figure(f"{name}: first runs again", min(again, default=float("nan")), "s")
        yield Figure(f"{name}: all run again", max(again, default=float("nan")), "s", target=below(1))
        done = wait_for(_JOBS, len(_JOBS), 20)
        yield Figure(f"{name}: lost", len(_JOBS) - done, "jobs", target=NONE)
