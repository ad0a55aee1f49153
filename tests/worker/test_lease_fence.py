"""A worker that is cut off from its store ends its attempts before anybody else may have the jobs."""

import asyncio
import threading
import time
from typing import Any, NoReturn

import pytest

from tarry.config.config import Pool
from tarry.embedded.service import worker_settings
from tarry.errors import ConfigError, StoreUnavailable
from tarry.model.duration import SECOND
from tests.worker.bench import LIMIT, Bench, finished, until, wait_for

LEASE = 5 * SECOND


class CutOff:
    """Makes the calls of a store fail or hang until it is lifted."""

    def __init__(self, store: Any, patch: pytest.MonkeyPatch, hangs: bool) -> None:
        self.lifted, self._hangs, self.is_on = threading.Event(), hangs, False
        for verb in ("exchange", "extend", "get"):
            patch.setattr(store, verb, self._wrap(getattr(store, verb)))

    def _wrap(self, call: Any) -> Any:
        return lambda *args, **more: self._fail() if self.is_on else call(*args, **more)

    def _fail(self) -> NoReturn:
        if self._hangs:
            self.lifted.wait(LIMIT)
        raise StoreUnavailable("away")

    def lift(self) -> None:
        self.is_on = False
        self.lifted.set()


@pytest.mark.parametrize("hangs", [False, True])
def test_all_attempts_end_before_their_lease(bench: Bench, monkeypatch: pytest.MonkeyPatch, hangs: bool) -> None:
    runs: list[str] = []
    on: set[str] = set()

    @bench.app.task
    def sync() -> None:
        runs.append("sync")
        on.add("sync")
        try:
            while runs.count("sync") == 1:
                time.sleep(0.01)
        finally:
            on.discard("sync")

    @bench.app.task
    async def loop() -> None:
        runs.append("loop")
        on.add("loop")
        try:
            while runs.count("loop") == 1:
                await asyncio.sleep(0.01)
        finally:
            on.discard("loop")

    jobs = [sync.enqueue(), loop.enqueue()]
    worker = bench.work(lease=LEASE, kill_after=0.1, fence=True)
    cut = CutOff(worker.pump.store, monkeypatch, hangs)
    until(lambda: len(on) == 2)
    cut.is_on = True
    until(lambda: not on)
    others = bench.store()
    assert others.reclaim(others.time()) == [], "somebody else could have had them"
    cut.lift()
    assert [finished(job) for job in jobs] == ["done", "done"]
    assert sorted(runs) == ["loop", "loop", "sync", "sync"]
    assert [(job.record().attempt, job.record().crashes) for job in jobs] == [(1, 0)] * 2


def test_without_a_fence_they_go_on(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    gate, begun = bench.gate(), threading.Event()

    @bench.app.task
    def sync() -> int:
        begun.set()
        wait_for(gate)
        return 1

    job = sync.enqueue()
    worker = bench.work(lease=2 * SECOND)
    cut = CutOff(worker.pump.store, monkeypatch, hangs=False)
    wait_for(begun)
    cut.is_on = True
    others = bench.store()
    until(lambda: others.reclaim(others.time()))
    cut.lift()
    gate.set()
    assert finished(job) == "done"
    assert job.record().attempt == 1


def test_a_fence_needs_a_lease_that_a_slow_answer_does_not_end() -> None:
    assert worker_settings(Pool(fence="stop", lease=9 * SECOND), 1).fence
    with pytest.raises(ConfigError, match=r'\[pools.default\] fence = "stop" needs a lease of 9 s or more'):
        worker_settings(Pool(fence="stop", lease=8 * SECOND), 1)
