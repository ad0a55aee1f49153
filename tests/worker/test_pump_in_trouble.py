"""The pump alone, turned by hand, on a store that fails."""

from typing import Any

import pytest

from tarry.client.clock import FakeClock
from tarry.errors import StoreError, StoreFull, StoreUnavailable
from tarry.model import lifecycle
from tarry.model.duration import SECOND
from tarry.model.job import State
from tarry.model.outcome import Returned
from tarry.store.rules.base import Store, Want
from tests.worker.manual_pump import OWNER, MakePump

ERRORS = [StoreUnavailable("away"), StoreFull("the disk is full")]


@pytest.mark.parametrize("error", ERRORS)
def test_while_the_store_cannot_outcomes_are_held_and_settled_after(make: MakePump, error: StoreError) -> None:
    manual = make(threads=3)
    jobs = manual.insert(5)
    manual.turns()
    manual.store.error = error
    manual.sync.end_all()
    waits = []
    for _ in range(12):
        waits.append(manual.pump.step())
        manual.pass_time(waits[-1])
    assert min(waits) > 0.04, "no hot loop"
    assert waits[-1] > 5 * waits[0], "longer and longer"
    assert max(waits) <= 5
    assert (manual.pump.held_count, manual.sync.on) == (3, [])
    manual.store.error = None
    manual.turns()
    assert manual.tally() == {State.DONE: 3, State.RUNNING: 2}
    assert manual.pump.events.processed == 3
    manual.sync.end_all()
    manual.turns()
    assert manual.states(jobs) == [State.DONE] * 5


@pytest.mark.parametrize("error", ERRORS)
def test_while_the_store_cannot_a_pump_that_is_woken_makes_no_more_calls(make: MakePump, error: StoreError) -> None:
    manual = make(threads=2)
    manual.insert(2)
    manual.turns()
    manual.store.error = error
    manual.pass_time(2)
    manual.pump.step()
    manual.store.calls.clear()
    for _ in range(100):
        assert manual.pump.step() > 0
    assert manual.store.calls["exchange"] == 0
    assert manual.store.calls["extend"] <= 1


@pytest.mark.parametrize("error", [None, *ERRORS])
def test_once_it_is_closed_nothing_begins_that_it_holds(make: MakePump, error: StoreError | None) -> None:
    manual = make(threads=1)
    manual.pump._capacity._prefetch[False]._rate = 400.0
    manual.insert(8)
    manual.turns()
    assert (len(manual.sync.on), len(manual.sync.line)) == (1, 7)
    manual.store.error = error
    manual.pass_time(2)
    manual.pump.step()
    manual.pump.stop()
    assert not manual.pump.is_closed, "the thread of the pump has not seen it yet"
    manual.pump.step()
    assert manual.pump.is_closed
    manual.sync.end_all()
    assert (manual.sync.on, manual.sync.line) == ([], [])
    manual.store.error = None
    manual.pass_time(10)
    manual.turns()
    assert manual.tally() == {State.DONE: 1, State.READY: 7}


def test_trouble_is_told_once_in_a_while(make: MakePump, caplog: pytest.LogCaptureFixture) -> None:
    manual = make()
    manual.insert()
    manual.turns()
    manual.store.error = StoreUnavailable("away")
    manual.sync.end_all()
    for _ in range(25):
        manual.pass_time(manual.pump.step())
    assert caplog.text.count("away; holding 1 job, trying again") == 2


def test_jobs_claimed_in_an_answer_that_was_lost_go_back(make: MakePump) -> None:
    manual = make(threads=3)
    jobs = manual.insert(3)
    manual.store.error, manual.store.after = StoreUnavailable("the reply was lost"), True
    wait = manual.pump.step()
    if not manual.tally()[State.RUNNING]:
        manual.pass_time(wait)
        wait = manual.pump.step()
    assert manual.tally() == {State.RUNNING: 3}
    assert manual.sync.on == []
    manual.store.error = None
    manual.pass_time(wait)
    manual.turns()
    assert len(manual.sync.on) == 3
    manual.sync.end_all()
    manual.turns()
    assert manual.states(jobs) == [State.DONE] * 3
    assert {manual.record(job).failures for job in jobs} == {0}


@pytest.mark.parametrize("seconds", [0.0, 3.0, 100.0])
def test_jobs_that_are_claimed_long_after_the_worker_gave_up_the_claim_go_back(make: MakePump, seconds: float) -> None:
    manual = make(threads=3)
    manual.store.error = StoreUnavailable("no answer in time")
    wait = manual.pump.step()
    manual.store.error = None
    manual.pass_time(wait)
    manual.turns()
    manual.pass_time(seconds)
    manual.turns()
    jobs = manual.insert(2)
    assert len(manual.store.claim([Want("default", 0, 2)], 2, OWNER, 30 * SECOND, manual.clock.now())) == 2
    for _ in range(2):
        manual.pass_time(1 + seconds)
        manual.turns()
    assert len(manual.sync.on) == 2
    assert {manual.record(job).failures for job in jobs} == {0}


def test_whoever_lost_a_reply_looks_for_jobs_a_few_times_only(make: MakePump) -> None:
    manual = make(threads=1)
    manual.store.error = StoreUnavailable("away")
    manual.pass_time(manual.pump.step())
    manual.store.error = None
    for _ in range(1000):
        manual.turns()
        manual.pass_time(1)
    assert 3 < manual.store.calls["reclaim"] < 10


def test_outcomes_whose_answer_was_lost_are_not_counted_twice_nor_run_again(make: MakePump) -> None:
    manual = make(threads=2)
    jobs = manual.insert(2)
    manual.turns()
    manual.sync.end_all()
    manual.store.error, manual.store.after = StoreUnavailable("the reply was lost"), True
    wait = manual.pump.step()
    assert manual.tally() == {State.DONE: 2}
    manual.store.error = None
    manual.pass_time(wait)
    manual.turns()
    assert (manual.pump.held_count, manual.sync.on) == (0, [])
    assert {manual.record(job).epoch for job in jobs} == {1}


def test_a_job_is_not_given_back_while_it_runs_here(make: MakePump) -> None:
    manual = make(threads=3)
    jobs = manual.insert(2)
    manual.turns()
    manual.store.error = StoreUnavailable("away")
    manual.pass_time(manual.pump.step() or 0.1)
    manual.store.error = None
    manual.turns()
    assert manual.states(jobs) == [State.RUNNING] * 2
    assert {manual.record(job).epoch for job in jobs} == {1}


def test_a_clock_that_cannot_be_read_is_trouble_like_any_other(make: MakePump) -> None:
    manual = make()
    times: list[StoreError | None] = [StoreUnavailable("no time"), None]

    class Broken(FakeClock):
        def now(self) -> int:
            error = times.pop(0) if times else None
            if error:
                raise error
            return super().now()

    (job,) = manual.insert()
    manual.pump._clock = manual.pump._exchanger._clock = Broken()
    wait = manual.pump.step()
    assert wait > 0
    manual.pass_time(wait)
    manual.turns()
    assert manual.states([job]) == [State.RUNNING]


def test_leases_that_cannot_be_extended_are_told_and_tried_again(
    make: MakePump, caplog: pytest.LogCaptureFixture
) -> None:
    manual = make()
    (job,) = manual.insert()
    manual.turns()
    manual.store.error = StoreUnavailable("away")
    manual.pass_time(1.1)
    manual.pump.step()
    assert "away" in caplog.text
    manual.store.error = None
    manual.pass_time(6)
    manual.turns()
    assert manual.store.extend(OWNER, [(job.id, 1)], 30 * SECOND, manual.clock.now()) == []


def test_the_store_decides_whether_an_outcome_counts(make: MakePump) -> None:
    manual = make()
    store: Store = manual.store
    (job,) = manual.insert()
    manual.turns()
    store.apply(
        [lifecycle.after(manual.record(job), Returned(b"2"), manual.rules, manual.clock.now())], manual.clock.now()
    )
    manual.sync.end(manual.sync.on[0], Returned(b"1"))
    manual.turns()
    assert (manual.record(job).note, manual.pump.events.processed) == (b"2", 0)


def test_a_store_that_fails_over_something_in_it_ends_no_worker(
    make: MakePump, caplog: pytest.LogCaptureFixture
) -> None:
    on = make()
    (bad, good) = on.insert(2)
    on.turns()
    exchange = on.store.exchange

    def fail(changes: Any, *rest: Any) -> Any:
        if any(change.id == bad.id for change in changes):
            raise OverflowError("a number")
        return exchange(changes, *rest)

    on.store.exchange = fail  # type: ignore[method-assign, assignment]
    for _ in range(2):
        on.sync.end_all()
        on.pass_time(60)
        on.turns()
        on.pass_time(60)
        on.turns()
    assert on.record(good).state is State.DONE
    assert "what becomes of it cannot be stored: a number" in caplog.text
    assert not on.pump.unsettled_jobs()
