"""`current_job().spend(n)`: what a job has used of its rates, once that is known."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from tarry import App, Cancel, Retry, current_job
from tarry.keeper.waiting_facts import read_facts
from tarry.keeper.waiting_reasons import EndpointState, waiting_reasons
from tarry.model.duration import HOUR, SECOND
from tarry.model.limit import Limit
from tarry.tasks.running import current_jobs
from tarry.testing import Jobs
from tests.worker.bench import Bench

RATE = Limit(None, 1000, 24 * HOUR)


def used(bench: Bench, work: Callable[[], Any]) -> int:
    """How many starts the rate of the task `ask` has counted, once it has drained."""
    began = time.time() * SECOND
    work()
    bench.app.drain()
    level = bench.app.client.store.limits()["task:ask"][1]
    assert level.running == 0
    # It counts from the start of the first job, which comes some time after `began`.
    return int((level.next - began) // RATE.spacing)


@pytest.mark.parametrize("totals", [(1_812,), (5_000, 188), (0,), (1,)])
def test_a_rate_counts_what_a_job_says(any_bench: Bench, totals: tuple[int, ...]) -> None:
    """Of several calls the last one. 0 takes back what the start has counted."""

    @any_bench.app.task(name="ask", rate="1000/d")
    def ask(*totals: int) -> None:
        for total in totals:
            current_job().spend(total)

    assert used(any_bench, lambda: ask.enqueue(*totals)) == totals[-1]


@pytest.mark.parametrize("error", [ValueError("no"), Cancel("no"), Retry.after(3600)])
def test_whatever_becomes_of_the_job(any_bench: Bench, error: Exception) -> None:
    @any_bench.app.task(name="ask", rate="1000/d", retry=Retry(1, base=3600))
    async def ask() -> None:
        current_job().spend(100)
        raise error

    assert used(any_bench, ask.enqueue) == 100


def test_each_job_of_a_batch_says_it_for_itself(any_bench: Bench) -> None:
    @any_bench.app.task(name="ask", rate="1000/d", batch=3)
    def ask(totals: list[int]) -> list[int]:
        for job, total in zip(current_jobs(), totals, strict=True):
            job.spend(total)
        return totals

    assert used(any_bench, lambda: ask.enqueue_many([(40,), (50,), (10,)])) == 100


@pytest.mark.parametrize("total", [-1, 2**31 + 1, 1.5, "3", True, None])
def test_what_is_no_number_of_starts_is_refused(jobs: Jobs, total: object) -> None:
    app = App(closures=True)

    @app.task(name="ask")
    def ask() -> str:
        with pytest.raises(ValueError, match=r"spend\(.*\): how many starts its rates count, from 0 to 2147483648"):
            current_job().spend(total)  # type: ignore[arg-type]
        return "refused"

    job = ask.enqueue()
    jobs.drain()
    assert job.result() == "refused"


def test_without_a_job_nothing_is_spent() -> None:
    with pytest.raises(RuntimeError, match="no job runs here"):
        current_job().spend(3)


def test_it_holds_back_what_follows(jobs: Jobs) -> None:
    """For as long as what was used takes, and no longer."""
    app = App(closures=True)

    @app.task(name="ask", rate="20/20s")
    def ask(total: int) -> None:
        current_job().spend(total)

    first, second = ask.enqueue(30), ask.enqueue(1)
    jobs.drain()
    assert (first.state, second.state) == ("done", "ready")
    jobs.advance(29)
    jobs.drain()
    assert second.state == "ready"
    jobs.advance(1)
    jobs.drain()
    assert second.state == "done"


def test_why_a_job_waits_tells_for_how_long(jobs: Jobs) -> None:
    app = App(closures=True)

    @app.task(name="ask", rate="20/20s")
    def ask() -> None:
        current_job().spend(41)

    ask.enqueue()
    waits = ask.enqueue()
    jobs.drain()
    store = app.client.store
    reasons = waiting_reasons(read_facts(store, waits.record(), store.time(), True, EndpointState()))
    assert "Limit task:ask allows the next start in 41s." in [reason.text for reason in reasons]
