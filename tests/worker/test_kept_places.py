"""What was cancelled keeps its place under a limit while its code goes on."""

import asyncio
import threading
import time
from typing import Any

import pytest

from tarry import State
from tarry.model import lifecycle
from tarry.model.limit import Level, Limit
from tarry.store.rules import kept_places
from tests.worker.bench import LIMIT, Bench, finished, until, wait_for
from tests.worker.manual_pump import MakePump, ManualPump


def hears_nothing(gate: threading.Event, heard: threading.Event) -> None:
    """Goes on after it was interrupted, until the gate opens."""
    end = time.monotonic() + LIMIT
    while not gate.is_set() and time.monotonic() < end:
        try:
            gate.wait(0.01)
        except BaseException:
            heard.set()


@pytest.mark.parametrize("kind", ["sync", "loop"])
def test_another_job_starts_when_the_code_has_ended(any_bench: Bench, kind: str) -> None:
    gate, began, heard = any_bench.gate(), threading.Event(), threading.Event()
    app = any_bench.app

    def begin(first: bool) -> None:
        if first:
            began.set()
            hears_nothing(gate, heard)

    async def abegin(first: bool) -> None:
        if first:
            began.set()
            try:
                await asyncio.sleep(LIMIT)
            finally:
                heard.set()
                end = time.monotonic() + LIMIT
                while not gate.is_set() and time.monotonic() < end:
                    await asyncio.sleep(0.01)

    hold: Any = app.task(name="hold")(begin if kind == "sync" else abegin)

    @app.task
    def other() -> None: ...

    app.client.store.limit("task:hold", Limit(1))
    first = hold.enqueue(True)
    any_bench.work(threads=2)
    wait_for(began)
    second = hold.enqueue(False)
    assert first.cancel()
    assert first.state is State.CANCELLED, "at once, whatever its code does"
    wait_for(heard)
    other.enqueue().result(LIMIT)
    assert second.state is State.READY, "the worker has claimed since, and not this one"
    gate.set()
    assert finished(second) is State.DONE
    until(lambda: app.client.store.limits()["task:hold"][1].running == 0)


def limited(manual: ManualPump, name: str = "task:sync") -> None:
    manual.store.limit(name, Limit(1))


def running(manual: ManualPump, name: str = "task:sync") -> Level:
    return manual.store.limits()[name][1]


def test_the_place_is_kept_for_as_long_as_the_code_runs(make: MakePump) -> None:
    manual = make(threads=2)
    limited(manual)
    (job,) = manual.insert(lane="")
    manual.turns()
    manual.store.apply([lifecycle.cancel(manual.record(job), manual.rules, manual.clock.now())], manual.clock.now())
    (waiting,) = manual.insert(lane="")
    for _ in range(60):
        manual.pass_time(1)
        manual.turns()
        assert kept_places.free_over(manual.store, manual.clock.now(), lambda name: False) == 0
    assert manual.states([waiting]) == [State.READY]
    manual.sync.end_all()
    manual.turns()
    assert manual.states([waiting]) == [State.RUNNING]
    assert (running(manual).running, manual.store.kv_list(kept_places.PREFIX)) == (1, {})


def test_a_worker_that_ends_frees_it(make: MakePump) -> None:
    manual = make()
    limited(manual)
    (job,) = manual.insert(lane="")
    manual.turns()
    manual.store.apply([lifecycle.cancel(manual.record(job), manual.rules, manual.clock.now())], manual.clock.now())
    assert running(manual).running == 1
    manual.pump.release_all()
    assert running(manual).running == 0
