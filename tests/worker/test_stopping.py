"""How a worker ends: told by a thread, by signals, or by the loss of its parent."""

import asyncio
import logging
import signal
import socket
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from tarry import current_job
from tarry.model.killing import TIMEOUT
from tarry.store.memory.store import MemoryStore
from tarry.worker.run.status_reporter import NullReporter
from tarry.worker.worker import ControlChannel, Worker, WorkerSettings
from tests.worker.bench import LIMIT, Bench, ThreadWorker, until, wait_for


class Parent(ControlChannel):
    """Sends signals, and may die."""

    def __init__(self) -> None:
        self._hear, self._say = socket.socketpair()
        self._said: list[int] = []
        self.lives = True
        self.is_confirmed = False

    def say(self, *numbers: int) -> None:
        self._said += numbers
        self._say.send(b"!")

    def die(self) -> None:
        self.lives = False
        self._say.send(b"!")

    def filenos(self) -> Sequence[int]:
        return [self._hear.fileno()]

    def signals(self) -> Sequence[int]:
        if not self._said:
            return ()
        self._hear.recv(100)
        said, self._said = self._said, []
        return said

    def is_parent_alive(self) -> bool:
        return self.lives

    def confirm_stop(self) -> None:
        self.is_confirmed = True

    def close(self) -> None:
        self._hear.close()
        self._say.close()


@pytest.fixture
def parent(bench: Bench) -> Parent:
    parent = Parent()
    bench.at_last.append(parent.close)
    return parent


def children_of(bench: Bench, parent: Parent, **settings: Any) -> ThreadWorker:
    worker = ThreadWorker(
        bench.store(),
        bench.app.tasks,
        WorkerSettings(**settings),
        rules=bench.app.rules,
        control=parent,
        main_thread=False,
    )
    bench._workers.append(worker.start())
    return worker


class Long:
    """A sync and an async task that run until told, and see whether the worker wants to stop."""

    def __init__(self, bench: Bench) -> None:
        self.gate, self.begun = bench.gate(), threading.Semaphore(0)
        self.saw_stop: list[str] = []

        @bench.app.task(name="sync")
        def sync() -> int:
            self.begun.release()
            self.watch()
            assert self.gate.wait(LIMIT)
            return 1

        @bench.app.task(name="loop")
        async def loop() -> int:
            self.begun.release()
            while not self.gate.is_set():
                self.watch()
                await asyncio.sleep(0.002)
            return 1

        self.watchers: list[threading.Thread] = []
        self.tasks = {"sync": sync, "loop": loop}

    def watch(self) -> None:
        job = current_job()
        if not job.stopping and job.id in {thread.name for thread in self.watchers}:
            return
        watcher = threading.Thread(target=self._see, args=(job,), name=job.id, daemon=True)
        watcher.start()
        self.watchers.append(watcher)

    def _see(self, job: Any) -> None:
        until(lambda: job.stopping or self.gate.is_set())
        if job.stopping:
            self.saw_stop.append(job.id)

    def has_begun(self, times: int = 1) -> None:
        for _ in range(times):
            assert self.begun.acquire(timeout=LIMIT)


def test_stop_finishes_what_runs_and_takes_nothing_new(any_bench: Bench) -> None:
    long = Long(any_bench)
    running = [long.tasks["sync"].enqueue(), long.tasks["loop"].enqueue()]
    worker = any_bench.work(threads=1)
    long.has_begun(2)
    worker.stop()
    until(lambda: set(long.saw_stop) == {job.id for job in running})
    after = long.tasks["sync"].enqueue()
    assert worker.thread.is_alive()
    assert {job.state for job in running} == {"running"}
    long.gate.set()
    worker.thread.join(LIMIT)
    assert not worker.thread.is_alive()
    assert [job.state for job in running] == ["done", "done"], "settled before it ended"
    assert (after.state, after.record().epoch) == ("ready", 0)


def test_stop_gives_back_what_has_not_begun_and_counts_nothing(bench: Bench) -> None:
    long = Long(bench)
    runs: list[int] = []

    @bench.app.task
    def short(number: int) -> None:
        runs.append(number)

    first = long.tasks["sync"].enqueue()
    others = short.enqueue_many([(number,) for number in range(10)])
    worker = bench.idle(threads=1)
    worker.pump._capacity._prefetch[False]._rate = 4000.0
    bench._workers.append(worker.start())
    long.has_begun()
    worker.stop()
    until(lambda: worker.pump.held_count == 1)
    assert {(job.state, job.record().failures, job.record().owner) for job in others} == {("ready", 0, "")}
    long.gate.set()
    worker.thread.join(LIMIT)
    assert first.state == "done"
    assert runs == []


def test_an_idle_worker_stops_at_once(any_bench: Bench) -> None:
    worker = any_bench.work()
    worker.end()
    assert not worker.thread.is_alive()
    assert not any(thread.name == "tarry-pump" for thread in threading.enumerate())


def test_it_confirms_a_stop_while_its_jobs_go_on(bench: Bench, parent: Parent) -> None:
    long = Long(bench)
    job = long.tasks["loop"].enqueue()
    worker = children_of(bench, parent)
    long.has_begun()
    assert not parent.is_confirmed
    parent.say(signal.SIGINT)
    until(lambda: parent.is_confirmed)
    assert worker.pump.is_closed
    assert job.state == "running"
    long.gate.set()
    worker.thread.join(LIMIT)
    assert job.state == "done"


def test_stopping_twice_is_stopping(bench: Bench) -> None:
    worker = bench.work()
    worker.stop()
    worker.end()
    worker.stop()


def test_its_threads_end_with_it(bench: Bench) -> None:
    @bench.app.task
    def one() -> int:
        return 1

    @bench.app.task
    async def two() -> int:
        return 2

    worker = bench.work(threads=3)
    assert one.enqueue().result(LIMIT) + two.enqueue().result(LIMIT) == 3
    worker.end()
    until(lambda: not any(thread.name.startswith(("tarry-slot", "tarry-loop")) for thread in threading.enumerate()))


def test_int_finishes_and_ends(bench: Bench, parent: Parent) -> None:
    long = Long(bench)
    job = long.tasks["sync"].enqueue()
    worker = children_of(bench, parent)
    long.has_begun()
    parent.say(signal.SIGINT)
    until(lambda: worker.pump.stopping)
    assert job.state == "running"
    long.gate.set()
    worker.thread.join(LIMIT)
    assert not worker.thread.is_alive()
    assert job.state == "done"


def test_term_gives_everything_back_uncounted_and_leaves(
    bench: Bench, parent: Parent, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = threading.Event()
    monkeypatch.setattr(Worker, "_exit_process", lambda self: left.set())
    long = Long(bench)
    jobs = [long.tasks["sync"].enqueue(), long.tasks["loop"].enqueue(), long.tasks["loop"].enqueue()]
    worker = children_of(bench, parent)
    long.has_begun(3)
    parent.say(signal.SIGTERM)
    wait_for(left)
    records = [job.record() for job in jobs]
    assert [(record.state, record.failures, record.epoch, record.owner) for record in records] == [
        ("ready", 0, 1, "")
    ] * 3
    long.gate.set()
    worker.thread.join(LIMIT)
    assert {job.state for job in jobs} == {"ready"}, "what they come to now is nobody's"


def test_term_after_int_does_not_wait(bench: Bench, parent: Parent, monkeypatch: pytest.MonkeyPatch) -> None:
    left = threading.Event()
    monkeypatch.setattr(Worker, "_exit_process", lambda self: left.set())
    long = Long(bench)
    job = long.tasks["sync"].enqueue()
    children_of(bench, parent)
    long.has_begun()
    parent.say(signal.SIGINT, signal.SIGTERM)
    wait_for(left)
    assert job.state == "ready"


def test_usr1_is_answered_in_the_log(bench: Bench, parent: Parent, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    @bench.app.task
    def fails() -> None:
        raise ValueError("no")

    worker = children_of(bench, parent)
    job = fails.enqueue()
    until(lambda: job.state == "dead")
    until(lambda: worker.pump.events.failed == 1)
    parent.say(signal.SIGUSR1)
    until(lambda: "processed 1, failed attempts 1, holds 0" in caplog.text)


def test_without_its_parent_it_finishes_and_ends(
    bench: Bench, parent: Parent, caplog: pytest.LogCaptureFixture
) -> None:
    long = Long(bench)
    job = long.tasks["loop"].enqueue()
    worker = children_of(bench, parent)
    long.has_begun()
    parent.die()
    until(lambda: worker.pump.stopping)
    long.gate.set()
    worker.thread.join(LIMIT)
    assert not worker.thread.is_alive()
    assert job.state == "done"
    assert caplog.text.count("the master is gone; this worker finishes what it runs and ends") == 1


def test_a_pump_that_breaks_ends_its_worker_with_the_error(caplog: pytest.LogCaptureFixture) -> None:
    def step() -> float:
        raise RuntimeError("a bug")

    worker = Worker(MemoryStore(), {}, main_thread=True)
    worker.pump.step = step  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="a bug"):
        worker.run()
    assert "the pump broke; this worker ends" in caplog.text


class Gauges(NullReporter):
    """Keeps what it was shown."""

    def __init__(self) -> None:
        self.shown: list[tuple[Any, ...]] = []

    def on(self, cell: int, id: bytes, epoch: int, task: bytes, kill_at: float, reason: int = TIMEOUT) -> None:
        self.shown.append(("on", cell, id, epoch, task, kill_at))

    def off(self, cell: int) -> None:
        self.shown.append(("off", cell))

    def count(self, processed: int, failed: int) -> None:
        self.shown.append(("count", processed, failed))

    def beat(self, rss: int) -> None:
        self.shown.append(("beat", rss))


def test_it_shows_what_is_on_and_how_it_stands(bench: Bench) -> None:
    @bench.app.task(name="sync", timeout=60)
    def sync() -> int:
        return 1

    @bench.app.task(name="loop")
    async def loop() -> int:
        await asyncio.sleep(0)
        return 1

    gauges = Gauges()
    worker = ThreadWorker(bench.store(), bench.app.tasks, WorkerSettings(threads=1), reporter=gauges, main_thread=False)
    bench._workers.append(worker.start())
    one, two = sync.enqueue(), loop.enqueue()
    assert one.result(LIMIT) + two.result(LIMIT) == 2
    until(lambda: ("count", 2, 0) in gauges.shown)
    ons = [shown for shown in gauges.shown if shown[0] == "on"]
    assert [shown[1:5] for shown in ons if shown[1] == 0] == [(0, bytes.fromhex(one.id.replace("-", "")), 1, b"sync")]
    assert [shown[1:] for shown in ons if shown[1] == 1] == [
        (1, bytes.fromhex(two.id.replace("-", "")), 1, b"loop", 0.0)
    ] * 2
    assert gauges.shown.count(("off", 1)) == 2, "between its steps a coroutine is not on"
    assert [shown[5] > 0 for shown in ons if shown[1] == 0] == [True]
    assert any(shown[0] == "beat" and shown[1] > 2**20 for shown in gauges.shown)
