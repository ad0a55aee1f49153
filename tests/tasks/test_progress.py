"""What a task says of how far it is, and where it can be read."""

import asyncio
import math
import threading
import time
from decimal import Decimal
from typing import Any

import pytest
from msgspec import json

from tarry import App, current_job
from tarry.errors import StoreFull, StoreUnavailable
from tarry.model.checks.texts import cut
from tarry.model.job import Job, State
from tarry.store.memory.store import MemoryStore
from tarry.tasks.progress import SAVE_INTERVAL, Progress, ProgressRow, decode_progress
from tarry.tasks.running import CurrentJob, Running
from tests.worker.bench import LIMIT, Bench, until, wait_for
from tests.worker.manual_pump import TASKS, MakePump, ManualPump


def say(running: Running, fraction: Any, message: str = "") -> None:
    CurrentJob(running).progress(fraction, message)


def begun(manual: ManualPump, count: int = 1) -> list[Running]:
    manual.insert(count)
    manual.turns()
    assert len(manual.sync.on) == count
    return list(manual.sync.on)


def kept(manual: ManualPump, running: Running) -> Progress | None:
    return decode_progress(manual.record(running.job).progress)


@pytest.mark.parametrize("kind", ["sync", "loop"])
def test_progress_is_seen_while_the_task_runs_and_afterwards(any_bench: Bench, kind: str) -> None:
    gate = any_bench.gate()

    @any_bench.app.task(name="sync")
    def sync() -> None:
        current_job().progress(0.25)
        current_job().progress(0.5, "half of it")
        wait_for(gate)
        current_job().progress(1, "all of it")

    @any_bench.app.task(name="loop")
    async def loop() -> None:
        current_job().progress(0.25)
        current_job().progress(0.5, "half of it")
        await asyncio.to_thread(wait_for, gate)
        current_job().progress(1, "all of it")

    job = any_bench.app.enqueue(kind)
    assert job.progress is None
    any_bench.work()
    until(lambda: job.progress == Progress(0.5, "half of it"))
    assert job.state == "running"
    gate.set()
    job.result(LIMIT)
    assert job.progress == Progress(1.0, "all of it")
    assert json.decode(job.record().progress) == [1.0, "all of it"]


def test_what_was_said_just_before_the_end_is_there_with_the_end(any_bench: Bench) -> None:
    @any_bench.app.task
    def short(number: int) -> None:
        current_job().progress(number / 100, f"job {number}")

    any_bench.work(threads=2)
    jobs = short.enqueue_many([(number,) for number in range(100)])
    for number, job in enumerate(jobs):
        job.result(LIMIT)
        assert job.progress == Progress(number / 100, f"job {number}")


def test_the_newest_is_sent_every_100_ms_and_no_other(make: MakePump) -> None:
    manual = make(threads=2)
    one, two = begun(manual, 2)
    for step in range(10):
        say(one, step / 10, f"step {step}")
        manual.turns()
    assert kept(manual, one) == Progress(0.0, "step 0")
    assert manual.store.calls["save_progress"] == 1
    say(two, 0.3)
    assert manual.turns() == pytest.approx(SAVE_INTERVAL)
    manual.pass_time(SAVE_INTERVAL)
    manual.turns()
    assert (kept(manual, one), kept(manual, two)) == (Progress(0.9, "step 9"), Progress(0.3))
    assert manual.store.calls["save_progress"] == 2, "of both in one call"


def test_the_last_word_comes_before_the_outcome_without_waiting(make: MakePump) -> None:
    manual = make(threads=2)
    one, two = begun(manual, 2)
    say(one, 0.1)
    manual.turns()
    say(one, 1)
    say(two, 0.2)
    manual.sync.end(one)
    manual.turns()
    assert (manual.record(one.job).state, kept(manual, one)) == (State.DONE, Progress(1.0))
    assert kept(manual, two) is None, "it runs on, so its time has not come"
    manual.pass_time(SAVE_INTERVAL)
    manual.turns()
    assert kept(manual, two) == Progress(0.2)


def test_a_sleeping_pump_is_woken_once_until_it_has_sent(make: MakePump, monkeypatch: pytest.MonkeyPatch) -> None:
    manual = make()
    (running,) = begun(manual)
    pokes: list[int] = []
    monkeypatch.setattr(manual.pump._marks, "_wake", lambda: pokes.append(1))
    for step in range(1000):
        say(running, step / 1000)
    assert len(pokes) == 1
    manual.turns()
    say(running, 1)
    assert len(pokes) == 2


def test_a_pump_that_was_woken_for_a_job_that_has_ended_is_woken_for_the_next(
    make: MakePump, monkeypatch: pytest.MonkeyPatch
) -> None:
    manual = make(threads=2)
    one, other = begun(manual, 2)
    say(one, 0.1)
    manual.turns()
    pokes: list[int] = []
    monkeypatch.setattr(manual.pump._marks, "_wake", lambda: pokes.append(1))
    say(one, 0.2)
    manual.sync.end(one)
    manual.turns()
    say(other, 0.5)
    assert len(pokes) == 2


@pytest.mark.parametrize("error", [StoreUnavailable("away"), StoreFull("no room")])
def test_progress_that_the_store_cannot_take_harms_nothing(
    make: MakePump, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    manual = make(threads=2)
    one, two = begun(manual, 2)

    def broken(owner: str, marks: list[ProgressRow]) -> list[bool]:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(manual.store, "save_progress", broken)
        say(one, 0.5)
        say(two, 0.5, "old")
        manual.sync.end(one)
        manual.turns()
        assert manual.record(one.job).state == State.DONE
        say(two, 0.6, "new")
    manual.pass_time(SAVE_INTERVAL)
    manual.turns()
    assert kept(manual, two) == Progress(0.6, "new")


def test_what_an_attempt_says_that_is_no_longer_ours_is_not_kept(make: MakePump) -> None:
    manual = make()
    (running,) = begun(manual)
    say(running, 0.5)
    manual.turns()
    manual.sync.end(running)
    manual.turns()
    say(running, 0.7)
    manual.pass_time(SAVE_INTERVAL)
    manual.turns()
    assert kept(manual, running) == Progress(0.5)


def unheard() -> Running:
    """An attempt of whose progress nobody takes note."""
    return Running(Job(b"0" * 16, "sync", b"[]"), TASKS["sync"])


@pytest.mark.parametrize("fraction", [-0.1, 1.1, math.nan, math.inf, "half", None, 1 + 1j])
def test_what_is_no_fraction_is_refused(fraction: Any) -> None:
    with pytest.raises(ValueError, match=r"progress\(.*\): a fraction from 0 to 1 is needed, such as done / total"):
        say(unheard(), fraction)


def test_what_is_nearly_one_and_numbers_of_other_kinds_are_fine(make: MakePump) -> None:
    manual = make()
    (running,) = begun(manual)
    for fraction, as_kept in [(sum([0.1] * 10) + 1e-12, 1.0), (Decimal("0.5"), 0.5), (True, 1.0), (-1e-12, 0.0)]:
        say(running, fraction)
        manual.pass_time(SAVE_INTERVAL)
        manual.turns()
        found = kept(manual, running)
        assert found is not None
        assert found.fraction == pytest.approx(as_kept)
        assert 0 <= found.fraction <= 1


def test_a_long_message_is_cut_and_any_text_travels(make: MakePump) -> None:
    manual = make()
    (running,) = begun(manual)
    for message, as_kept in [
        ("ü" * 300, cut("ü" * 300, 200)),
        ("\udcff.txt", "\\udcff.txt"),
        (7, "7"),
        ("\x00", "\x00"),
    ]:
        say(running, 0.5, message)  # type: ignore[arg-type]
        manual.pass_time(SAVE_INTERVAL)
        manual.turns()
        assert kept(manual, running) == Progress(0.5, as_kept)


def test_where_no_pump_listens_progress_goes_nowhere() -> None:
    say(unheard(), 0.5)


def test_many_threads_speak_at_once(bench: Bench) -> None:
    @bench.app.task
    def busy() -> None:
        job = current_job()

        def speak() -> None:
            for step in range(2000):
                job.progress(step / 2000)

        speakers = [threading.Thread(target=speak) for _ in range(3)]
        for speaker in speakers:
            speaker.start()
        for speaker in speakers:
            speaker.join()
        job.progress(1, "done")

    bench.work(threads=4)
    jobs = busy.enqueue_many([()] * 4)
    for job in jobs:
        job.result(LIMIT)
        assert job.progress == Progress(1.0, "done")


def test_saying_it_is_cheap(make: MakePump) -> None:
    manual = make()
    (running,) = begun(manual)
    job = CurrentJob(running)
    started = time.thread_time()
    for _ in range(10_000):
        job.progress(0.5, "half")
    assert (time.thread_time() - started) / 10_000 < 50e-6


@pytest.mark.parametrize("foreign", [b"nonsense", b"{}", b"[1]", b'["x","y"]'])
def test_what_others_wrote_there_is_none(foreign: bytes) -> None:
    app = App(MemoryStore(), closures=True)

    @app.task
    def pay() -> None: ...

    job = pay.enqueue()
    assert decode_progress(foreign) is None
    assert job.progress is None
