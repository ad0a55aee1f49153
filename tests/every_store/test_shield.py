"""A timeout or cancel that comes while a task is inside tarry's own code harms neither the process nor the store."""

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tarry import App, TimeLimit
from tarry.errors import StoreAway
from tarry.model.job import Job
from tarry.model.outcome import TimedOut
from tarry.store.memory.store import MemoryStore
from tarry.store.rules import ids
from tarry.tasks.running import Running
from tarry.tasks.shield import shielded
from tarry.worker.run.context import KILL_AFTER, AttemptContext
from tarry.worker.run.runner import OutcomeQueue
from tarry.worker.run.status_reporter import NullReporter
from tarry.worker.run.threads import INSIDE, ThreadRunner
from tests.every_store.throwing import Thrower, assert_all_interrupted, assert_nothing_is_held, busy_task
from tests.seeds import seeded_random
from tests.worker.bench import until, wait_for

TIMES = 200
"""At each store: a shield that holds nothing back is seen by it at all but the one in memory."""


def test_interrupts_at_any_moment_leave_nothing_held(app: App) -> None:
    busy, thrower = busy_task(app), Thrower(4)
    app.client.fetch([])  # opened, so that the interrupts hit more than the opening
    assert_all_interrupted(thrower.throw(busy, TIMES), TIMES)
    thrower.runner.stop()
    assert_nothing_is_held(app)


def test_the_main_thread_is_interrupted_by_signal(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/jobs.db", closures=True)
    busy, thrower = busy_task(app), Thrower(1, main=True)
    app.client.fetch([])
    outcomes: list[object] = []

    def throw() -> None:
        try:
            outcomes.extend(thrower.throw(busy, TIMES))
        finally:
            thrower.runner.stop()

    thread = threading.Thread(target=throw)
    thread.start()
    thrower.runner.serve()
    thread.join()
    assert_all_interrupted(outcomes, TIMES)  # type: ignore[arg-type]
    assert_nothing_is_held(app)
    app.close()


class Shaky(MemoryStore):
    """Away for every third insert."""

    def __init__(self) -> None:
        super().__init__()
        self._chance = seeded_random()

    def insert(self, jobs: Sequence[Job]) -> list[bytes]:
        if self._chance.random() < 0.3:
            raise StoreAway("away, for a test")
        return super().insert(jobs)


def test_interrupts_while_jobs_go_by_the_outbox(tmp_path: Path) -> None:
    app = App(Shaky(), closures=True, outbox=tmp_path / "outbox.db")
    forwarder = app.client.forwarder
    assert forwarder is not None

    @app.task(name="target")
    def target(number: int) -> None: ...

    @app.task(name="busy")
    def busy() -> None:
        while True:
            target.enqueue(1)
            try:
                forwarder.forward()
            except StoreAway:
                continue

    thrower = Thrower(3)
    assert_all_interrupted(thrower.throw(busy, TIMES), TIMES)
    thrower.runner.stop()
    assert_nothing_is_held(app)
    until(lambda: forwarder.outbox.content().jobs == 0)
    app.close()


class Limits(NullReporter):
    """Keeps when the master would kill."""

    def __init__(self) -> None:
        self.limits: list[float] = []

    def limit(self, cell: int, kill_at: float, reason: int) -> None:
        self.limits.append(kill_at - time.monotonic())


class OneSlot:
    """One thread that runs one task, to be interrupted when the test says."""

    def __init__(self, app: App, task: Any) -> None:
        self.gauge = Limits()
        self.outcomes = OutcomeQueue(lambda: None)
        self.runner = ThreadRunner(
            1, self.outcomes, lambda cell: AttemptContext(reporter=self.gauge, cell=cell), use_main_thread=False
        )
        self.running = Running(Job(ids.uuid7(), task.name, b"[]", "default"), task)
        self.runner.put([self.running])

    def interrupt(self) -> float:
        """Seconds until the task has ended after it."""
        start = time.monotonic()
        self.runner.interrupt(self.running, TimeLimit)
        until(lambda: self.outcomes.ended)
        ((_, outcome),) = self.outcomes.ended
        assert isinstance(outcome, TimedOut)
        self.runner.stop()
        return time.monotonic() - start


def test_who_waits_for_a_result_leaves_at_once(app: App) -> None:
    begun = threading.Event()

    @app.task(name="never")
    def never() -> None: ...

    @app.task(name="waits")
    def waits() -> None:
        job = never.enqueue()
        begun.set()
        job.result()

    slot = OneSlot(app, waits)
    wait_for(begun)
    assert slot.interrupt() < 2.0
    until(lambda: not app.client._waiting._waiters)


def test_who_waits_for_the_turn_leaves_at_once_and_nothing_is_stored() -> None:
    entered, door = threading.Event(), threading.Event()

    class Slow(MemoryStore):
        def insert(self, jobs: Sequence[Job]) -> list[bytes]:
            entered.set()
            wait_for(door)
            return super().insert(jobs)

    app = App(Slow(), closures=True)

    @app.task(name="put")
    def put() -> None: ...

    @app.task(name="puts")
    def puts() -> None:
        put.enqueue()

    first = threading.Thread(target=put.enqueue)
    first.start()
    wait_for(entered)
    slot = OneSlot(app, puts)
    until(lambda: len(app.client._inserter.batcher._waiting) == 1)
    assert slot.interrupt() < 2.0
    door.set()
    first.join()
    put.enqueue()
    assert sum(tally.count for tally in app.client.store.counts()) == 2
    app.close()


def test_a_call_of_the_store_is_not_cut_off_and_the_master_gives_it_the_time() -> None:
    entered, door, left = threading.Event(), threading.Event(), threading.Event()

    class Slow(MemoryStore):
        def insert(self, jobs: Sequence[Job]) -> list[bytes]:
            entered.set()
            wait_for(door)
            answer = super().insert(jobs)
            left.set()
            return answer

    app = App(Slow(), closures=True)

    @app.task(name="puts")
    def puts() -> None:
        puts.enqueue()

    slot = OneSlot(app, puts)
    wait_for(entered)
    threading.Timer(0.1, door.set).start()
    slot.interrupt()
    assert left.is_set()
    inside, outside = slot.gauge.limits
    assert inside == pytest.approx(INSIDE + KILL_AFTER, abs=0.3)
    assert outside == pytest.approx(KILL_AFTER, abs=0.3)
    app.close()


def test_middleware_of_the_user_is_interrupted_as_any_code() -> None:
    app = App(MemoryStore(), closures=True)
    begun = threading.Event()

    @app.middleware("enqueue")
    def endless(job: Any, call_next: Any) -> Any:
        begun.set()
        while True:
            pass

    @app.task(name="puts")
    def puts() -> None:
        puts.enqueue()

    slot = OneSlot(app, puts)
    wait_for(begun)
    slot.interrupt()
    app.close()


def test_a_task_that_cleans_up_may_use_the_store() -> None:
    app = App(MemoryStore(), closures=True)
    begun, cleaned = threading.Event(), threading.Event()

    @app.task(name="tidy")
    def tidy() -> None:
        begun.set()
        try:
            while True:
                with shielded:
                    pass
        finally:
            tidy.enqueue().cancel()
            cleaned.set()

    slot = OneSlot(app, tidy)
    wait_for(begun)
    slot.interrupt()
    assert cleaned.is_set()
    app.close()
