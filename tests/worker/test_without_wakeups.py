"""Wake-ups are hints. Where none ever comes, whoever waits looks by itself, once a second or so."""

import itertools
import threading
import time
from collections.abc import Iterator

import pytest

from tarry import App
from tarry.store.memory.store import MemoryStore
from tarry.store.rules.sleeper import Wakeup
from tests.worker.bench import Bench, until, wait_for

SOON = 8.0
"""Seconds in which somebody who looks once a second has looked, also on a busy machine."""


class NoWakeup(Wakeup):
    """Nothing wakes it."""

    def listen(self, topic: str) -> None: ...

    def ignore(self) -> None: ...


class Silent(MemoryStore):
    """Tells nobody of anything."""

    def wakeup(self) -> Wakeup:
        return NoWakeup()


@pytest.fixture
def silent() -> Iterator[Bench]:
    store = Silent()
    bench = Bench(App(store, closures=True), lambda: store)
    yield bench
    bench.close()


def test_an_idle_worker_finds_what_comes(silent: Bench) -> None:
    ran = threading.Event()

    @silent.app.task
    def work() -> None:
        ran.set()

    worker = silent.work()
    until(lambda: worker.pump.is_idle and worker.pump._exchanger.claimed_at)
    for _ in range(2):
        began = time.monotonic()
        work.enqueue()
        wait_for(ran)
        assert time.monotonic() - began < SOON
        ran.clear()


def test_a_result_comes(silent: Bench) -> None:
    gate = silent.gate()

    @silent.app.task
    def work() -> int:
        wait_for(gate)
        return 7

    silent.work()
    job = work.enqueue()
    opener = threading.Timer(0.3, gate.set)
    opener.start()
    assert job.result(timeout=SOON) == 7
    opener.join()


def test_a_cancelled_job_is_stopped(silent: Bench) -> None:
    began, ended = threading.Event(), threading.Event()

    @silent.app.task
    def work() -> None:
        began.set()
        try:
            for _ in itertools.count():
                time.sleep(0.001)
        finally:
            ended.set()

    silent.work()
    job = work.enqueue()
    wait_for(began)
    assert job.cancel()
    assert ended.wait(SOON)
