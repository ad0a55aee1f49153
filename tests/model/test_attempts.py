"""The record of a job's attempts: what is kept, how much of it, and what of a record that cannot be read."""

import msgspec
import pytest
from hypothesis import given
from msgspec.structs import replace

from tarry.model import lifecycle, outcome
from tarry.model.attempts import (
    MOST_ERROR,
    MOST_KEPT,
    MOST_TRACEBACK,
    MOST_TRACEBACKS,
    OUTCOMES,
    attempts_of,
    outcome_name,
    short_error,
    with_attempt,
)
from tarry.model.duration import HOUR
from tarry.model.job import Job, State
from tarry.model.lifecycle import Rules
from tests.lifecycle_page import NOW, job_in
from tests.model import strategies

RUNNING = replace(
    job_in(State.RUNNING), owner="outside:ann|boot.1:7:8:1", epoch=3, state_since=NOW - HOUR, attempts=b""
)


@given(strategies.running, strategies.outcomes, strategies.rules)
def test_every_attempt_that_is_kept_has_its_end(job: Job, ended: outcome.Outcome, rules: Rules) -> None:
    """Whatever becomes of the job, unless it is forgotten; but a result at once, or a sleep, adds nothing."""
    change = lifecycle.after(job, ended, rules, NOW)
    # A sleep of a durable task is no end.
    adds_none = isinstance(ended, outcome.Suspended) or (isinstance(ended, outcome.Returned) and not job.attempts)
    if change.to is None or adds_none:
        assert change.attempts is None
        return
    last = attempts_of(change.apply_to(job)).attempts[-1]
    assert (last.epoch, last.owner, last.started, last.ended) == (job.epoch, job.owner, job.state_since, NOW)
    assert last.outcome == outcome_name(ended)
    assert last.outcome in OUTCOMES


def test_the_host_of_a_worker() -> None:
    (one,) = attempts_of(RUNNING).attempts
    assert (one.host, one.outcome, one.ended, one.error) == ("ann", "running", 0, "")


def test_no_more_than_so_many_are_kept_and_so_much_of_an_error() -> None:
    job = RUNNING
    note = outcome.outcome_note("ValueError", "é" * 10_000, "Traceback" * 1000)
    for number in range(100):
        job = replace(job, attempts=with_attempt(job, "failed", NOW + number, note))
    known = attempts_of(replace(job, state=State.READY))
    assert (len(known.attempts), known.left_out) == (MOST_KEPT, 100 - MOST_KEPT)
    assert known.attempts[-1].ended == NOW + 99
    assert {len(one.error) for one in known.attempts} == {MOST_ERROR}
    assert known.attempts[0].error.startswith("ValueError: éé")
    assert [len(one.traceback) for one in known.attempts] == [0] * 15 + [MOST_TRACEBACK] * MOST_TRACEBACKS
    assert known.attempts[-1].traceback.endswith("TracebackTraceback"), "its end is kept"
    assert len(job.attempts) < MOST_KEPT * (2 * MOST_ERROR + 200) + MOST_TRACEBACKS * (MOST_TRACEBACK + 10)


def test_a_record_of_before_there_were_tracebacks() -> None:
    job = replace(RUNNING, attempts=b'[0,[[1,1,5,7,"failed","ann|1:2:3","ValueError: no"]]]')
    (old, _) = attempts_of(job).attempts
    assert (old.error, old.traceback) == ("ValueError: no", "")
    (_, new) = attempts_of(replace(job, attempts=with_attempt(job, "failed", NOW), state=State.READY)).attempts
    assert new.traceback == ""


def test_what_never_ran_drives_nothing_out() -> None:
    """A job may be claimed each second by a worker that cannot run it."""
    job = replace(RUNNING, attempts=with_attempt(RUNNING, "failed", NOW))
    for number in range(1000):
        job = replace(job, attempts=with_attempt(job, "quarantined", NOW + number))
    known = attempts_of(replace(job, state=State.READY))
    assert [one.outcome for one in known.attempts] == ["failed", "quarantined"]
    assert (known.left_out, known.attempts[-1].ended) == (999, NOW + 999)


UNFIT = [
    b"{}", b"[1]", b"\xff", b'[0,[[1,2,"x"]]]', b"[-1]", b"[0," + b"[" * 5000 + b"]" * 5001,
    b'[0,[[1,1,%d,0,"done"]]]' % 10**30, b'[0,[[1,1,0,-5,"done"]]]', b'[0,[],[[%d,"retried","","",""]]]' % 2**60,
    b"[0,[" + b",".join([b'[1,1,0,0,"done"]'] * 1001) + b"]]",
]  # fmt: skip


@pytest.mark.parametrize("record", UNFIT)
def test_a_record_that_cannot_be_read_holds_up_no_job(record: bytes) -> None:
    """One that a newer tarry wrote, perhaps."""
    job = replace(RUNNING, attempts=record)
    change = lifecycle.after(job, outcome.Released(), Rules(), NOW)
    assert [one.outcome for one in attempts_of(change.apply_to(job)).attempts] == ["interrupted"]


@pytest.mark.parametrize(
    ("note", "text"),
    [
        (b"", ""),
        (b"null", ""),
        (b"[1]", ""),
        (b"\xff", ""),
        (b'{"type":"E","message":"no"}', "E: no"),
        (b'{"type":"E","message":""}', "E"),
        (b'{"attempt":1,"outcome":"final","reason":"410 Gone"}', "410 Gone"),
    ],
)
def test_an_error_in_short(note: bytes, text: str) -> None:
    assert short_error(note) == text


def test_the_error_of_an_earlier_attempt_is_not_taken_for_that_of_a_later_one() -> None:
    job = replace(RUNNING, note=outcome.outcome_note("ValueError", "old"))
    for ended in (outcome.Released(), outcome.Snoozed(1), outcome.Lost(), outcome.Quarantined()):
        change = lifecycle.after(job, ended, Rules(), NOW)
        assert attempts_of(change.apply_to(job)).attempts[-1].error == ""
    lost = lifecycle.after(job, outcome.Lost(on=True), Rules(), NOW)
    assert attempts_of(lost.apply_to(job)).attempts[-1].error.startswith("WorkerDied: ")


def test_a_cancel_of_a_job_that_waits_is_no_attempt() -> None:
    assert lifecycle.cancel(job_in(State.READY), Rules(), NOW).attempts is None
    change = lifecycle.cancel(RUNNING, Rules(keep_done=1), NOW, "too late")
    assert [one.error for one in attempts_of(change.apply_to(RUNNING)).attempts] == ["Cancelled: too late"]


def test_a_delay_that_the_task_asks_for_is_told_from_its_error() -> None:
    note = outcome.outcome_note("Retry", "later")
    assert outcome_name(outcome.Raised(note, after=5)) == "retry"
    assert outcome_name(outcome.Raised(note)) == "failed"
    assert msgspec.json.decode(with_attempt(RUNNING, "retry", NOW, note))[0] == 0
