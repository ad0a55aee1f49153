"""Lines of beat become jobs, with their options."""

from datetime import date
from typing import Any

import pytest

from tarry.compat.celery import Celery, CeleryNotSupported, crontab
from tarry.compat.celery.differences import CeleryDifference, forget_warnings
from tarry.errors import ConfigError
from tarry.testing.kit import Jobs
from tests.compat.celery.scheduled import app, report, seen


@pytest.fixture
def ready(jobs: Jobs) -> Jobs:
    seen.clear()
    app.finalize()
    forget_warnings()
    with pytest.warns(CeleryDifference, match="no task elsewhere.sweep"):
        app.conf.beat_schedule = dict(app.conf.beat_schedule)
    return jobs


def test_a_line_without_options_is_a_schedule_of_its_task(ready: Jobs) -> None:
    ready.advance(300, schedules=True)
    ready.drain()
    assert (date(2026, 1, 2), "") in seen


def test_a_line_with_options_gives_its_job_these(ready: Jobs) -> None:
    ready.advance(60, schedules=True)
    ready.drain()
    (found,) = [job for job in ready.enqueued(report.name) if job.queue == "mail"]
    record = found.job.record()
    assert record.priority == 4
    assert record.expires - record.due == 30_000_000
    assert seen.count((1, "m")) == 1


def test_a_line_for_a_task_that_only_other_workers_have(ready: Jobs) -> None:
    ready.advance(60, schedules=True)
    ready.drain()
    assert [job.queue for job in ready.enqueued("elsewhere.sweep")] == ["far"]


def test_a_line_that_is_added_when_the_app_is_ready(ready: Jobs) -> None:
    ready.advance(120, schedules=True)
    ready.drain()
    assert ("added", "") in seen
    assert "own" in [job.queue for job in ready.enqueued(report.name)]


def test_an_attempt_that_is_repeated_enqueues_no_second_job(ready: Jobs) -> None:
    ready.kill_worker_during("tarry.compat.celery.beat:mail")
    ready.advance(60, schedules=True)
    ready.drain()
    assert len([job for job in ready.enqueued(report.name) if job.queue == "mail"]) == 1


def test_long_calls_without_a_name_are_lines_of_their_own(jobs: Jobs) -> None:
    many = Celery("many", set_as_current=False)
    many.task(name="many.note")(print)
    names = [many.add_periodic_task(60, many.signature("many.note", ("x" * 300, n))) for n in range(2)]
    many.finalize()
    assert {schedule.name for schedule in many.tasks["many.note"].schedules} == set(names)
    assert [len(name) for name in names] == [100, 100]


@pytest.mark.parametrize(
    ("schedule", "error"),
    [
        ("often", CeleryNotSupported),
        (0.1, CeleryNotSupported),
        (crontab(day_of_month=31, month_of_year="feb"), ConfigError),
    ],
)
@pytest.mark.filterwarnings("ignore::tarry.compat.celery.CeleryDifference")
def test_a_line_that_cannot_be_is_an_error_that_names_it(jobs: Jobs, schedule: Any, error: type[Exception]) -> None:
    wrong = Celery("wrong", set_as_current=False)
    wrong.conf.beat_schedule = {"nightly": {"task": "elsewhere.sweep", "schedule": schedule}}
    with pytest.raises(error, match="nightly"):
        wrong.finalize()
