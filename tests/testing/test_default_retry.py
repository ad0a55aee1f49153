"""What becomes of a job that fails where its task says nothing of it."""

from itertools import pairwise
from typing import Any

import pytest

from tarry import App, JobFailed, Retry, State
from tarry.client.handle import Handle
from tarry.model.duration import DAY, SECOND
from tarry.testing import Jobs

app = App("sqlite:////nowhere/at/all.db")


@app.task
def plain() -> str:
    raise ConnectionError("away")


@app.task
def again_soon() -> None:
    raise Retry.after(1)


def run_to_its_end(jobs: Jobs, job: Handle[Any]) -> list[float]:
    """Lets time pass until the job has finished; the hours at which its attempts began."""
    start, found = jobs.now, []
    while not job.state.finished:
        jobs.advance(max(0.0, job.record().due / SECOND - jobs.now.timestamp()) + 0.001)
        if jobs.drain():
            found.append((jobs.now - start).total_seconds() / 3600)
        assert (jobs.now - start).total_seconds() < DAY / SECOND
    return found


def test_a_job_that_goes_on_failing_is_tried_twelve_more_times_within_sixteen_hours(jobs: Jobs) -> None:
    job = plain.enqueue()
    attempts = run_to_its_end(jobs, job)
    assert (len(attempts), job.state) == (13, State.DEAD)
    assert 14.5 <= attempts[-1] <= 16.02
    waits = [later - earlier for earlier, later in pairwise(attempts)]
    assert 15 <= waits[0] * 3600 <= 20
    assert max(waits) <= 6.61
    with pytest.raises(JobFailed, match="away"):
        job.result()


def test_retry_after_needs_no_rule(jobs: Jobs) -> None:
    job = again_soon.enqueue()
    jobs.drain()
    assert job.state is State.SCHEDULED
    jobs.advance(1)
    jobs.drain()
    assert (job.record().failures, job.state) == (2, State.SCHEDULED)


def test_an_app_may_have_a_rule_of_its_own_and_a_task_none(jobs: Jobs) -> None:
    own = App(retry=Retry(1, base=60), closures=True)

    @own.task
    def twice() -> None:
        raise ValueError

    @own.task(retry=None)
    def once() -> None:
        raise ValueError

    jobs_of = twice.enqueue(), once.enqueue()
    jobs.drain()
    assert [job.state for job in jobs_of] == [State.SCHEDULED, State.DEAD]
    jobs.advance(60)
    jobs.drain()
    assert jobs_of[0].state is State.DEAD
