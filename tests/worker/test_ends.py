"""What follows from how an attempt ended: by value, by error, by the task's own word, or without a start."""

import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from tarry import App, Cancel, Fail, JobFailed, Retry, Snooze, current_job
from tarry.client.tasks.task import Task
from tarry.model.verdict import RetryAfter
from tests.worker.bench import LIMIT, Bench, finished, note, until


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


@pytest.mark.parametrize("again", [Snooze(0.3), RetryAfter(0.3)], ids=["snooze", "retry"])
def test_a_job_that_has_started_in_time_is_tried_again_after_its_expiry(bench: Bench, again: Exception) -> None:
    runs: list[int] = []

    @bench.app.task(name="twice", expires=60, retry=Retry(None))
    def twice() -> str:
        runs.append(1)
        if len(runs) == 1:
            raise again
        return "done"

    bench.work()
    job = twice.using(expires=0.2).enqueue()
    until(lambda: len(runs) == 1 and job.state == "scheduled")
    assert job.record().expires == 0
    assert (job.result(LIMIT), len(runs)) == ("done", 2)


def test_an_unknown_task_waits_longer_and_longer_for_a_worker_that_knows_it(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    @bench.app.task(name="new")
    def new() -> int:
        return 1

    older = App(bench.app.store_url, closures=True)
    worker = bench.work(app=older)
    job = new.enqueue()
    for tries in (1, 2, 3):
        until(lambda tries=tries: job.record().epoch == tries and job.state == "scheduled")  # type: ignore[misc]
        record = job.record()
        assert 0 <= record.due - record.state_since - 2 ** (tries - 1) * 1_000_000 < 100_000
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
    stranger = App(bench.app.store_url, closures=True)
    bodies = [b"", b"[]", b"nonsense", b'["x"]', b'{"*":[1]}', b"[" * 5000, b"\xff\xfe"]
    jobs = [stranger.client.make_job(name, body) for name in ("sync", "loop") for body in bodies]
    handles = stranger.client.insert_jobs(jobs)
    bench.work(threads=1)
    for job in handles:
        assert finished(job) == "dead"
        assert (note(job)["type"], job.record().failures) == ("ArgumentError", 1)
    assert client.insert_jobs([client.make_job("sync", b"[5]")])[0].result(LIMIT) == 5
    assert client.insert_jobs([client.make_job("loop", b"[5]")])[0].result(LIMIT) == 5
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
    way_out = "store the data elsewhere and pass its id, or raise max_body"
    assert note(job)["message"] == f"{kind} returned a result of 101 bytes; max_body is 100: {way_out}"
    assert bench.app.enqueue(kind, 98).result(LIMIT) == "x" * 98
