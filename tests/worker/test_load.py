"""How busy a worker shows itself to be, and what is told of those that wait."""

import asyncio
from typing import Any

import pytest

from tarry.client.clock import FakeClock
from tarry.errors import PartlyUnavailable, StoreUnavailable
from tarry.keeper.backlog import COUNTED, BacklogReport, BacklogReporter
from tarry.model.duration import SECOND
from tarry.store.conformance.cases.jobs import NOW, put
from tarry.store.flaky import FlakyStore
from tarry.store.memory.store import MemoryStore
from tarry.store.rules.base import Backlog
from tarry.worker.run.status_reporter import NullReporter
from tarry.worker.worker import WorkerSettings
from tests.worker.bench import Bench, ThreadWorker, until, wait_for


class Loads(NullReporter):
    """Keeps the last."""

    last: tuple[float, int] = (-1.0, -1)

    def load(self, fill: float, held: int) -> None:
        self.last = (fill, held)


def loaded(bench: Bench, **settings: Any) -> Loads:
    loads = Loads()
    worker = ThreadWorker(bench.store(), bench.app.tasks, WorkerSettings(**settings), reporter=loads, main_thread=False)
    bench.at_last.append(worker.start().end)
    return loads


def test_sync_jobs_fill_its_threads(bench: Bench) -> None:
    gate = bench.gate()

    @bench.app.task
    def wait() -> None:
        wait_for(gate)

    loads = loaded(bench, threads=2, coroutines=100)
    until(lambda: loads.last == (0.0, 0))
    wait.enqueue()
    until(lambda: loads.last == (0.5, 1))
    for _ in range(5):
        wait.enqueue()
    until(lambda: loads.last == (1.0, 2))
    gate.set()
    until(lambda: loads.last == (0.0, 0))


def test_async_jobs_fill_its_loop(bench: Bench) -> None:
    gate = bench.gate()

    @bench.app.task
    async def wait() -> None:
        while not gate.is_set():
            await asyncio.sleep(0.005)

    loads = loaded(bench, threads=1, coroutines=8)
    for _ in range(2):
        wait.enqueue()
    until(lambda: loads.last == (0.25, 2))
    gate.set()
    until(lambda: loads.last == (0.0, 0))


def test_what_waits_is_told_of_each_pool() -> None:
    store, reports = MemoryStore(), list[BacklogReport]()
    put(store, 3, due=NOW - 2 * SECOND, queue="mail")
    put(store, COUNTED, due=NOW - SECOND)
    pools = {"all": None, "mail": ["mail"], "idle": ["idle"]}
    BacklogReporter(store, pools, reports.append, FakeClock(NOW)).report_backlogs()
    assert reports == [{"all": (COUNTED, 2.0), "mail": (3, 2.0), "idle": (0, 0.0)}]


def test_of_a_store_that_is_away_nothing_is_told() -> None:
    reports = list[BacklogReport]()
    backlogs = BacklogReporter(FlakyStore(MemoryStore(), 1, after=False), {"all": None}, reports.append, FakeClock(NOW))
    with pytest.raises(StoreUnavailable):
        backlogs.report_backlogs()
    assert reports == []
    backlogs.report_backlogs()
    assert reports == [{"all": (0, 0.0)}]


def test_of_several_stores_those_that_are_there_count() -> None:
    class Half(MemoryStore):
        def backlog(self, queues: object, now: int, most: int) -> Backlog:
            raise PartlyUnavailable("one is away", Backlog(7, now - SECOND))

    reports = list[BacklogReport]()
    BacklogReporter(Half(), {"all": None}, reports.append, FakeClock(NOW)).report_backlogs()
    assert reports == [{"all": (7, 1.0)}]
