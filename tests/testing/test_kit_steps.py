"""Durable steps under the fixture `jobs`: its clock passes their waits, and its signals wake them."""

import asyncio
from typing import Any

import pytest

from tarry import JobNotFound, approve, astep, sleep, step, wait_for
from tarry.testing.kit import Jobs
from tarry.worker.run import attempt_report


def declare(jobs: Jobs, ledger: list[int]) -> None:
    @jobs.app.task(name="sync")
    def sync(order: int) -> Any:
        step(ledger.append, order)
        sleep("3d")
        return wait_for("review", key=str(order), timeout="14d")

    @jobs.app.task(name="loop")
    async def loop(order: int) -> Any:
        await astep(ledger.append, order)
        await sleep("3d")
        return await wait_for("review", key=str(order), timeout="14d")


kinds = pytest.mark.parametrize("kind", ["sync", "loop"])


@kinds
def test_the_clock_passes_a_sleep_and_a_signal_wakes(jobs: Jobs, kind: str) -> None:
    ledger: list[int] = []
    declare(jobs, ledger)
    job = jobs.app.enqueue(kind, 7)
    assert (jobs.drain(raising=True), job.state) == (1, "scheduled")
    jobs.advance("2d")
    assert jobs.drain() == 0
    jobs.advance("1d")
    assert (jobs.drain(raising=True), job.state) == (1, "scheduled")
    assert jobs.signal("review", key="8", value="other") == 0
    assert jobs.signal("review", key="7", value="good") == 1
    assert (jobs.drain(raising=True), job.result()) == (1, "good")
    assert ledger == [7]


@kinds
def test_the_clock_passes_the_time_of_a_wait(jobs: Jobs, kind: str) -> None:
    declare(jobs, [])
    job = jobs.app.enqueue(kind, 7)
    for wait in ("3d", "14d", 0):
        jobs.drain(raising=True)
        jobs.advance(wait)
    assert job.state == "done"
    assert job.result() is None


@kinds
@pytest.mark.parametrize("at", ["start", "end"])
def test_a_worker_that_dies_repeats_no_step(jobs: Jobs, kind: str, at: Any) -> None:
    ledger: list[int] = []
    declare(jobs, ledger)
    job = jobs.app.enqueue(kind, 7)
    jobs.kill_worker_during(kind, at)
    jobs.drain()
    assert (ledger, job.state) == ([7], "scheduled")


def test_awaited_in_an_asyncio_test(jobs: Jobs) -> None:
    ledger: list[int] = []
    declare(jobs, ledger)
    both = [jobs.app.enqueue(kind, 7) for kind in ("sync", "loop")]

    async def script() -> None:
        assert await jobs.adrain(raising=True) == 2
        jobs.advance("3d")
        assert await jobs.adrain(raising=True) == 2
        assert jobs.signal("review", key="7", value=1) == 2
        assert await jobs.adrain(raising=True) == 2

    asyncio.run(script())
    assert [job.result() for job in both] == [1, 1]
    assert ledger == [7, 7]


@kinds
def test_a_wait_is_no_failure_for_hooks_and_middleware_runs_at_each_part(jobs: Jobs, kind: str) -> None:
    parts: list[str] = []
    failures: list[BaseException] = []
    declare(jobs, [])

    @jobs.app.middleware("run")
    def note(job: Any, call_next: Any) -> Any:
        parts.append(job.task)
        return call_next(job)

    jobs.app.on_failure(lambda job, error: failures.append(error))
    job = jobs.app.enqueue(kind, 7)
    jobs.drain()
    jobs.advance("3d")
    jobs.signal("review", key="7", value="good")
    jobs.drain()
    assert job.result() == "good"
    assert (parts, failures) == ([kind, kind], [])


def test_observers_do_not_take_a_wait_for_an_error(jobs: Jobs) -> None:
    seen: list[BaseException | None] = []
    declare(jobs, [])

    @jobs.app.middleware("run")
    def observe(job: Any, call_next: Any) -> Any:
        try:
            return call_next(job)
        except BaseException as error:
            seen.append(attempt_report.failure_error(job.running, None, error))
            raise

    jobs.app.enqueue("sync", 7)
    jobs.drain()
    assert seen == [None]


def test_an_approval_is_decided_in_the_kit_and_by_the_app(jobs: Jobs) -> None:
    @jobs.app.task(name="refund")
    async def refund(order: str) -> Any:
        return await approve("refund", key=order)

    first, second = refund.enqueue("7"), refund.enqueue("8")
    with pytest.raises(JobNotFound, match="'refund' with the key '7'"):
        jobs.approve("refund", key="7")
    jobs.drain(raising=True)
    assert jobs.approve("refund", key="7", by="ann", note="ok") == 1
    assert asyncio.run(jobs.app.aapprove("refund", key="8", by="bob", ok=False)) == 1
    jobs.drain(raising=True)
    assert (first.result(), second.result()) == (
        {"ok": True, "by": "ann", "note": "ok"},
        {"ok": False, "by": "bob", "note": ""},
    )
    with pytest.raises(JobNotFound, match="no job waits"):
        jobs.approve("refund", key="7", by="eve")
