"""Jobs in real workers: what runs, when, how many at once, in what order, and what follows from how it ended."""

import asyncio
import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from tarry import App, Cancel, Fail, JobFailed, Retry, Snooze, State, current_job
from tarry.engine.task import Task
from tarry.engine.worker import Worker
from tests.engine.bench import LIMIT, Bench, until, wait_for


def note(job: Any) -> dict[str, str]:
    told: dict[str, str] = json.loads(job.record().note)
    return told


def finished(job: Any) -> State:
    """Its last state."""
    until(lambda: job.state.finished)
    state: State = job.state
    return state


def test_both_kinds_of_task_in_one_worker(any_bench: Bench) -> None:
    @any_bench.app.task
    def double(a: int) -> tuple[int, str]:
        return 2 * a, threading.current_thread().name

    @any_bench.app.task
    async def triple(a: int) -> tuple[int, str]:
        await asyncio.sleep(0)
        return 3 * a, threading.current_thread().name

    any_bench.work(threads=2, coroutines=10)
    jobs = [task.enqueue(n) for n in range(60) for task in (double, triple)]
    results = [job.result(LIMIT) for job in jobs]
    assert [value for value, _ in results] == [factor * n for n in range(60) for factor in (2, 3)]
    assert {name for _, name in results[0::2]} <= {"tarry-slot-0", "tarry-slot-1"}
    assert {name for _, name in results[1::2]} == {"tarry-loop"}


def test_a_thousand_coroutines_at_once(any_bench: Bench) -> None:
    started: list[int] = []
    all_here: list[asyncio.Event] = []

    @any_bench.app.task
    async def meet(number: int) -> int:
        if not all_here:
            all_here.append(asyncio.Event())
        started.append(number)
        if len(started) == 1000:
            all_here[0].set()
        await asyncio.wait_for(all_here[0].wait(), LIMIT)
        return number

    jobs = meet.enqueue_many([(number,) for number in range(1000)])
    any_bench.work(coroutines=1000)
    assert [job.result(LIMIT) for job in jobs] == list(range(1000))
    assert len(started) == 1000


def test_no_more_coroutines_at_once_than_there_are_slots(bench: Bench) -> None:
    here: Counter[str] = Counter()
    most: list[int] = []

    @bench.app.task
    async def visit() -> None:
        here["now"] += 1
        most.append(here["now"])
        await asyncio.sleep(0.002)
        here["now"] -= 1

    jobs = visit.enqueue_many([()] * 60)
    bench.work(coroutines=7)
    for job in jobs:
        job.result(LIMIT)
    assert max(most) == 7


def test_four_threads_are_four_at_once(any_bench: Bench) -> None:
    barrier = threading.Barrier(4)

    @any_bench.app.task
    def meet() -> int:
        return barrier.wait(LIMIT)

    jobs = meet.enqueue_many([()] * 8)
    any_bench.work(threads=4)
    assert sorted(job.result(LIMIT) for job in jobs) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_the_caller_of_run_is_a_slot(bench: Bench) -> None:
    @bench.app.task
    def where() -> int:
        return threading.get_ident()

    worker = Worker(bench.store(), bench.app.tasks, main_thread=True)
    job = where.enqueue()
    came: list[int] = []

    def wait() -> None:
        came.append(job.result(LIMIT))
        worker.stop()

    waiter = threading.Thread(target=wait)
    waiter.start()
    worker.run()
    waiter.join(LIMIT)
    assert came == [threading.get_ident()]


def test_a_worker_serves_its_queues_only(bench: Bench) -> None:
    @bench.app.task
    def one() -> int:
        return 1

    bench.work(queues={"mail": 1, "default": 2})
    other = one.using(queue="other").enqueue()
    assert one.using(queue="mail").enqueue().result(LIMIT) == 1
    assert one.enqueue().result(LIMIT) == 1
    assert other.state == "ready"
    bench.work(queues={"other": 1})
    assert other.result(LIMIT) == 1


def test_a_worker_of_all_queues_finds_new_ones(any_bench: Bench) -> None:
    @any_bench.app.task
    def one() -> int:
        return 1

    any_bench.work(queues={"*": 1})
    for name in ("a", "b", "c"):
        assert one.using(queue=name).enqueue().result(LIMIT) == 1
    assert one.using(queue="later", delay=0.1).enqueue().result(LIMIT) == 1


def test_a_worker_of_all_queues_finds_a_new_one_also_while_it_is_never_idle(bench: Bench) -> None:
    over = bench.gate()

    @bench.app.task
    def again() -> None:
        if not over.is_set():
            again.using(queue="busy").enqueue_many([()] * 2 if backlog() < 50 else [()])

    @bench.app.task
    def once() -> int:
        return 1

    def backlog() -> int:
        return sum(tally.count for tally in watcher.counts() if tally.state is State.READY)

    watcher = bench.store()
    again.using(queue="busy").enqueue_many([()] * 50)
    bench.work()
    until(lambda: any(tally.state is State.DONE for tally in watcher.counts()))
    assert once.using(queue="new").enqueue().result(LIMIT) == 1
    assert backlog() > 0
    over.set()


def banded(bench: Bench, count: int) -> list[int]:
    """A task that keeps the order of starts by band, with so many jobs waiting in each of the three."""
    order: list[int] = []

    @bench.app.task
    def run(band: int) -> None:
        order.append(band)
        time.sleep(0.002)

    for band in (-1, 0, 1):
        run.using(priority=band).enqueue_many([(band,)] * count)
    return order


def test_bands_share_starts_five_to_three_to_two(bench: Bench) -> None:
    order = banded(bench, 120)
    bench.work(threads=1)
    until(lambda: len(order) == 360)
    first = Counter(order[:200])
    assert abs(first[1] - 100) <= 12
    assert abs(first[0] - 60) <= 12
    assert abs(first[-1] - 40) <= 12
    assert Counter(order) == {1: 120, 0: 120, -1: 120}


def test_strict_runs_the_high_band_first_and_the_low_one_last(bench: Bench) -> None:
    order = banded(bench, 40)
    bench.work(threads=1, shares="strict")
    until(lambda: len(order) == 120)
    assert order == [1] * 40 + [0] * 40 + [-1] * 40


def test_low_work_never_starves(bench: Bench) -> None:
    over = bench.gate()

    @bench.app.task
    def high() -> None:
        if not over.is_set():
            high.using(priority=1).enqueue()

    @bench.app.task(priority=-5)
    def low() -> int:
        return 1

    high.using(priority=1).enqueue_many([()] * 20)
    jobs = low.enqueue_many([()] * 10)
    bench.work(threads=1)
    assert [job.result(LIMIT) for job in jobs] == [1] * 10
    over.set()


def test_within_a_band_priority_then_order_of_coming(any_bench: Bench) -> None:
    order: list[int] = []

    @any_bench.app.task
    def run(place: int) -> None:
        order.append(place)

    for place, priority in ((3, 1), (1, 5), (4, 1), (0, 9), (2, 5)):
        last = run.using(priority=priority).enqueue(place)
    any_bench.work(threads=1)
    last.result(LIMIT)
    until(lambda: len(order) == 5)
    assert order == [0, 1, 2, 3, 4]


def test_a_job_is_never_early(any_bench: Bench) -> None:
    @any_bench.app.task
    def when() -> tuple[int, int, float]:
        record = any_bench.app.get(current_job().id).record()
        return record.since, record.due, time.time()

    any_bench.work()
    soon = datetime.now(UTC) + timedelta(seconds=0.15)
    jobs = [when.using(delay=delay).enqueue() for delay in (0.3, 0.05, 0.1)] + [when.using(at=soon).enqueue()]
    for job in jobs:
        claimed, due, started = job.result(LIMIT)
        assert claimed >= due
        assert started > due / 1e6 - 0.002


def test_a_failed_attempt_is_tried_again_later_and_later(any_bench: Bench) -> None:
    starts: list[tuple[int, float]] = []

    @any_bench.app.task(retry=Retry(3, backoff="exponential", base=0.05))
    def flaky() -> int:
        starts.append((current_job().attempt, time.monotonic()))
        if len(starts) < 4:
            raise ValueError(f"not yet {len(starts)}")
        return len(starts)

    any_bench.work()
    job = flaky.enqueue()
    assert job.result(LIMIT) == 4
    assert [attempt for attempt, _ in starts] == [1, 2, 3, 4]
    pauses = [after - before for (_, before), (_, after) in pairwise(starts)]
    assert all(pause >= least for pause, least in zip(pauses, (0.05, 0.1, 0.2), strict=True)), pauses
    assert (job.record().failures, job.record().epoch) == (3, 4)


def test_out_of_attempts_a_job_is_dead_and_comes_to_life_when_asked(any_bench: Bench) -> None:
    runs: list[int] = []

    @any_bench.app.task(name="flaky", retry=Retry(1, base=0.01))
    async def flaky() -> int:
        runs.append(current_job().attempt)
        if len(runs) <= 2:
            raise ValueError(f"no {len(runs)}")
        return 7

    any_bench.work()
    job = flaky.enqueue()
    with pytest.raises(JobFailed, match=r"flaky .* is dead: ValueError: no 2"):
        job.result(LIMIT)
    assert (job.state, job.record().failures) == ("dead", 2)
    assert job.retry()
    assert job.result(LIMIT) == 7
    assert runs == [1, 2, 1]


def test_without_a_rule_one_failure_is_the_end(bench: Bench) -> None:
    runs: list[int] = []

    @bench.app.task
    def fails() -> None:
        runs.append(1)
        raise KeyError("x")

    bench.work()
    job = fails.enqueue()
    assert finished(job) == "dead"
    assert runs == [1]
    assert (note(job)["type"], note(job)["message"]) == ("KeyError", "'x'")


def by_raising(verdict: Exception) -> Any:
    raise verdict


def by_returning(verdict: Exception) -> Any:
    return verdict


def ruled(app: App, way: Callable[[Exception], Any], verdict: Callable[[], Exception], **settings: Any) -> Any:
    """Four tasks would be too many to write: sync and async, raising or returning; then it returns its attempt."""
    runs: list[int] = []

    def decide() -> Any:
        runs.append(current_job().attempt)
        return way(verdict()) if len(runs) == 1 else runs[-1]

    @app.task(name="sync", **settings)
    def sync() -> Any:
        return decide()

    @app.task(name="loop", **settings)
    async def loop() -> Any:
        return decide()

    return {"sync": sync, "loop": loop}


ways = pytest.mark.parametrize("way", [by_raising, by_returning])
kinds = pytest.mark.parametrize("kind", ["sync", "loop"])


@ways
@kinds
def test_snooze_comes_back_and_uses_no_attempt(bench: Bench, way: Any, kind: str) -> None:
    task: Task[[], int] = ruled(bench.app, way, lambda: Snooze(0.03))[kind]
    bench.work()
    started = time.monotonic()
    job = task.enqueue()
    assert job.result(LIMIT) == 1
    assert time.monotonic() - started >= 0.03
    assert (job.record().failures, job.record().epoch) == (0, 2)


@ways
@kinds
def test_retry_after_is_a_failure_with_its_own_delay(bench: Bench, way: Any, kind: str) -> None:
    task: Task[[], int] = ruled(bench.app, way, lambda: Retry.after(0.03), retry=Retry(1, base=3600))[kind]
    bench.work()
    started = time.monotonic()
    job = task.enqueue()
    assert job.result(LIMIT) == 2
    assert time.monotonic() - started >= 0.03
    assert job.record().failures == 1


@ways
@kinds
def test_retry_after_does_not_stand_above_the_limit(bench: Bench, way: Any, kind: str) -> None:
    job = ruled(bench.app, way, lambda: Retry.after(0.01))[kind].enqueue()
    bench.work()
    assert finished(job) == "dead"
    assert note(job)["type"] == "RetryAfter"


@ways
@kinds
def test_cancel_ends_it_with_the_reason(bench: Bench, way: Any, kind: str) -> None:
    job = ruled(bench.app, way, lambda: Cancel("gone upstream"), retry=Retry(5))[kind].enqueue()
    bench.work()
    assert finished(job) == "cancelled"
    assert note(job)["message"] == "gone upstream"


@ways
@kinds
def test_fail_is_dead_at_once_whatever_the_rule(bench: Bench, way: Any, kind: str) -> None:
    job = ruled(bench.app, way, lambda: Fail("no such account"), retry=Retry(None))[kind].enqueue()
    bench.work()
    assert finished(job) == "dead"
    assert (note(job)["type"], note(job)["message"], job.record().failures) == ("Fail", "no such account", 1)


@kinds
def test_a_job_that_cannot_start_in_time_is_cancelled(bench: Bench, kind: str) -> None:
    runs: list[int] = []

    @bench.app.task(name="sync", expires=0.02)
    def sync() -> None:
        runs.append(1)

    @bench.app.task(name="loop", expires=0.02)
    async def loop() -> None:
        runs.append(1)

    job = bench.app.enqueue(kind)
    until(lambda: time.time_ns() // 1000 > job.record().expires)
    bench.work()
    assert finished(job) == "cancelled"
    assert (note(job)["type"], runs) == ("Expired", [])
    assert bench.app.tasks[kind].using(expires=60).enqueue().result(LIMIT) is None
    assert runs == [1]


def test_a_task_knows_its_job(bench: Bench) -> None:
    @bench.app.task(name="look", timeout=60, queue="mail")
    def look() -> list[Any]:
        job = current_job()
        assert repr(job) == f"<CurrentJob look {job.id} attempt 1>"
        assert job.log.extra == {"job": job.id, "task": "look"}
        left = (job.deadline or 0) - time.monotonic()
        return [job.id, job.task, job.queue, job.key, job.attempt, job.stopping, left]

    @bench.app.task(name="alook")
    async def alook() -> list[Any]:
        await asyncio.sleep(0)
        job = current_job()
        return [job.id, job.task, job.queue, job.key, job.attempt, job.stopping, job.deadline]

    bench.work()
    job = look.using(key="ann").enqueue()
    told = job.result(LIMIT)
    assert told[:6] == [job.id, "look", "mail", "ann", 1, False]
    assert 50 < told[6] <= 60
    other = alook.enqueue()
    assert other.result(LIMIT) == [other.id, "alook", "default", None, 1, False, None]


def test_outside_a_job_there_is_no_current_one(bench: Bench) -> None:
    with pytest.raises(RuntimeError, match="for code that a worker runs; no job runs here"):
        current_job()


def test_coroutines_each_know_their_own_job(bench: Bench) -> None:
    @bench.app.task
    async def whose() -> list[str]:
        before = current_job().id
        await asyncio.sleep(0.01)
        inner = await asyncio.create_task(_whose())
        return [before, current_job().id, inner]

    jobs = whose.enqueue_many([()] * 30)
    bench.work()
    assert [job.result(LIMIT) for job in jobs] == [[job.id] * 3 for job in jobs]


async def _whose() -> str:
    return current_job().id


@kinds
def test_a_task_enqueues_other_jobs(any_bench: Bench, kind: str) -> None:
    app = any_bench.app

    @app.task(name="sync")
    def sync(depth: int) -> list[str]:
        return [] if depth == 0 else [app.tasks["sync"].enqueue(depth - 1).id for _ in range(2)]

    @app.task(name="loop")
    async def loop(depth: int) -> list[str]:
        return [] if depth == 0 else [(await app.tasks["loop"].aenqueue(depth - 1)).id for _ in range(2)]

    any_bench.work()
    ids, runs = [app.enqueue(kind, 4).id], 0
    while ids:
        runs += len(ids)
        ids = [child for id in ids for child in app.get(id).result(LIMIT)]
    assert runs == 31


def test_an_unknown_task_waits_longer_and_longer_for_a_worker_that_knows_it(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    @bench.app.task(name="new")
    def new() -> int:
        return 1

    older = App(bench.app.store_url)
    worker = bench.work(app=older)
    job = new.enqueue()
    for tries in (1, 2, 3):
        until(lambda tries=tries: job.record().epoch == tries and job.state == "scheduled")  # type: ignore[misc]
        record = job.record()
        assert record.due - record.since == 2 ** (tries - 1) * 1_000_000
        assert (record.failures, note(job)["type"]) == (0, "UnknownTask")
        if tries < 3:
            job.retry()
    assert caplog.text.count("no task new in this app: its jobs wait for a worker that knows it") == 1
    worker.end()
    bench.work()
    job.retry()
    assert job.result(LIMIT) == 1


def test_a_body_that_does_not_fit_ends_its_job_and_not_the_worker(bench: Bench) -> None:
    @bench.app.task(name="sync", retry=5)
    def sync(a: int, *rest: int) -> int:
        return a

    @bench.app.task(name="loop", retry=5)
    async def loop(a: int, *rest: int) -> int:
        return a

    client = bench.app.client
    stranger = App(bench.app.store_url)
    bodies = [b"", b"[]", b"nonsense", b'["x"]', b'{"*":[1]}', b"[" * 5000, b"\xff\xfe"]
    jobs = [stranger.client.job(name, body) for name in ("sync", "loop") for body in bodies]
    handles = stranger.client.put(jobs)
    bench.work(threads=1)
    for job in handles:
        assert finished(job) == "dead"
        assert (note(job)["type"], job.record().failures) == ("ArgumentError", 1)
    assert client.put([client.job("sync", b"[5]")])[0].result(LIMIT) == 5
    assert client.put([client.job("loop", b"[5]")])[0].result(LIMIT) == 5
    stranger.close()


@kinds
def test_a_result_that_cannot_be_kept_is_dead_at_once_with_a_clear_note(bench: Bench, kind: str) -> None:
    runs: list[int] = []

    def result() -> object:
        runs.append(1)
        return [object()]

    @bench.app.task(name="sync", retry=5)
    def sync() -> object:
        return result()

    @bench.app.task(name="loop", retry=5)
    async def loop() -> object:
        return result()

    bench.work()
    job = bench.app.enqueue(kind)
    assert finished(job) == "dead"
    assert note(job)["type"] == "ResultError"
    assert note(job)["message"].startswith(f"{kind} returned list, which cannot be kept as JSON: Encoding objects")
    assert runs == [1]


@kinds
def test_a_result_that_is_too_large_is_dead_at_once_with_both_sizes(bench: Bench, kind: str) -> None:
    @bench.app.task(name="sync", retry=5)
    def sync(size: int) -> str:
        return "x" * size

    @bench.app.task(name="loop", retry=5)
    async def loop(size: int) -> str:
        return "x" * size

    bench.work(max_body=100)
    job = bench.app.enqueue(kind, 99)
    assert finished(job) == "dead"
    assert note(job)["message"] == f"{kind} returned a result of 101 bytes; max_body is 100"
    assert bench.app.enqueue(kind, 98).result(LIMIT) == "x" * 98


def test_jobs_in_line_behind_a_long_one_go_to_another_worker(bench: Bench) -> None:
    gate, begun = bench.gate(), threading.Event()

    @bench.app.task
    def long() -> int:
        begun.set()
        return int(gate.wait(LIMIT))

    @bench.app.task
    def short(number: int) -> str:
        return current_job().id

    first = long.enqueue()
    others = short.enqueue_many([(number,) for number in range(10)])
    greedy = bench.idle(threads=1)
    # As after a run of short jobs: it expects the next ones to be as short.
    greedy.pump._appetites[False]._rate = 4000.0
    bench._workers.append(greedy.start())
    wait_for(begun)
    until(lambda: greedy.pump.holds == 11 or all(job.record().epoch == 1 for job in others))
    bench.work(threads=1)
    started = time.monotonic()
    assert [job.result(LIMIT) for job in others] == [job.id for job in others]
    assert time.monotonic() - started < 3, "they stood behind the long one"
    assert first.state == "running"
    assert {(job.record().epoch, job.record().failures) for job in others} == {(2, 0)}
    gate.set()
    assert first.result(LIMIT) == 1


def test_coroutines_run_on_while_the_threads_are_busy_and_others_wait_for_them(bench: Bench) -> None:
    gate, begun = bench.gate(), threading.Event()

    @bench.app.task
    def long(number: int) -> int:
        begun.set()
        gate.wait(LIMIT)
        return number

    @bench.app.task
    async def quick(number: int) -> int:
        return number

    worker = bench.work(threads=1, coroutines=10)
    held = long.enqueue_many([(number,) for number in range(20)])
    wait_for(begun)
    assert [quick.using(priority=1).enqueue(number).result(LIMIT) for number in range(4)] == list(range(4))
    until(lambda: worker.pump.holds == 1)
    assert sum(job.state == "ready" for job in held) == 19, "what no thread is free for is others' to take"
    assert {job.record().failures for job in held} == {0}
    gate.set()
    assert [job.result(LIMIT) for job in held] == list(range(20))
