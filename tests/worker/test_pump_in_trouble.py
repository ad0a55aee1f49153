"""The pump alone, turned by hand, on a store that fails."""

import pytest

from tarry.client.clock import FakeClock
from tarry.errors import StoreError, StoreFull, StoreUnavailable
from tarry.model import lifecycle
from tarry.model.duration import SECOND
from tarry.model.job import State
from tarry.model.outcome import Returned
from tarry.store.base import Store
from tests.worker.bed import OWNER, Make

ERRORS = [StoreUnavailable("away"), StoreFull("the disk is full")]


@pytest.mark.parametrize("error", ERRORS)
def test_while_the_store_cannot_outcomes_are_held_and_settled_after(make: Make, error: StoreError) -> None:
    bed = make(threads=3)
    jobs = bed.insert(5)
    bed.turns()
    bed.store.error = error
    bed.sync.end_all()
    waits = []
    for _ in range(12):
        waits.append(bed.pump.turn())
        bed.pass_time(waits[-1])
    assert min(waits) > 0.04, "no hot loop"
    assert waits[-1] > 5 * waits[0], "longer and longer"
    assert max(waits) <= 5
    assert (bed.pump.holds, bed.sync.on) == (3, [])
    bed.store.error = None
    bed.turns()
    assert bed.tally() == {State.DONE: 3, State.RUNNING: 2}
    assert bed.pump.events.processed == 3
    bed.sync.end_all()
    bed.turns()
    assert bed.states(jobs) == [State.DONE] * 5


@pytest.mark.parametrize("error", ERRORS)
def test_while_the_store_cannot_a_pump_that_is_rung_makes_no_more_calls(make: Make, error: StoreError) -> None:
    bed = make(threads=2)
    bed.insert(2)
    bed.turns()
    bed.store.error = error
    bed.pass_time(2)
    bed.pump.turn()
    bed.store.calls.clear()
    for _ in range(100):
        assert bed.pump.turn() > 0
    assert bed.store.calls["exchange"] == 0
    assert bed.store.calls["extend"] <= 1


def test_trouble_is_told_once_in_a_while(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    bed = make()
    bed.insert()
    bed.turns()
    bed.store.error = StoreUnavailable("away")
    bed.sync.end_all()
    for _ in range(25):
        bed.pass_time(bed.pump.turn())
    assert caplog.text.count("away; holding 1 job, trying again") == 2


def test_jobs_claimed_in_an_answer_that_was_lost_go_back(make: Make) -> None:
    bed = make(threads=3)
    jobs = bed.insert(3)
    bed.store.error, bed.store.after = StoreUnavailable("the reply was lost"), True
    wait = bed.pump.turn()
    if not bed.tally()[State.RUNNING]:
        bed.pass_time(wait)
        wait = bed.pump.turn()
    assert bed.tally() == {State.RUNNING: 3}
    assert bed.sync.on == []
    bed.store.error = None
    bed.pass_time(wait)
    bed.turns()
    assert len(bed.sync.on) == 3
    bed.sync.end_all()
    bed.turns()
    assert bed.states(jobs) == [State.DONE] * 3
    assert {bed.record(job).failures for job in jobs} == {0}


def test_outcomes_whose_answer_was_lost_are_not_counted_twice_nor_run_again(make: Make) -> None:
    bed = make(threads=2)
    jobs = bed.insert(2)
    bed.turns()
    bed.sync.end_all()
    bed.store.error, bed.store.after = StoreUnavailable("the reply was lost"), True
    wait = bed.pump.turn()
    assert bed.tally() == {State.DONE: 2}
    bed.store.error = None
    bed.pass_time(wait)
    bed.turns()
    assert (bed.pump.holds, bed.sync.on) == (0, [])
    assert {bed.record(job).epoch for job in jobs} == {1}


def test_a_job_is_not_given_back_while_it_runs_here(make: Make) -> None:
    bed = make(threads=3)
    jobs = bed.insert(2)
    bed.turns()
    bed.store.error = StoreUnavailable("away")
    bed.pass_time(bed.pump.turn() or 0.1)
    bed.store.error = None
    bed.turns()
    assert bed.states(jobs) == [State.RUNNING] * 2
    assert {bed.record(job).epoch for job in jobs} == {1}


def test_a_clock_that_cannot_be_read_is_trouble_like_any_other(make: Make) -> None:
    bed = make()
    times: list[StoreError | None] = [StoreUnavailable("no time"), None]

    class Broken(FakeClock):
        def now(self) -> int:
            error = times.pop(0) if times else None
            if error:
                raise error
            return super().now()

    (job,) = bed.insert()
    bed.pump._clock = Broken()
    wait = bed.pump.turn()
    assert wait > 0
    bed.pass_time(wait)
    bed.turns()
    assert bed.states([job]) == [State.RUNNING]


def test_leases_that_cannot_be_extended_are_told_and_tried_again(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    bed = make()
    (job,) = bed.insert()
    bed.turns()
    bed.store.error = StoreUnavailable("away")
    bed.pass_time(1.1)
    bed.pump.turn()
    assert "away" in caplog.text
    bed.store.error = None
    bed.pass_time(6)
    bed.turns()
    assert bed.store.extend(OWNER, [(job.id, 1)], 30 * SECOND, bed.clock.now()) == []


def test_the_store_decides_whether_an_outcome_counts(make: Make) -> None:
    bed = make()
    store: Store = bed.store
    (job,) = bed.insert()
    bed.turns()
    store.apply([lifecycle.after(bed.record(job), Returned(b"2"), bed.rules, bed.clock.now())], bed.clock.now())
    bed.sync.end(bed.sync.on[0], Returned(b"1"))
    bed.turns()
    assert (bed.record(job).note, bed.pump.events.processed) == (b"2", 0)
