"""The pump alone, turned by hand."""

from collections import Counter
from typing import Any

import pytest

from tarry import errors
from tarry.model import lifecycle
from tarry.model.duration import SECOND
from tarry.model.job import State
from tarry.model.killing import CANCELLED, LEASE_LOST, NOT_WANTED
from tarry.model.lifecycle import Rules
from tarry.model.limit import Limit
from tarry.model.outcome import Lost, Raised, Returned, outcome_note
from tarry.model.retry import Retry
from tarry.store.conformance.cases.jobs import EVERYTHING
from tarry.store.rules.base import Exchange, Query
from tarry.tasks.interrupts import CalledBack, TimeLimit
from tarry.worker import claim_plan
from tarry.worker import pump as pumping
from tarry.worker.held_leases import EXTEND_EVERY
from tests.worker.manual_pump import TASKS, MakePump, ManualPump


def test_it_claims_as_many_as_can_run(make: MakePump) -> None:
    manual = make(threads=3)
    manual.insert(10)
    manual.turns()
    assert manual.tally() == {State.RUNNING: 3, State.READY: 7}
    assert (len(manual.sync.on), manual.pump.held_count, manual.pump.has_free_slots) == (3, 3, False)


def test_what_ended_is_settled_and_the_next_claimed_in_one_call(make: MakePump) -> None:
    manual = make(threads=3)
    manual.insert(10)
    manual.turns()
    manual.store.batches.clear()
    manual.pass_time(1)
    manual.sync.end_all()
    manual.pump.step()
    assert manual.store.batches == [(3, 3)]
    assert manual.tally() == {State.DONE: 3, State.RUNNING: 3, State.READY: 4}
    assert manual.pump.events.processed == 3


def test_an_idle_pump_sleeps_until_the_next_job_is_due(make: MakePump) -> None:
    manual = make()
    manual.insert(due=manual.clock.now() + SECOND // 4)
    assert manual.turns() == pytest.approx(0.25)
    manual.pass_time(0.2)
    assert manual.turns() == pytest.approx(0.05)
    assert manual.sync.on == []
    manual.pass_time(0.05)
    manual.turns()
    assert len(manual.sync.on) == 1


def test_with_nothing_in_sight_it_looks_now_and_then(make: MakePump) -> None:
    manual = make()
    assert manual.turns() == pumping.LOOK_ANYWAY
    assert manual.store.calls["exchange"] <= 2


def slept(manual: ManualPump, looks: int) -> list[float]:
    """The seconds of so many sleeps, one after the other."""
    pauses = []
    for _ in range(looks):
        pauses.append(manual.turns())
        manual.pass_time(pauses[-1])
    return pauses


def test_the_longer_it_is_idle_the_seldomer_it_looks(make: MakePump) -> None:
    manual = make()
    assert slept(manual, 6) == [1, 1, 2, 4, pumping.LOOK_SELDOM, pumping.LOOK_SELDOM]
    manual.insert()
    manual.turns()
    assert len(manual.sync.on) == 1
    assert slept(manual, 3) == [1, 1, 1], "a job runs"
    manual.sync.end_all()
    assert slept(manual, 3) == [1, 1, 2]


def test_where_news_may_not_arrive_it_looks_each_second(make: MakePump, monkeypatch: pytest.MonkeyPatch) -> None:
    manual = make()
    monkeypatch.setattr(manual.pump.wakeup, "is_receiving", lambda: False)
    assert slept(manual, 5) == [pumping.LOOK_ANYWAY] * 5


def test_an_idle_look_asks_for_queues_once(make: MakePump) -> None:
    manual = make()
    manual.insert()
    manual.turns()
    manual.sync.end_all()
    slept(manual, 3)
    manual.store.calls.clear()
    slept(manual, 4)
    assert manual.store.calls == {"exchange": 4, "queues": 4}


def test_bands_share_a_claim(make: MakePump) -> None:
    manual = make(threads=10)
    for priority in (-1, 0, 1):
        manual.insert(50, priority=priority)
    for share in range(1, 6):
        manual.turns()
        assert Counter(running.job.priority for running in manual.sync.on) == {1: 5, 0: 3, -1: 2}, f"claim {share}"
        manual.pass_time(1)
        manual.sync.end_all()


def test_what_one_band_lacks_the_others_get(make: MakePump) -> None:
    manual = make(threads=10)
    manual.insert(50, priority=-1)
    manual.insert(1, priority=1)
    manual.turns()
    assert Counter(running.job.priority for running in manual.sync.on) == {1: 1, -1: 9}


def test_queues_share_by_weight(make: MakePump) -> None:
    manual = make(threads=10, queues={"critical": 7, "bulk": 3})
    manual.insert(200, queue="critical")
    manual.insert(200, queue="bulk")
    total: Counter[str] = Counter()
    for _ in range(20):
        manual.turns()
        total.update(running.job.queue for running in manual.sync.on)
        manual.pass_time(1)
        manual.sync.end_all()
    assert abs(total["critical"] - 140) <= 7, "but for the first claims, which show that there is one band only"
    assert sum(total.values()) == 200


def test_a_queue_of_ones_own_choice_only(make: MakePump) -> None:
    manual = make(queues={"mail": 1})
    (other,), (mine,) = manual.insert(queue="other"), manual.insert(queue="mail")
    manual.turns()
    assert manual.states([other, mine]) == [State.READY, State.RUNNING]
    assert manual.store.calls["queues"] == 0


def test_of_all_queues_it_finds_new_ones_also_while_busy(make: MakePump) -> None:
    manual = make()
    manual.insert(100, queue="a")
    manual.turns()
    (new,) = manual.insert(queue="b")
    for _ in range(40):
        manual.pass_time(0.1)
        manual.sync.end_all()
        assert manual.pump.step() == 0.0, "never idle"
    assert manual.states([new]) == [State.DONE]


def test_what_falls_due_during_the_claim_is_not_slept_over(make: MakePump, monkeypatch: pytest.MonkeyPatch) -> None:
    manual = make(queues={"default": 1})
    manual.insert(due=manual.clock.now() + 10)
    exchange = manual.store.exchange

    def slow(*arguments: Any) -> Any:
        answer = exchange(*arguments)
        manual.clock.time += 20
        return answer

    monkeypatch.setattr(manual.store, "exchange", slow)
    assert manual.pump.step() == 0.0
    manual.turns()
    assert manual.tally() == {State.RUNNING: 1}


def test_of_all_queues_a_job_due_later_in_a_new_one_is_found(make: MakePump) -> None:
    manual = make()
    (job,) = manual.insert(queue="new", due=manual.clock.now() + SECOND)
    manual.turns()
    manual.pass_time(1)
    manual.turns()
    assert manual.states([job]) == [State.RUNNING]


@pytest.mark.parametrize("queues", [{"default": 1}, {"*": 1}])
def test_a_due_job_in_a_paused_queue_keeps_nobody_awake(make: MakePump, queues: dict[str, int]) -> None:
    manual = make(queues=queues)
    (job,) = manual.insert(due=manual.clock.now() + SECOND)
    manual.store.pause("default", True)
    manual.turns()
    manual.pass_time(2)
    manual.store.calls.clear()
    slept = 0.0
    for _ in range(20):
        seconds = manual.turns()
        manual.pass_time(seconds)
        slept += seconds
    assert slept >= 20 * claim_plan.OVERDUE_PAUSE - 0.001
    assert manual.sync.on == []
    manual.store.pause("default", False)
    manual.pass_time(pumping.LOOK_ANYWAY)
    manual.turns()
    assert manual.states([job]) == [State.RUNNING]


def test_lanes_that_are_full_keep_nobody_awake(make: MakePump) -> None:
    manual = make(threads=3000)
    manual.store.limit("each:sync", Limit(1))
    for number in range(1500):
        manual.insert(2, lane=str(number))
    manual.turns()
    assert manual.tally() == {State.RUNNING: 1500, State.READY: 1500}
    manual.store.calls.clear()
    for _ in range(3):
        seconds = manual.turns()
        assert seconds == pumping.LOOK_ANYWAY
        manual.pass_time(seconds)
    assert manual.store.calls["exchange"] == 3
    manual.sync.end(manual.sync.on[700])
    manual.turns()
    assert manual.tally() == {State.RUNNING: 1500, State.READY: 1499, State.DONE: 1}


def test_what_a_rate_holds_back_is_asked_for_when_it_lets_it_start(make: MakePump) -> None:
    manual = make(threads=3)
    manual.store.limit("each:sync", Limit(None, 10, 5 * SECOND))
    manual.insert(2, lane="a")
    assert manual.turns() == pytest.approx(0.5)
    manual.pass_time(0.5)
    manual.turns()
    assert manual.tally() == {State.RUNNING: 2}


def test_a_store_that_has_not_looked_at_all_is_asked_again_at_once(
    make: MakePump, monkeypatch: pytest.MonkeyPatch
) -> None:
    manual = make()
    answers = [Exchange([], [], 0), Exchange([], [], 0), Exchange([], [], None)]
    monkeypatch.setattr(manual.store, "exchange", lambda *_: answers.pop(0))
    manual.pump._plan.wants = lambda limit, due, **_: EVERYTHING  # type: ignore[method-assign]
    assert [manual.turns(1), manual.turns(1), manual.turns(1)] == [claim_plan.AT_ONCE_PAUSE] * 2 + [pumping.LOOK_ANYWAY]


def test_more_due_jobs_than_a_claim_makes_ready_all_run(make: MakePump) -> None:
    manual = make(threads=5, queues={"mine": 1})
    manual.insert(2500, queue="other", due=manual.clock.now() + SECOND)
    (job,) = manual.insert(queue="mine", due=manual.clock.now() + SECOND + 1)
    manual.turns()
    manual.pass_time(1.1)
    for _ in range(5):
        manual.pass_time(manual.turns())
    assert manual.states([job]) == [State.RUNNING]


def test_kinds_of_task_go_to_their_runners_by_the_mix_of_late(make: MakePump) -> None:
    manual = make(threads=2, coroutines=20)
    for _ in range(100):
        manual.insert(1, "sync")
        manual.insert(1, "loop")
    manual.turns()
    assert len(manual.sync.on) >= 1
    assert (
        len(manual.sync.on) + len(manual.sync.line) + len(manual.loop.on) + len(manual.loop.line)
        == manual.pump.held_count
        <= 20
    )
    for _ in range(100):
        manual.pass_time(0.05)
        manual.sync.end_all()
        manual.loop.end_all()
        manual.turns()
    assert manual.tally()[State.DONE] == 200


def test_a_full_kind_does_not_keep_out_the_other(make: MakePump) -> None:
    manual = make(threads=1, coroutines=5)
    manual.insert(1, "sync")
    manual.turns()
    waiting = manual.insert(12, "sync")
    loops = manual.insert(3, "loop", priority=1)
    seen = 0
    for _ in range(200):
        manual.pass_time(manual.turns())
        seen = max(seen, len(manual.loop.on))
    assert seen == 3
    assert (manual.states(loops), manual.pump.held_count) == ([State.RUNNING] * 3, 4)
    assert set(manual.states(waiting)) == {State.READY}
    assert {manual.record(job).failures for job in waiting} == {0}
    manual.store.calls.clear()
    started = manual.time.now
    while manual.time.now < started + 10:
        manual.pass_time(manual.turns())
    assert manual.store.calls["exchange"] < 10 * 20, "it probes now and then, not all the time"


def test_with_one_kind_of_task_nothing_is_probed(make: MakePump) -> None:
    manual = make(threads=1, coroutines=5)
    manual.pump._tasks = manual.pump._capacity._tasks = {"sync": TASKS["sync"]}
    manual.insert(10, "sync")
    manual.turns()
    for _ in range(10):
        manual.pass_time(manual.turns())
    assert manual.tally() == {State.RUNNING: 1, State.READY: 9}
    assert {job.epoch for job in manual.store.find(Query())} == {0, 1}
    assert not manual.pump.has_free_slots


def test_a_task_of_a_kind_that_has_no_slots_is_as_good_as_unknown(make: MakePump) -> None:
    manual = make(threads=1, coroutines=0)
    (job,) = manual.insert(task="loop")
    manual.turns()
    assert manual.states([job]) == [State.SCHEDULED]
    assert b"UnknownTask" in manual.record(job).note


def test_unknown_and_expired_jobs_are_settled_without_a_runner(make: MakePump) -> None:
    manual = make(threads=5)
    unknown, expired = manual.insert(task="newer"), manual.insert(expires=manual.clock.now())
    in_time = manual.insert(expires=manual.clock.now() + 1)
    manual.turns()
    assert manual.states(unknown + expired + in_time) == [State.SCHEDULED, State.CANCELLED, State.RUNNING]
    assert manual.pump.held_count == 1


def test_timeouts_count_from_the_start_and_break_in_once(make: MakePump) -> None:
    manual = make(threads=1)
    manual.pump._capacity._prefetch[False]._rate = 400.0
    manual.insert(2, "timed")
    assert manual.turns() <= 0.5
    first, second = manual.sync.on[0], manual.sync.line[0]
    manual.pass_time(0.4)
    manual.sync.end(first)
    manual.pass_time(0.2)
    manual.turns()
    assert manual.sync.interrupted == [], "the second began 0.2 s ago"
    manual.pass_time(0.31)
    manual.turns()
    manual.pass_time(1)
    manual.turns()
    assert manual.sync.interrupted == [(second, TimeLimit)]


def test_it_sleeps_no_longer_than_to_the_next_deadline(make: MakePump) -> None:
    manual = make()
    manual.insert(task="timed")
    assert manual.turns() == pytest.approx(0.5)
    manual.pass_time(0.3)
    assert manual.turns() == pytest.approx(0.2)


def test_leases_are_extended_every_second_and_what_was_lost_is_called_back(make: MakePump) -> None:
    manual = make(threads=2)
    lost, kept = manual.insert(2)
    for _ in range(60):
        manual.pass_time(manual.turns())
    assert manual.store.reclaim(manual.clock.now()) == [], "a minute, and the lease has not run out"
    assert 30 <= manual.store.calls["extend"] <= 62
    manual.store.apply([lifecycle.cancel(manual.record(lost), manual.rules, manual.clock.now())], manual.clock.now())
    manual.pass_time(1)
    manual.turns()
    assert [(running.job.id, why) for running, why in manual.sync.interrupted] == [(lost.id, CalledBack)]
    assert manual.sync.interrupted[0][0].kill_reason == CANCELLED
    manual.sync.end_all()
    manual.turns()
    assert manual.states([lost, kept]) == [State.CANCELLED, State.DONE]
    assert manual.pump.events.processed == 1, "the outcome that came too late is none"


def test_why_a_job_was_called_back_is_noted(make: MakePump) -> None:
    manual = make(threads=3)
    cancelled, lost, gone = manual.insert(3)
    manual.turns()
    now = manual.clock.now()
    manual.store.apply([lifecycle.cancel(manual.record(cancelled), manual.rules, now)], now)
    manual.store.apply([lifecycle.after(manual.record(lost), Lost(), manual.rules, now)], now)
    manual.store.apply([lifecycle.cancel(manual.record(gone), Rules(keep_done=0), now)], now)
    manual.pass_time(1)
    manual.turns()
    noted = {running.job.id: running.kill_reason for running, _ in manual.sync.interrupted}
    assert noted == {cancelled.id: CANCELLED, lost.id: LEASE_LOST, gone.id: NOT_WANTED}


def test_after_a_recall_it_looks_at_once(make: MakePump) -> None:
    manual = make()
    (job,) = manual.insert()
    manual.turns()
    manual.store.apply([lifecycle.cancel(manual.record(job), manual.rules, manual.clock.now())], manual.clock.now())
    manual.turns()
    assert manual.sync.interrupted == []
    manual.pump.look_thoroughly()
    manual.turns()
    assert [why for _, why in manual.sync.interrupted] == [CalledBack]


@pytest.mark.parametrize(("takes", "again_after"), [(0.002, 0.1), (0.01, 0.5)])
def test_looks_that_take_long_are_put_off(make: MakePump, takes: float, again_after: float) -> None:
    """A busy worker listens hundreds of times a second, and after each time asks for a look at all its jobs."""
    manual = make()
    (job,) = manual.insert()
    manual.turns()
    manual.store.on_extend = lambda: manual.pass_time(takes)
    manual.pump.look_thoroughly()
    manual.turns()
    assert manual.store.calls["extend"] == 1
    manual.store.apply([lifecycle.cancel(manual.record(job), manual.rules, manual.clock.now())], manual.clock.now())
    manual.pump.look_thoroughly()
    left = manual.turns()
    assert manual.store.calls["extend"] == 1
    assert left == pytest.approx(again_after - takes), "it sleeps until then"
    manual.pass_time(left / 2)
    manual.pump.look_thoroughly()
    assert manual.turns() == pytest.approx(left / 2)
    assert manual.sync.interrupted == []
    manual.pass_time(left / 2 + 1e-6)
    manual.turns()
    assert (manual.store.calls["extend"], len(manual.sync.interrupted)) == (2, 1)


def test_leases_are_extended_in_time_however_long_it_takes(make: MakePump) -> None:
    manual = make()
    manual.insert()
    manual.turns()
    manual.store.on_extend = lambda: manual.pass_time(0.5)
    manual.pump.look_thoroughly()
    manual.turns()
    manual.pump.look_thoroughly()
    manual.pass_time(EXTEND_EVERY - 0.5)
    manual.turns()
    assert manual.store.calls["extend"] == 2


def test_a_look_that_was_put_off_waits_for_a_store_that_is_away(make: MakePump) -> None:
    manual = make()
    manual.insert()
    manual.turns()

    def fail() -> None:
        manual.pass_time(0.002)
        raise errors.StoreUnavailable("away")

    manual.store.on_extend = fail
    manual.pump.look_thoroughly()
    manual.turns()
    manual.pump.look_thoroughly()
    assert manual.turns(1) > 0, "it does not turn without a pause"
    assert manual.store.calls["extend"] == 1


def test_a_job_that_comes_back_while_its_first_attempt_still_runs_is_not_confused_with_it(make: MakePump) -> None:
    manual = make(threads=2)
    (job,) = manual.insert()
    manual.turns()
    (first,) = manual.sync.on
    now = manual.clock.now()
    manual.store.apply(
        [lifecycle.after(manual.record(job), Raised(outcome_note("Lost", "")), Rules(retry=Retry(1, base=0)), now)], now
    )
    manual.turns()
    first, second = manual.sync.on
    assert (first.job.epoch, second.job.epoch) == (1, 2)
    manual.sync.end(first, Returned(b"1"))
    manual.turns()
    assert manual.states([job]) == [State.RUNNING], "the first attempt's outcome is stale"
    assert manual.pump.held_count == 1
    manual.sync.end(second, Returned(b"2"))
    manual.turns()
    assert (manual.states([job]), manual.record(job).note) == ([State.DONE], b"2")
    manual.insert(5)
    manual.turns()
    assert len(manual.sync.on) == 2, "both slots are known to be free"


def test_stop_withdraws_what_is_in_line(make: MakePump) -> None:
    manual = make(threads=1)
    manual.pump._capacity._prefetch[False]._rate = 400.0
    jobs = manual.insert(8)
    manual.turns()
    assert (len(manual.sync.on), len(manual.sync.line)) == (1, 7)
    manual.pump.stop()
    manual.turns()
    assert manual.tally() == {State.RUNNING: 1, State.READY: 7}
    assert manual.sync.on[0].stopping
    assert {(manual.record(job).epoch, manual.record(job).failures) for job in jobs} == {(1, 0)}
    manual.insert(3)
    manual.turns()
    assert manual.tally()[State.READY] == 10
    manual.sync.end_all()
    manual.turns()
    assert manual.pump.held_count == 0


def test_what_is_handed_out_while_a_stop_comes_knows_of_it(make: MakePump, monkeypatch: pytest.MonkeyPatch) -> None:
    manual = make()
    manual.insert()
    exchange = manual.store.exchange

    def stopped_meanwhile(*args: Any) -> Exchange:
        answer = exchange(*args)
        manual.pump.stop()
        return answer

    monkeypatch.setattr(manual.store, "exchange", stopped_meanwhile)
    manual.pump.step()
    assert [running.stopping for running in manual.sync.on] == [True]


def test_give_back_returns_all_and_settles_what_ended(make: MakePump) -> None:
    manual = make(threads=2)
    manual.pump._capacity._prefetch[False]._rate = 200.0
    jobs = manual.insert(4)
    manual.turns()
    manual.sync.end(manual.sync.on[0])
    manual.pump.release_all()
    assert manual.states(jobs) == [State.DONE, State.READY, State.READY, State.READY]
    assert manual.pump.held_count == 0


def test_those_in_line_behind_a_long_one_are_given_back(make: MakePump) -> None:
    manual = make(threads=1)
    manual.pump._capacity._prefetch[False]._rate = 400.0
    manual.insert(8)
    assert manual.turns() == pumping.SETTLE_WITHIN
    manual.pass_time(0.3)
    manual.turns()
    assert manual.tally() == {State.RUNNING: 1, State.READY: 7}
    manual.pass_time(10)
    manual.turns()
    assert manual.tally() == {State.RUNNING: 1, State.READY: 7}, "and not taken again"
