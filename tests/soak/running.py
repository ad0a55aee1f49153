"""A soak, from its start to the verdict."""

import contextlib
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tarry.testing.history_check import Violation
from tests.cli.disk import MB, Disk
from tests.cli.project import kill_marked
from tests.soak.series import SeriesSet
from tests.soak.soak_system import SoakStorm
from tests.soak.watching import Watcher, seconds_of_cpu
from tests.system.storm import SERVERS

STORES = ("sqlite", "shards", *SERVERS)
SHARDS = 3
DISK = 256 * MB
FIRST, LAST = 0.2, 0.85
"""The calm part is between these parts of the time: there master, keeper, server and a worker live on."""
WARM_UP = 0.2
"""This part of the time is left out of each series, from its first sample on."""
SHORTEST = 0.2, 300.0
"""A series is judged that lasts for this part of the time, and for so many seconds, after its warm-up."""
GAPS = 240, 15.0
"""Between troubles: the time divided by the first, but the second at most. CALMER times as long in the calm part."""
CALMER = 6


class Plan(NamedTuple):
    """What a soak is to be. slowness: how many times as far apart as in a storm its producer's acts are."""

    store: str
    seconds: float
    seed: int
    slowness: float


class Outcome(NamedTuple):
    """What came of it."""

    violations: list[Violation | str]
    excused: list[Violation]
    """What the store's server may forget, as docs/stores.md says."""
    series: SeriesSet
    struck: dict[str, int]
    jobs: int
    busy: float
    """The part of one core that tarry's processes and the producer used in the calm part."""
    busy_of_server: float
    """The same of the store's server."""
    unanswered: int
    """How often the store did not answer to the one who samples."""
    notes: list[str]


class Deck:
    """Troubles in an order that a seed draws: each as often as its weight says before any comes again."""

    def __init__(self, troubles: dict[Callable[[], None], int], chance: random.Random) -> None:
        self._all = [trouble for trouble, weight in troubles.items() for _ in range(weight)]
        self._chance, self._left = chance, list[Callable[[], None]]()

    def draw(self) -> Callable[[], None]:
        """The next one."""
        if not self._left:
            self._left = self._chance.sample(self._all, len(self._all))
        return self._left.pop()


def soak(plan: Plan, directory: Path) -> Outcome:
    """Runs it. directory: an empty one, which other users may enter. Missing: the store's server is not installed."""
    with contextlib.ExitStack() as stack:
        notes = list[str]()
        storm = stack.enter_context(started_storm(plan, directory, notes))
        watcher = Watcher(storm)
        watcher.start()
        cpu = _go_through(plan, storm)
        watcher.is_sampling = False
        for step in (storm.finish, watcher.end, storm.stopped):
            with _noting(storm, step.__name__):
                step()
        violations = [*storm.mishaps, *storm.violations()]
        jobs = (storm.directory / "history").read_bytes().count(b'"event":"put"')
        return Outcome(
            violations, storm.excused, watcher.series, dict(storm.struck), jobs, *cpu, watcher.failures, notes
        )


@contextlib.contextmanager
def started_storm(plan: Plan, directory: Path, notes: list[str]) -> Iterator[SoakStorm]:
    """A system that runs. notes: gets what cannot be done here. Missing."""
    place = directory / "project"
    place.mkdir()
    with contextlib.ExitStack() as stack:
        # Also if it does not start.
        stack.callback(kill_marked, str(place))
        if plan.store in SERVERS:
            make, pattern = SERVERS[plan.store]
            server, disk = make(directory / "server"), None
            server.start()
            stack.callback(server.kill)
            urls = [pattern.format(server.port)]
        else:
            server, disk = None, stack.enter_context(_disk(directory / "disk", notes))
            urls = _files(plan, disk.path if disk is not None else place)
        storm = SoakStorm(place, urls, server, plan.seed, plan.slowness, disk)
        stack.callback(storm.close)
        yield storm


def _files(plan: Plan, directory: Path) -> list[str]:
    count = SHARDS if plan.store == "shards" else 1
    return [f"sqlite:///{directory}/tarry{number or ''}.db" for number in range(count)]


@contextlib.contextmanager
def _disk(path: Path, notes: list[str]) -> Iterator[Disk | None]:
    try:
        disk = Disk(path, DISK)
    except pytest.skip.Exception as skipped:
        notes.append(f"no disk was filled: {skipped}")
        yield None
        return
    try:
        yield disk
    finally:
        disk.close()


def _go_through(plan: Plan, storm: SoakStorm) -> tuple[float, float]:
    """The three parts; answers how busy the calm one was, and the store's server in it."""
    began = time.monotonic()
    gap = min(GAPS[1], plan.seconds / GAPS[0])
    _trouble(storm, storm.troubles(), began + FIRST * plan.seconds, gap)
    before = time.monotonic(), *_cpu(storm)
    _trouble(storm, storm.calm_troubles(), began + LAST * plan.seconds, CALMER * gap)
    after = time.monotonic(), *_cpu(storm)
    _trouble(storm, storm.late_troubles(), began + plan.seconds, gap)
    time_of_calm, own, server = (b - a for a, b in zip(before, after, strict=True))
    return own / time_of_calm, server / time_of_calm


def _trouble(storm: SoakStorm, troubles: dict[Callable[[], None], int], end: float, gap: float) -> None:
    deck = Deck(troubles, storm.chance)
    while True:
        pause = storm.chance.uniform(0.5, 1.5) * gap
        time.sleep(max(0.0, min(pause, end - time.monotonic())))
        if time.monotonic() >= end:
            return
        trouble = deck.draw()
        with _noting(storm, trouble.__name__):
            trouble()
            storm.struck[trouble.__name__] += 1


@contextlib.contextmanager
def _noting(storm: SoakStorm, what: str) -> Iterator[None]:
    """What fails is a fault, and the soak goes on."""
    try:
        yield
    except Exception as error:
        storm.mishaps.append(f"{what}: {type(error).__name__}: {error}")


def _cpu(storm: SoakStorm) -> tuple[float, float]:
    server = storm.server._process if storm.server is not None else None
    own = seconds_of_cpu(storm.master.pid) + seconds_of_cpu(storm.producer_process.pid)
    return own, seconds_of_cpu(server.pid) if server is not None else 0.0
