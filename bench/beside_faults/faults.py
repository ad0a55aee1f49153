"""The ten faults."""

import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.beside_faults import tasks
from bench.beside_faults.cell import LIMIT, Cell, Deed
from bench.beside_faults.workers import MEMORY_LIMIT, Workers

JOBS = 20
AT_ONCE = 4
"""How many the workers of each project run at once."""
GRACE = 10.0
"""Seconds from TERM to KILL in a deploy, as Docker gives."""
HOUR = 3600
CLOCK_SOURCE = Path(__file__).with_name("clock.c")


class NotHere(Exception):
    """This machine lacks what the fault needs."""


@dataclass(frozen=True)
class Fault:
    name: str
    words: str
    """What is done."""
    run: Callable[[Cell], None]
    schedules: int = 0


def _jobs(count: int, deed: str, seconds: float, delay: float | None = None, name: str = "job") -> list[Deed]:
    return [(f"{name}-{number:02d}", deed, seconds, delay) for number in range(count)]


def _workers_at_fault(cell: Cell, seconds: float) -> Workers:
    """The workers, once they run AT_ONCE jobs of so many seconds; this is the moment of the fault."""
    cell.put(_jobs(JOBS, "work", seconds))
    workers = cell.work()
    cell.wait_running(AT_ONCE)
    cell.begin()
    return workers


def worker_killed(cell: Cell) -> None:
    _workers_at_fault(cell, 2).kill()
    cell.work()
    cell.settle()


def broker_restarted(cell: Cell) -> None:
    _workers_at_fault(cell, 2)
    cell.broker.kill()
    time.sleep(2)
    cell.broker.start()
    cell.settle(quiet=10)


def network_cut(cell: Cell) -> None:
    cell.cuttable()
    cell.put(_jobs(JOBS, "cut", 1))
    cell.work()
    cell.wait_running(1)
    cell.begin()
    # What was not acknowledged may come again after the visibility timeout.
    cell.settle(quiet=45)


def clock_step(cell: Cell) -> None:
    clock = cell.directory / "clock"
    _set_clock(clock, 0)
    cell.work(LD_PRELOAD=str(_clock_library(cell.directory)), BESIDE_CLOCK=str(clock))
    cell.put(_jobs(AT_ONCE, "work", 8, name="now"))
    # Not all: one process of Dramatiq may have fetched more than it runs at once.
    cell.wait_running(AT_ONCE // 2)
    cell.put(_jobs(JOBS, "work", 0.2, 15.0, name="ahead"))
    time.sleep(1)
    _set_clock(clock, HOUR)
    time.sleep(20)
    _set_clock(clock, -HOUR)
    time.sleep(1)
    cell.begin()
    cell.put(_jobs(JOBS, "work", 0.2, 8.0, name="back"))
    cell.settle(40)


def _clock_library(directory: Path) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise NotHere("no C compiler")
    library = directory / "clock.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(CLOCK_SOURCE)], check=True)
    return library


def _set_clock(clock: Path, seconds: int) -> None:
    # In place: workers have the file mapped.
    with clock.open("r+b" if clock.exists() else "wb") as file:
        file.write(seconds.to_bytes(8, sys.byteorder, signed=True))


def process_exit(cell: Cell) -> None:
    cell.work()
    cell.put(
        [
            job
            for pair in zip(_jobs(5, "exit_once", 0.3, name="exit"), _jobs(5, "work", 0.3), strict=True)
            for job in pair
        ]
    )
    cell.begin()
    cell.put(_jobs(JOBS, "work", 0.3, name="later"))
    cell.settle()


def memory_hog(cell: Cell) -> None:
    workers = cell.work()
    workers.memory_limit = MEMORY_LIMIT
    cell.put([("hog-00", "hog", 5, None), *_jobs(JOBS, "work", 1)])
    cell.begin()
    cell.settle(whole=True)


def deploy(cell: Cell) -> None:
    workers = _workers_at_fault(cell, 5)
    cell.work()
    workers.terminate(GRACE)
    cell.settle()


def scheduler_twice(cell: Cell) -> None:
    if cell.setting.schedulers:
        cell.work()
    # Both are up before the minute ends.
    time.sleep((60 - time.time() % 60 - 12) % 60)
    cell.schedule()
    time.sleep(60 - time.time() % 60 - 1)
    cell.begin()
    time.sleep(10)
    cell.settle()


def delayed_over_restart(cell: Cell) -> None:
    workers = cell.work()
    cell.put(_jobs(JOBS, "work", 0.2, 20.0))
    time.sleep(5)
    cell.begin()
    workers.kill()
    cell.broker.kill()
    time.sleep(1)
    cell.broker.start()
    cell.work()
    # RQ's next scheduler takes over 120 s after the one before has died.
    cell.settle(150)


def poison(cell: Cell) -> None:
    cell.work()
    cell.put([("poison-00", "die", 0.5, None), *_jobs(JOBS, "work", 1)])
    cell.begin()
    cell.settle(LIMIT, whole=True)


FAULTS = (
    Fault(
        "worker-killed",
        "all processes of the worker get SIGKILL while 4 jobs of 2 s run; a new worker starts at once",
        worker_killed,
    ),
    Fault("broker-restarted", "Redis gets SIGKILL while 4 jobs run, and is back after 2 s", broker_restarted),
    Fault(
        "network-cut",
        "as each job ends, the network loses all, or only Redis' answers, for 0.3 s; then its connections end",
        network_cut,
    ),
    Fault(
        "clock-step",
        "the worker's clock is set 1 h ahead while 20 jobs wait for their time, then 1 h behind, and 20 more are put",
        clock_step,
    ),
    Fault("process-exit", "5 jobs call `os._exit(1)` in their first attempt, among 25 others", process_exit),
    Fault(
        "memory-hog",
        "one job takes memory without end; a process beyond 300 MB gets SIGKILL, as in a container",
        memory_hog,
    ),
    Fault(
        "deploy",
        "SIGTERM to the worker while 4 jobs of 5 s run, SIGKILL after 10 s; a new worker starts at once",
        deploy,
    ),
    Fault("scheduler-twice", "two schedulers run, with 20 schedules of every minute", scheduler_twice, tasks.SCHEDULES),
    Fault(
        "delayed-restart",
        "worker and Redis get SIGKILL and start again while 20 jobs wait for their time",
        delayed_over_restart,
    ),
    Fault("poison", "one job kills its process each time, before 20 others", poison),
)
