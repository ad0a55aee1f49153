"""Real workers on a store that fails now and then, or for a while: nothing is lost, nothing runs hot."""

import threading
import time
from collections import Counter
from collections.abc import Collection, Sequence

import pytest

from tarry import App, State
from tarry.errors import StoreError, StoreFull, StoreUnavailable
from tarry.model.change import Change
from tarry.store.flaky import FlakyStore
from tarry.store.memory.store import MemoryStore
from tarry.store.rules.base import Exchange, Want
from tests.worker.bench import LIMIT, Bench, until


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("fail_at", range(1, 15))
def test_whichever_call_fails_nothing_is_lost(fail_at: int, after: bool) -> None:
    inner = MemoryStore()
    app = App(inner, closures=True)
    bench = Bench(app, lambda: inner)
    runs: Counter[int] = Counter()

    @app.task
    def run(number: int) -> int:
        runs[number] += 1
        return number

    @app.task
    async def arun(number: int) -> int:
        runs[number] += 1
        return number

    jobs = run.enqueue_many([(number,) for number in range(10)])
    jobs += arun.enqueue_many([(number,) for number in range(10, 20)])
    flaky = FlakyStore(inner, fail_at, after)
    worker = bench.work(store=flaky, threads=2, coroutines=3)
    try:
        assert [job.result(LIMIT) for job in jobs] == list(range(20))
        until(lambda: worker.pump.held_count == 0)
        until(lambda: flaky.calls > fail_at)
        more = run.enqueue(20)
        assert more.result(LIMIT) == 20
    finally:
        bench.close()
    assert runs == dict.fromkeys(range(21), 1), "a call that failed is no reason to run a job twice"


class Door(MemoryStore):
    """Raises what it is told to, from every verb that a worker calls."""

    def __init__(self) -> None:
        super().__init__()
        self.error: StoreError | None = None
        self.refused: list[float] = []

    def _check(self) -> None:
        if self.error is not None:
            self.refused.append(time.monotonic())
            raise self.error

    def exchange(
        self, changes: Sequence[Change], wants: Sequence[Want], limit: int, owner: str, lease: int, now: int
    ) -> Exchange:
        self._check()
        return super().exchange(changes, wants, limit, owner, lease, now)

    def extend(self, owner: str, held: Collection[tuple[bytes, int]], lease: int, now: int) -> list[bytes]:
        self._check()
        return super().extend(owner, held, lease, now)

    def queues(self) -> dict[str, bool]:
        self._check()
        return super().queues()


@pytest.mark.parametrize("error", [StoreUnavailable("away"), StoreFull("the disk is full")], ids=["away", "full"])
def test_a_worker_outlasts_a_store_that_is_away_for_a_while(error: StoreError) -> None:
    store = Door()
    bench = Bench(App(store, closures=True), lambda: store)
    gate, begun = bench.gate(), threading.Semaphore(0)
    runs: list[int] = []

    @bench.app.task
    def run(number: int) -> int:
        runs.append(number)
        begun.release()
        gate.wait(LIMIT)
        return number

    jobs = run.enqueue_many([(number,) for number in range(6)])
    worker = bench.work(threads=3)
    try:
        for _ in range(3):
            assert begun.acquire(timeout=LIMIT)
        store.error = error
        started = time.monotonic()
        gate.set()
        until(lambda: len(store.refused) >= 6)
        assert time.monotonic() - started > 0.3, "no hot loop"
        assert (worker.pump.held_count, len(runs)) == (3, 3), "it keeps what ended, and takes nothing new"
        assert {job.state for job in jobs} == {State.RUNNING, State.READY}
        store.error = None
        assert [job.result(LIMIT) for job in jobs] == list(range(6))
        assert sorted(runs) == list(range(6))
    finally:
        bench.close()


def test_a_worker_told_to_stop_while_the_store_is_away_settles_first() -> None:
    store = Door()
    bench = Bench(App(store, closures=True), lambda: store)
    gate, begun = bench.gate(), threading.Event()

    @bench.app.task
    def run() -> int:
        begun.set()
        gate.wait(LIMIT)
        return 1

    job = run.enqueue()
    worker = bench.work()
    try:
        assert begun.wait(LIMIT)
        store.error = StoreUnavailable("away")
        gate.set()
        until(lambda: len(store.refused) >= 2)
        worker.stop()
        until(lambda: len(store.refused) >= 3)
        assert worker.thread.is_alive()
        store.error = None
        worker.thread.join(LIMIT)
        assert not worker.thread.is_alive()
        assert job.state == "done"
    finally:
        bench.close()


def test_a_store_that_is_away_at_the_start_is_waited_for() -> None:
    store = Door()
    bench = Bench(App(store, closures=True), lambda: store)

    @bench.app.task
    def run() -> int:
        return 1

    job = run.enqueue()
    store.error = StoreUnavailable("away")
    bench.work()
    try:
        until(lambda: len(store.refused) >= 3)
        store.error = None
        assert job.result(LIMIT) == 1
    finally:
        bench.close()
