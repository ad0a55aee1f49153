import logging

import pytest

from tarry.model import lifecycle
from tarry.model.job import Job, State
from tarry.model.lifecycle import Rules
from tarry.model.outcome import Outcome, Raised, Released, Returned, TimedOut, Unknown, outcome_note
from tarry.model.retry import Retry
from tarry.store.rules import ids
from tarry.worker import worker_log
from tarry.worker.worker_log import EventLog

NOW = 1_800_000_000_000_000
JOB = Job(ids.uuid7(), "shop.pay", b"[]", state=State.RUNNING, epoch=1)
ERROR = Raised(outcome_note("ValueError", "no money", "Traceback ..."), ("ValueError",))


def told(teller: EventLog, outcome: Outcome, rules: Rules = lifecycle.DEFAULT, job: Job = JOB) -> None:
    teller.record_end(job, outcome, lifecycle.after(job, outcome, rules, NOW), NOW)


@pytest.mark.parametrize(
    ("outcome", "processed", "failed"),
    [
        (Returned(), 1, 0),
        (ERROR, 1, 1),
        (TimedOut(outcome_note("TimeLimit", "")), 1, 1),
        (Released(), 0, 0),
        (Unknown(), 0, 0),
    ],
)
def test_it_counts_ends_and_failures(outcome: Outcome, processed: int, failed: int) -> None:
    teller = EventLog()
    told(teller, outcome)
    assert (teller.processed, teller.failed) == (processed, failed)


def test_a_retry_is_a_failure_and_no_end() -> None:
    teller = EventLog()
    told(teller, ERROR, Rules(retry=Retry(3, base=90)))
    assert (teller.processed, teller.failed) == (0, 1)


def test_a_job_that_is_forgotten_at_once_has_ended() -> None:
    teller = EventLog()
    told(teller, Returned(), Rules(keep_done=0))
    assert teller.processed == 1


def test_a_failure_is_one_line_that_says_what_follows(caplog: pytest.LogCaptureFixture) -> None:
    told(EventLog(), ERROR, Rules(retry=Retry(3, base=90)))
    told(EventLog(), ERROR)
    id = ids.text(JOB.id)
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", f"shop.pay {id} attempt 1 failed, again in 1m30s: ValueError: no money"),
        ("ERROR", f"shop.pay {id} attempt 1 failed, dead: ValueError: no money"),
    ]


def test_an_unknown_task_is_told_rarely(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    teller = EventLog()
    caplog.set_level(logging.WARNING)
    for _ in range(100):
        told(teller, Unknown())
    assert len(caplog.records) == 1
    assert "no task shop.pay in this app" in caplog.text
    assert ids.text(JOB.id) in caplog.text
    told(teller, Unknown(), job=Job(ids.uuid7(), "shop.ship", b"[]", state=State.RUNNING, epoch=1))
    assert len(caplog.records) == 2, "each task is told of"
    monkeypatch.setattr(worker_log, "LOG_UNKNOWN_EVERY", 0.0)
    told(teller, Unknown())
    assert len(caplog.records) == 3
