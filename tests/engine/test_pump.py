"""The pump alone, turned by hand: runners that do only what the test says, and a store whose calls are counted."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import pytest

from tarry.engine import pump as pumping
from tarry.engine.clock import FakeClock
from tarry.engine.gauge import NoGauge
from tarry.engine.pump import Pump
from tarry.engine.runner.base import Outcomes, Runner
from tarry.engine.running import CalledBack, Interrupted, Running, TimeLimit
from tarry.engine.task import AsyncTask, SyncTask, Task
from tarry.errors import StoreError, StoreFull, StoreUnavailable
from tarry.model import lifecycle
from tarry.model.change import Change
from tarry.model.duration import SECOND
from tarry.model.job import Job, State
from tarry.model.lifecycle import Rules
from tarry.model.outcome import Raised, Returned, note
from tarry.model.retry import Retry
from tarry.store import ids
from tarry.store.base import Exchange, Query, Store, Want
from tarry.store.memory import MemoryStore

OWNER = "test:1:1:1"


def sync_body() -> None: ...


async def async_body() -> None: ...


def _no_client() -> Any:
    raise AssertionError("nothing is enqueued here")


TASKS: dict[str, Task[Any, Any]] = {
    "sync": SyncTask(sync_body, _no_client, name="sync"),
    "loop": AsyncTask(async_body, _no_client, name="loop"),
    "timed": SyncTask(sync_body, _no_client, name="timed", timeout=0.5),
}


class ByHand(Runner):
    """Begins and ends jobs when told."""

    def __init__(self, slots: int, outcomes: Outcomes, time: "Monotonic") -> None:
        super().__init__(slots, outcomes, NoGauge(), 1000)
        self.time = time
        self.line: list[Running] = []
        self.on: list[Running] = []
        self.broken_in_on: list[tuple[Running, type[Interrupted]]] = []

    def put(self, batch: Sequence[Running]) -> None:
        self.line += batch
        self.begin()

    def begin(self) -> None:
        while self.line and len(self.on) < self.slots:
            running = self.line.pop(0)
            running.started = self.time.monotonic()
            self.on.append(running)

    def end(self, running: Running, outcome: Any = None) -> None:
        self.on.remove(running)
        self.outcomes.add(running, outcome or Returned(b"1"), hurry=not self.line)
        self.begin()

    def end_all(self) -> None:
        for running in list(self.on):
            self.end(running)

    def withdraw(self) -> list[Running]:
        back, self.line = self.line, []
        return back

    def waiting(self) -> int:
        return len(self.line)

    def interrupt(self, running: Running, why: type[Interrupted]) -> None:
        self.broken_in_on.append((running, why))

    def stop(self) -> None: ...


class Watched(MemoryStore):
    """Counts its calls; fails when told, before or after doing what was asked."""

    def __init__(self, time: Callable[[], int]) -> None:
        super().__init__(time)
        self.calls: Counter[str] = Counter()
        self.batches: list[tuple[int, int]] = []
        self.error: StoreError | None = None
        self.after = False

    def _begin(self, verb: str) -> None:
        self.calls[verb] += 1
        if self.error and not self.after:
            raise self.error

    def exchange(
        self, changes: Sequence[Change], wants: Sequence[Want], limit: int, owner: str, lease: int, now: int
    ) -> Exchange:
        self._begin("exchange")
        answer = super().exchange(changes, wants, limit, owner, lease, now)
        self.batches.append((len(changes), len(answer.jobs)))
        if self.error:
            raise self.error
        return answer

    def extend(self, owner: str, held: Collection[tuple[bytes, int]], lease: int, now: int) -> list[bytes]:
        self._begin("extend")
        return super().extend(owner, held, lease, now)

    def reclaim(self, now: int, of: str | None = None, limit: int = 1000) -> list[Job]:
        self._begin("reclaim")
        return super().reclaim(now, of, limit)

    def queues(self) -> dict[str, bool]:
        self._begin("queues")
        return super().queues()


class Monotonic:
    """The module `time`, as far as the pump needs it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


class Bed:
    """A pump with everything around it."""

    def __init__(self, time: Monotonic, threads: int = 1, coroutines: int = 0, **settings: Any) -> None:
        self.clock = FakeClock()
        self.time = time
        self.store = Watched(self.clock.now)
        self.rules = Rules(retry=Retry(3, base=60))
        self.pump = Pump(
            self.store, TASKS, owner=OWNER, clock=self.clock, rules=lambda task, queue: self.rules, **settings
        )
        self.sync = ByHand(threads, self.pump.outcomes, time)
        self.loop = ByHand(coroutines, self.pump.outcomes, time)
        self.pump.attach(self.sync, self.loop)

    def pass_time(self, seconds: float) -> None:
        self.time.now += seconds
        self.clock.advance(seconds)

    def insert(self, count: int = 1, task: str = "sync", queue: str = "default", **fields: Any) -> list[Job]:
        now = self.clock.now()
        due = fields.pop("due", now)
        jobs = [
            Job(ids.uuid7(), task, b"[]", queue, due=due, state=lifecycle.placed(due, now), **fields)
            for _ in range(count)
        ]
        self.store.insert(jobs)
        return jobs

    def turns(self, most: int = 50) -> float:
        """Turns until it would sleep, and how long for."""
        for _ in range(most):
            seconds = self.pump.turn()
            if seconds > 0:
                return seconds
        raise AssertionError(f"it never comes to rest: {self.store.calls}")

    def states(self, jobs: Sequence[Job]) -> list[State]:
        return [job.state for job in self.store.get([job.id for job in jobs]) if job]

    def record(self, job: Job) -> Job:
        (found,) = self.store.get([job.id])
        assert found is not None
        return found

    def tally(self) -> Counter[State]:
        return Counter(job.state for job in self.store.find(Query(limit=10_000)))


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Monotonic:
    time = Monotonic()
    monkeypatch.setattr(pumping, "time", time)
    return time


@pytest.fixture
def make(time: Monotonic) -> Iterator[Callable[..., Bed]]:
    beds: list[Bed] = []

    def make(**settings: Any) -> Bed:
        beds.append(Bed(time, **settings))
        return beds[-1]

    yield make
    for bed in beds:
        bed.pump.bell.close()


Make = Callable[..., Bed]


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


def test_with_one_kind_of_task_nothing_is_probed(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    bed = make(threads=1, coroutines=5)
    bed.pump._tasks = {"sync": TASKS["sync"]}
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
    bed.pump._appetites[False]._rate = 400.0
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
    bed.sync.end_all()
    bed.turns()
    assert bed.states([lost, kept]) == [State.CANCELLED, State.DONE]
    assert bed.pump.events.processed == 1, "the outcome that came too late is none"


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
    bed.pump._appetites[False]._rate = 400.0
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
    bed.pump._appetites[False]._rate = 200.0
    jobs = bed.insert(4)
    bed.turns()
    bed.sync.end(bed.sync.on[0])
    bed.pump.give_back()
    assert bed.states(jobs) == [State.DONE, State.READY, State.READY, State.READY]
    assert bed.pump.holds == 0


def test_those_in_line_behind_a_long_one_are_given_back(make: Make) -> None:
    bed = make(threads=1)
    bed.pump._appetites[False]._rate = 400.0
    bed.insert(8)
    assert bed.turns() == pumping.SETTLE_WITHIN
    bed.pass_time(0.3)
    bed.turns()
    assert bed.tally() == {State.RUNNING: 1, State.READY: 7}
    bed.pass_time(10)
    bed.turns()
    assert bed.tally() == {State.RUNNING: 1, State.READY: 7}, "and not taken again"


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
    assert caplog.text.count("away; holding 1 jobs, trying again") == 2


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
