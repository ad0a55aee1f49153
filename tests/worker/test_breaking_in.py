"""Timeouts and cancels: how a task that runs is stopped, and that nothing else is."""

import asyncio
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from tarry import CalledBack, JobFailed, Retry, State, TimeLimit, current_job
from tests.worker.bench import LIMIT, Bench, finished, note, until, wait_for


def assert_timed_out(job: Any, timeout: str) -> None:
    assert finished(job) == "dead"
    assert note(job)["type"] == "TimeLimit"
    assert note(job)["message"] == f"stopped after its timeout of {timeout} s"


def test_a_busy_loop_is_stopped_at_its_timeout_with_the_stack_as_evidence(bench: Bench) -> None:
    # Long enough to begin on a busy machine: else the stack is ours.
    @bench.app.task(name="spin", timeout=0.5)
    def spin() -> None:
        while True:
            pass

    @bench.app.task
    def one() -> int:
        return 1

    bench.work(threads=1)
    job, after = spin.enqueue(), one.enqueue()
    assert_timed_out(job, "0.5")
    assert "while True" in note(job)["traceback"] or "pass" in note(job)["traceback"]
    assert after.result(LIMIT) == 1


@pytest.mark.parametrize("kind", ["sync", "loop"])
def test_a_timeout_does_not_wait_for_the_store(bench: Bench, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    stands, over = bench.gate(), bench.gate()
    ends: list[type[BaseException]] = []
    begun = threading.Event()

    def spin() -> None:
        begun.set()
        try:
            while True:
                time.sleep(0.002)
        except BaseException as error:
            ends.append(type(error))
            raise

    async def wait() -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        except BaseException as error:
            ends.append(type(error))
            raise

    task = bench.app.task(name="long", timeout=0.5)(spin if kind == "sync" else wait)
    worker = bench.idle(threads=1)
    exchange = worker.pump.store.exchange

    def stuck(*args: Any) -> Any:
        if begun.is_set() and not over.is_set():
            stands.set()
            wait_for(over)
        return exchange(*args)

    monkeypatch.setattr(worker.pump.store, "exchange", stuck)
    bench._workers.append(worker.start())
    job = task.enqueue()
    wait_for(stands)
    until(lambda: ends)
    assert job.state == "running", "the pump still waits"
    over.set()
    assert_timed_out(job, "0.5")


def test_one_blocking_call_in_c_ends_late_and_has_timed_out_all_the_same(bench: Bench) -> None:
    spent: list[float] = []

    # Long enough for the task to begin on a busy machine: an interrupt before its first line leaves no trace.
    @bench.app.task(timeout=0.5)
    def sleep() -> None:
        started = time.monotonic()
        try:
            time.sleep(1.0)
        finally:
            spent.append(time.monotonic() - started)

    bench.work()
    assert_timed_out(sleep.enqueue(), "0.5")
    assert spent[0] >= 1.0, "no Python code runs inside time.sleep, so nothing can be raised there"


def test_a_coroutine_is_stopped_at_its_timeout(bench: Bench) -> None:
    ends: list[type[BaseException]] = []

    @bench.app.task(timeout=0.05)
    async def sleep() -> None:
        try:
            await asyncio.sleep(60)
        except BaseException as error:
            ends.append(type(error))
            raise

    bench.work()
    assert_timed_out(sleep.enqueue(), "0.05")
    assert ends == [asyncio.CancelledError]


def test_a_timeout_is_retried_by_the_rule_and_counts(bench: Bench) -> None:
    @bench.app.task(timeout=0.5, retry=Retry(2, base=0.01, only=(TimeoutError,)))
    def sometimes() -> int:
        while current_job().attempt < 3:
            time.sleep(0.005)
        return current_job().attempt

    bench.work()
    job = sometimes.enqueue()
    assert job.result(LIMIT) == 3
    assert job.record().failures == 2


def test_except_exception_does_not_swallow_it(bench: Bench) -> None:
    @bench.app.task(name="stubborn", timeout=0.05)
    def stubborn() -> None:
        while True:
            try:
                time.sleep(0.002)
            except Exception:
                continue

    @bench.app.task(name="astubborn", timeout=0.05)
    async def astubborn() -> None:
        while True:
            try:
                await asyncio.sleep(0.002)
            except Exception:
                continue

    bench.work()
    assert_timed_out(stubborn.enqueue(), "0.05")
    assert_timed_out(astubborn.enqueue(), "0.05")


def test_a_task_may_clean_up_when_its_time_is_over(bench: Bench) -> None:
    told: list[object] = []

    # As above: who has not begun cleans up nothing.
    @bench.app.task(timeout=0.5)
    def careful() -> None:
        try:
            while True:
                time.sleep(0.002)
        except TimeLimit:
            told.append(current_job().stopping)
            raise ValueError("cleaned up") from None

    bench.work()
    job = careful.enqueue()
    assert_timed_out(job, "0.5")
    assert told == [True]
    assert "ValueError: cleaned up" in note(job)["traceback"]


def test_the_time_in_line_does_not_count(bench: Bench) -> None:
    @bench.app.task(timeout=1)
    def short() -> int:
        time.sleep(0.1)
        return 1

    jobs = short.enqueue_many([()] * 12)
    worker = bench.idle(threads=1)
    worker.pump._capacity._prefetch[False]._rate = 4000.0
    bench._workers.append(worker.start())
    assert [job.result(LIMIT) for job in jobs] == [1] * 12


def test_a_job_that_ends_just_as_its_time_is_over_harms_nobody(bench: Bench) -> None:
    @bench.app.task(timeout=0.01)
    def close_to_it() -> int:
        time.sleep(0.0098)
        return 1

    @bench.app.task
    def after() -> int:
        return sum(range(200))

    worker = bench.work(threads=2)
    jobs = close_to_it.enqueue_many([()] * 100)
    others = after.enqueue_many([()] * 300)
    states = {finished(job) for job in jobs}
    assert states <= {State.DONE, State.DEAD}
    assert {note(job)["type"] for job in jobs if job.state == "dead"} <= {"TimeLimit"}
    assert {job.result(LIMIT) for job in others} == {19900}, "no stray interrupt"
    until(lambda: worker.pump.held_count == 0)


def test_a_cancelled_job_that_waits_never_runs(any_bench: Bench) -> None:
    runs: list[int] = []

    @any_bench.app.task
    def run(number: int) -> int:
        runs.append(number)
        return number

    ready, later = run.enqueue(1), run.using(delay=0.05).enqueue(2)
    assert ready.cancel()
    assert later.cancel()
    any_bench.work()
    assert run.using(delay=0.1).enqueue(3).result(LIMIT) == 3
    assert runs == [3]
    assert (ready.state, later.state) == ("cancelled", "cancelled")


@pytest.mark.parametrize("threads", [1, 2])
def test_a_sync_task_that_runs_is_stopped_when_its_job_is_cancelled(any_bench: Bench, threads: int) -> None:
    begun, over = threading.Event(), any_bench.gate()
    ends: list[type[BaseException]] = []

    @any_bench.app.task(retry=5)
    def long() -> None:
        begun.set()
        try:
            while not over.is_set():
                time.sleep(0.002)
        except BaseException as error:
            ends.append(type(error))
            raise

    worker = any_bench.work(threads=threads)
    job = long.enqueue()
    wait_for(begun)
    assert job.cancel("no longer wanted")
    until(lambda: ends)
    until(lambda: worker.pump.held_count == 0)
    assert ends == [CalledBack], "once, and not run again"
    assert (job.state, note(job)["message"]) == ("cancelled", "no longer wanted")


@pytest.mark.parametrize("coroutines", [1, 2])
def test_a_coroutine_that_runs_is_stopped_when_its_job_is_cancelled(any_bench: Bench, coroutines: int) -> None:
    begun, ends = threading.Event(), []

    @any_bench.app.task(retry=5)
    async def long() -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            ends.append(current_job().stopping)

    worker = any_bench.work(coroutines=coroutines)
    job = long.enqueue()
    wait_for(begun)
    assert job.cancel()
    until(lambda: ends)
    until(lambda: worker.pump.held_count == 0)
    assert ends == [True]
    assert job.state == "cancelled"


def test_neighbours_of_a_cancelled_job_run_on(bench: Bench) -> None:
    begun, gate = threading.Semaphore(0), bench.gate()

    @bench.app.task
    async def long(number: int) -> int:
        begun.release()
        while not gate.is_set():
            await asyncio.sleep(0.002)
        return number

    bench.work()
    jobs = long.enqueue_many([(number,) for number in range(20)])
    for _ in jobs:
        assert begun.acquire(timeout=LIMIT)
    for job in jobs[::2]:
        assert job.cancel()
    gate.set()
    assert [job.result(LIMIT) for job in jobs[1::2]] == list(range(1, 20, 2))
    assert {job.state for job in jobs[::2]} == {State.CANCELLED}


def test_a_task_that_swallows_the_interrupt_changes_nothing_any_more(bench: Bench) -> None:
    begun, over = threading.Event(), bench.gate()

    @bench.app.task
    def deaf() -> str:
        begun.set()
        while not over.is_set():
            try:
                time.sleep(0.002)
            except BaseException:
                over.set()
        return "done all the same"

    worker = bench.work()
    job = deaf.enqueue()
    wait_for(begun)
    job.cancel()
    until(lambda: worker.pump.held_count == 0)
    assert over.is_set()
    assert job.state == "cancelled"
    assert worker.pump.events.processed == 0


def test_a_coroutine_that_swallows_its_cancellation_is_given_up_and_its_slot_is_free(bench: Bench) -> None:
    steps: list[int] = []

    # Long enough to begin on a busy machine: who is cancelled before that swallows nothing.
    @bench.app.task(name="deaf", timeout=0.5)
    async def deaf() -> None:
        while True:
            steps.append(1)
            try:
                await asyncio.sleep(60)
            except BaseException:
                continue

    @bench.app.task(name="wordy", timeout=0.5)
    async def wordy() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(60)

    @bench.app.task
    async def one() -> int:
        return 1

    worker = bench.work(coroutines=1, kill_after=0.1)
    jobs = [deaf.enqueue(), wordy.enqueue()]
    assert one.enqueue().result(LIMIT) == 1
    for job, name in zip(jobs, ("deaf", "wordy"), strict=True):
        assert finished(job) == "dead"
        # The latter on a busy machine.
        ends = "it did not end after its timeout of 0.5 s, so it was given up", "something held up the event loop"
        assert note(job)["message"].endswith(ends)
        assert f"in {name}\n" in note(job)["traceback"]
    until(lambda: worker.pump.held_count == 0)
    assert worker.pump._capacity._count == {False: 0, True: 0}
    assert len(steps) == 3, "begun, cancelled, and its last one"


def test_whoever_cleans_up_in_time_is_not_given_up(bench: Bench) -> None:
    @bench.app.task(timeout=0.05)
    async def tidy() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.2)

    bench.work(kill_after=10)
    assert_timed_out(tidy.enqueue(), "0.05")


def test_all_jobs_of_a_call_that_is_given_up_have_timed_out(bench: Bench) -> None:
    @bench.app.task(name="many", timeout=0.05, batch=3, wait=5)
    async def many(numbers: list[int]) -> None:
        while True:
            try:
                await asyncio.sleep(60)
            except BaseException:
                continue

    worker = bench.work(kill_after=0.1)
    jobs = many.enqueue_many([(number,) for number in range(3)])
    assert [finished(job) for job in jobs] == ["dead"] * 3
    assert {note(job)["message"] for job in jobs} == {"it did not end after its timeout of 0.05 s, so it was given up"}
    until(lambda: worker.pump._capacity._count == {False: 0, True: 0})


def test_a_job_whose_loop_another_holds_up_is_over_in_time(bench: Bench) -> None:
    begun, gate = threading.Event(), bench.gate()

    @bench.app.task(timeout=0.1)
    async def patient() -> None:
        begun.set()
        await asyncio.sleep(60)

    @bench.app.task(name="hog")
    async def hog() -> int:
        gate.wait(LIMIT)
        return 1

    # Both begin in one turn of the loop, so that the hog is on when the time of the other is over.
    job, other = patient.enqueue(), hog.enqueue()
    bench.work(kill_after=0.1)
    wait_for(begun)
    assert finished(job) == "dead"
    assert note(job)["message"] == "its timeout of 0.1 s was over while hog held up the event loop"
    assert other.state == "running"
    gate.set()
    assert other.result(LIMIT) == 1


def test_a_dead_job_that_timed_out_can_be_asked_for_its_result(bench: Bench) -> None:
    @bench.app.task(timeout=0.02)
    async def sleep() -> None:
        await asyncio.sleep(60)

    bench.work()
    with pytest.raises(JobFailed, match=r"TimeLimit: stopped after its timeout of 0.02 s"):
        sleep.enqueue().result(LIMIT)


AFTERWARDS = """
import sys
from tarry import App, TimeLimit
from tarry.store.memory.store import MemoryStore

app = App(MemoryStore(), closures=True)

@app.task(timeout=0.05, retry=None)
def spin() -> None:
    try:
        while True:
            pass
    except TimeLimit:
        raise

with app.running(threads=1):
    job = spin.enqueue()
    while not job.state.finished:
        pass

def traced(frame, event, argument):
    return traced

def called() -> int:
    return 1

sys.settrace(traced)
print(called())
"""


def test_whoever_traces_is_not_held_up_by_a_timeout_that_was() -> None:
    """CPython keeps a flag up after an exception was thrown into a thread and taken back: under a debugger or a
    coverage tool the next call of a function never returned."""
    ran = subprocess.run([sys.executable, "-c", AFTERWARDS], capture_output=True, text=True, timeout=250, check=False)
    assert (ran.stdout, ran.returncode) == ("1\n", 0), ran.stderr
