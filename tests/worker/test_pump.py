"""The pump alone, turned by hand."""

from collections import Counter
from typing import Any

import pytest

from tarry.model import lifecycle
from tarry.model.duration import SECOND
from tarry.model.job import State
from tarry.model.killing import CANCELLED, LEASE_LOST, NOT_WANTED
from tarry.model.lifecycle import Rules
from tarry.model.limit import Limit
from tarry.model.outcome import Lost, Raised, Returned, note
from tarry.model.retry import Retry
from tarry.store.base import Exchange, Query
from tarry.store.conformance.cases import EVERYTHING
from tarry.tasks.interrupts import CalledBack, TimeLimit
from tarry.worker import pump as pumping
from tests.worker.bed import TASKS, Make


def test_it_claims_as_many_as_can_run(make: Make) -> None:
    bed = make(threads=3)
    bed.insert(10)
    bed.turns()
    assert bed.tally() == {State.RUNNING: 3, State.READY: 7}
    assert (len(bed.sync.on), bed.pump.holds, bed.pump.hungry) == (3, 3, False)


def test_what_ended_is_settled_and_the_next_claimed_in_one_call(make: Make) -> None:
    bed = make(threads=3)
    bed.insert(10)
    bed.turns()
    bed.store.batches.clear()
    bed.pass_time(1)
    bed.sync.end_all()
    bed.pump.turn()
    assert bed.store.batches == [(3, 3)]
    assert bed.tally() == {State.DONE: 3, State.RUNNING: 3, State.READY: 4}
    assert bed.pump.events.processed == 3


def test_an_idle_pump_sleeps_until_the_next_job_is_due(make: Make) -> None:
    bed = make()
    bed.insert(due=bed.clock.now() + SECOND // 4)
    assert bed.turns() == pytest.approx(0.25)
    bed.pass_time(0.2)
    assert bed.turns() == pytest.approx(0.05)
    assert bed.sync.on == []
    bed.pass_time(0.05)
    bed.turns()
    assert len(bed.sync.on) == 1


def test_with_nothing_in_sight_it_looks_now_and_then(make: Make) -> None:
    bed = make()
    assert bed.turns() == pumping.LOOK_ANYWAY
    assert bed.store.calls["exchange"] <= 2


def test_bands_share_a_claim(make: Make) -> None:
    bed = make(threads=10)
    for priority in (-1, 0, 1):
        bed.insert(50, priority=priority)
    for share in range(1, 6):
        bed.turns()
        assert Counter(running.job.priority for running in bed.sync.on) == {1: 5, 0: 3, -1: 2}, f"claim {share}"
        bed.pass_time(1)
        bed.sync.end_all()


def test_what_one_band_lacks_the_others_get(make: Make) -> None:
    bed = make(threads=10)
    bed.insert(50, priority=-1)
    bed.insert(1, priority=1)
    bed.turns()
    assert Counter(running.job.priority for running in bed.sync.on) == {1: 1, -1: 9}


def test_queues_share_by_weight(make: Make) -> None:
    bed = make(threads=10, queues={"critical": 7, "bulk": 3})
    bed.insert(200, queue="critical")
    bed.insert(200, queue="bulk")
    total: Counter[str] = Counter()
    for _ in range(20):
        bed.turns()
        total.update(running.job.queue for running in bed.sync.on)
        bed.pass_time(1)
        bed.sync.end_all()
    assert abs(total["critical"] - 140) <= 7, "but for the first claims, which show that there is one band only"
    assert sum(total.values()) == 200


def test_a_queue_of_ones_own_choice_only(make: Make) -> None:
    bed = make(queues={"mail": 1})
    (other,), (mine,) = bed.insert(queue="other"), bed.insert(queue="mail")
    bed.turns()
    assert bed.states([other, mine]) == [State.READY, State.RUNNING]
    assert bed.store.calls["queues"] == 0


def test_of_all_queues_it_finds_new_ones_also_while_busy(make: Make) -> None:
    bed = make()
    bed.insert(100, queue="a")
    bed.turns()
    (new,) = bed.insert(queue="b")
    for _ in range(40):
        bed.pass_time(0.1)
        bed.sync.end_all()
        assert bed.pump.turn() == 0.0, "never idle"
    assert bed.states([new]) == [State.DONE]


def test_what_falls_due_during_the_claim_is_not_slept_over(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    bed = make(queues={"default": 1})
    bed.insert(due=bed.clock.now() + 10)
    exchange = bed.store.exchange

    def slow(*arguments: Any) -> Any:
        answer = exchange(*arguments)
        bed.clock.time += 20
        return answer

    monkeypatch.setattr(bed.store, "exchange", slow)
    assert bed.pump.turn() == 0.0
    bed.turns()
    assert bed.tally() == {State.RUNNING: 1}


def test_of_all_queues_a_job_due_later_in_a_new_one_is_found(make: Make) -> None:
    bed = make()
    (job,) = bed.insert(queue="new", due=bed.clock.now() + SECOND)
    bed.turns()
    bed.pass_time(1)
    bed.turns()
    assert bed.states([job]) == [State.RUNNING]


@pytest.mark.parametrize("queues", [{"default": 1}, {"*": 1}])
def test_a_due_job_in_a_paused_queue_keeps_nobody_awake(make: Make, queues: dict[str, int]) -> None:
    bed = make(queues=queues)
    (job,) = bed.insert(due=bed.clock.now() + SECOND)
    bed.store.pause("default", True)
    bed.turns()
    bed.pass_time(2)
    bed.store.calls.clear()
    slept = 0.0
    for _ in range(20):
        seconds = bed.turns()
        bed.pass_time(seconds)
        slept += seconds
    assert slept >= 20 * pumping.OVERDUE_PAUSE - 0.001
    assert bed.sync.on == []
    bed.store.pause("default", False)
    bed.pass_time(pumping.LOOK_ANYWAY)
    bed.turns()
    assert bed.states([job]) == [State.RUNNING]


def test_lanes_that_are_full_keep_nobody_awake(make: Make) -> None:
    bed = make(threads=3000)
    bed.store.limit("each:sync", Limit(1))
    for number in range(1500):
        bed.insert(2, lane=str(number))
    bed.turns()
    assert bed.tally() == {State.RUNNING: 1500, State.READY: 1500}
    bed.store.calls.clear()
    for _ in range(3):
        seconds = bed.turns()
        assert seconds == pumping.LOOK_ANYWAY
        bed.pass_time(seconds)
    assert bed.store.calls["exchange"] == 3
    bed.sync.end(bed.sync.on[700])
    bed.turns()
    assert bed.tally() == {State.RUNNING: 1500, State.READY: 1499, State.DONE: 1}


def test_what_a_rate_holds_back_is_asked_for_when_it_lets_it_start(make: Make) -> None:
    bed = make(threads=3)
    bed.store.limit("each:sync", Limit(None, 10, 5 * SECOND))
    bed.insert(2, lane="a")
    assert bed.turns() == pytest.approx(0.5)
    bed.pass_time(0.5)
    bed.turns()
    assert bed.tally() == {State.RUNNING: 2}


def test_a_store_that_has_not_looked_at_all_is_asked_again_at_once(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    bed = make()
    answers = [Exchange([], [], 0), Exchange([], [], 0), Exchange([], [], None)]
    monkeypatch.setattr(bed.store, "exchange", lambda *_: answers.pop(0))
    bed.pump._served.wants = lambda room, due: EVERYTHING  # type: ignore[method-assign]
    assert [bed.turns(1), bed.turns(1), bed.turns(1)] == [pumping.AT_ONCE_PAUSE] * 2 + [pumping.LOOK_ANYWAY]


def test_more_due_jobs_than_a_claim_makes_ready_all_run(make: Make) -> None:
    bed = make(threads=5, queues={"mine": 1})
    bed.insert(2500, queue="other", due=bed.clock.now() + SECOND)
    (job,) = bed.insert(queue="mine", due=bed.clock.now() + SECOND + 1)
    bed.turns()
    bed.pass_time(1.1)
    for _ in range(5):
        bed.pass_time(bed.turns())
    assert bed.states([job]) == [State.RUNNING]


def test_kinds_of_task_go_to_their_runners_by_the_mix_of_late(make: Make) -> None:
    bed = make(threads=2, coroutines=20)
    for _ in range(100):
        bed.insert(1, "sync")
        bed.insert(1, "loop")
    bed.turns()
    assert len(bed.sync.on) >= 1
    assert len(bed.sync.on) + len(bed.sync.line) + len(bed.loop.on) + len(bed.loop.line) == bed.pump.holds <= 20
    for _ in range(100):
        bed.pass_time(0.05)
        bed.sync.end_all()
        bed.loop.end_all()
        bed.turns()
    assert bed.tally()[State.DONE] == 200


def test_a_full_kind_does_not_keep_out_the_other(make: Make) -> None:
    bed = make(threads=1, coroutines=5)
    bed.insert(1, "sync")
    bed.turns()
    waiting = bed.insert(12, "sync")
    loops = bed.insert(3, "loop", priority=1)
    seen = 0
    for _ in range(200):
        bed.pass_time(bed.turns())
        seen = max(seen, len(bed.loop.on))
    assert seen == 3
    assert (bed.states(loops), bed.pump.holds) == ([State.RUNNING] * 3, 4)
    assert set(bed.states(waiting)) == {State.READY}
    assert {bed.record(job).failures for job in waiting} == {0}
    bed.store.calls.clear()
    started = bed.time.now
    while bed.time.now < started + 10:
        bed.pass_time(bed.turns())
    assert bed.store.calls["exchange"] < 10 * 20, "it probes now and then, not all the time"


def test_with_one_kind_of_task_nothing_is_probed(make: Make) -> None:
    bed = make(threads=1, coroutines=5)
    bed.pump._tasks = bed.pump._room._tasks = {"sync": TASKS["sync"]}
    bed.insert(10, "sync")
    bed.turns()
    for _ in range(10):
        bed.pass_time(bed.turns())
    assert bed.tally() == {State.RUNNING: 1, State.READY: 9}
    assert {job.epoch for job in bed.store.find(Query())} == {0, 1}
    assert not bed.pump.hungry


def test_a_task_of_a_kind_that_has_no_slots_is_as_good_as_unknown(make: Make) -> None:
    bed = make(threads=1, coroutines=0)
    (job,) = bed.insert(task="loop")
    bed.turns()
    assert bed.states([job]) == [State.SCHEDULED]
    assert b"UnknownTask" in bed.record(job).note


def test_unknown_and_expired_jobs_are_settled_without_a_runner(make: Make) -> None:
    bed = make(threads=5)
    unknown, expired = bed.insert(task="newer"), bed.insert(expires=bed.clock.now())
    in_time = bed.insert(expires=bed.clock.now() + 1)
    bed.turns()
    assert bed.states(unknown + expired + in_time) == [State.SCHEDULED, State.CANCELLED, State.RUNNING]
    assert bed.pump.holds == 1


def test_timeouts_count_from_the_start_and_break_in_once(make: Make) -> None:
    bed = make(threads=1)
    bed.pump._room._appetites[False]._rate = 400.0
    bed.insert(2, "timed")
    assert bed.turns() <= 0.5
    first, second = bed.sync.on[0], bed.sync.line[0]
    bed.pass_time(0.4)
    bed.sync.end(first)
    bed.pass_time(0.2)
    bed.turns()
    assert bed.sync.broken_in_on == [], "the second began 0.2 s ago"
    bed.pass_time(0.31)
    bed.turns()
    bed.pass_time(1)
    bed.turns()
    assert bed.sync.broken_in_on == [(second, TimeLimit)]


def test_it_sleeps_no_longer_than_to_the_next_deadline(make: Make) -> None:
    bed = make()
    bed.insert(task="timed")
    assert bed.turns() == pytest.approx(0.5)
    bed.pass_time(0.3)
    assert bed.turns() == pytest.approx(0.2)


def test_leases_are_extended_every_second_and_what_was_lost_is_called_back(make: Make) -> None:
    bed = make(threads=2)
    lost, kept = bed.insert(2)
    for _ in range(60):
        bed.pass_time(bed.turns())
    assert bed.store.reclaim(bed.clock.now()) == [], "a minute, and the lease has not run out"
    assert 30 <= bed.store.calls["extend"] <= 62
    bed.store.apply([lifecycle.cancelled(bed.record(lost), bed.rules, bed.clock.now())], bed.clock.now())
    bed.pass_time(1)
    bed.turns()
    assert [(running.job.id, why) for running, why in bed.sync.broken_in_on] == [(lost.id, CalledBack)]
    assert bed.sync.broken_in_on[0][0].kill_reason == CANCELLED
    bed.sync.end_all()
    bed.turns()
    assert bed.states([lost, kept]) == [State.CANCELLED, State.DONE]
    assert bed.pump.events.processed == 1, "the outcome that came too late is none"


def test_why_a_job_was_called_back_is_noted(make: Make) -> None:
    bed = make(threads=3)
    cancelled, lost, gone = bed.insert(3)
    bed.turns()
    now = bed.clock.now()
    bed.store.apply([lifecycle.cancelled(bed.record(cancelled), bed.rules, now)], now)
    bed.store.apply([lifecycle.after(bed.record(lost), Lost(), bed.rules, now)], now)
    bed.store.apply([lifecycle.cancelled(bed.record(gone), Rules(keep_done=0), now)], now)
    bed.pass_time(1)
    bed.turns()
    noted = {running.job.id: running.kill_reason for running, _ in bed.sync.broken_in_on}
    assert noted == {cancelled.id: CANCELLED, lost.id: LEASE_LOST, gone.id: NOT_WANTED}


def test_after_a_recall_it_looks_at_once(make: Make) -> None:
    bed = make()
    (job,) = bed.insert()
    bed.turns()
    bed.store.apply([lifecycle.cancelled(bed.record(job), bed.rules, bed.clock.now())], bed.clock.now())
    bed.turns()
    assert bed.sync.broken_in_on == []
    bed.pump.look_after_recall()
    bed.turns()
    assert [why for _, why in bed.sync.broken_in_on] == [CalledBack]


def test_a_job_that_comes_back_while_its_first_attempt_still_runs_is_not_confused_with_it(make: Make) -> None:
    bed = make(threads=2)
    (job,) = bed.insert()
    bed.turns()
    (first,) = bed.sync.on
    now = bed.clock.now()
    bed.store.apply(
        [lifecycle.after(bed.record(job), Raised(note("Lost", "")), Rules(retry=Retry(1, base=0)), now)], now
    )
    bed.turns()
    first, second = bed.sync.on
    assert (first.job.epoch, second.job.epoch) == (1, 2)
    bed.sync.end(first, Returned(b"1"))
    bed.turns()
    assert bed.states([job]) == [State.RUNNING], "the first attempt's outcome is stale"
    assert bed.pump.holds == 1
    bed.sync.end(second, Returned(b"2"))
    bed.turns()
    assert (bed.states([job]), bed.record(job).note) == ([State.DONE], b"2")
    bed.insert(5)
    bed.turns()
    assert len(bed.sync.on) == 2, "both slots are known to be free"


def test_stop_withdraws_what_is_in_line(make: Make) -> None:
    bed = make(threads=1)
    bed.pump._room._appetites[False]._rate = 400.0
    jobs = bed.insert(8)
    bed.turns()
    assert (len(bed.sync.on), len(bed.sync.line)) == (1, 7)
    bed.pump.stop()
    bed.turns()
    assert bed.tally() == {State.RUNNING: 1, State.READY: 7}
    assert bed.sync.on[0].stopping
    assert {(bed.record(job).epoch, bed.record(job).failures) for job in jobs} == {(1, 0)}
    bed.insert(3)
    bed.turns()
    assert bed.tally()[State.READY] == 10
    bed.sync.end_all()
    bed.turns()
    assert bed.pump.holds == 0


def test_what_is_handed_out_while_a_stop_comes_knows_of_it(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    bed = make()
    bed.insert()
    exchange = bed.store.exchange

    def stopped_meanwhile(*args: Any) -> Exchange:
        answer = exchange(*args)
        bed.pump.stop()
        return answer

    monkeypatch.setattr(bed.store, "exchange", stopped_meanwhile)
    bed.pump.turn()
    assert [running.stopping for running in bed.sync.on] == [True]


def test_give_back_returns_all_and_settles_what_ended(make: Make) -> None:
    bed = make(threads=2)
    bed.pump._room._appetites[False]._rate = 200.0
    jobs = bed.insert(4)
    bed.turns()
    bed.sync.end(bed.sync.on[0])
    bed.pump.give_back()
    assert bed.states(jobs) == [State.DONE, State.READY, State.READY, State.READY]
    assert bed.pump.holds == 0


def test_those_in_line_behind_a_long_one_are_given_back(make: Make) -> None:
    bed = make(threads=1)
    bed.pump._room._appetites[False]._rate = 400.0
    bed.insert(8)
    assert bed.turns() == pumping.SETTLE_WITHIN
    bed.pass_time(0.3)
    bed.turns()
    assert bed.tally() == {State.RUNNING: 1, State.READY: 7}
    bed.pass_time(10)
    bed.turns()
    assert bed.tally() == {State.RUNNING: 1, State.READY: 7}, "and not taken again"
