import functools
import itertools
import logging
import os
import signal
from pathlib import Path

import pytest
from msgspec import json

from tarry.client.clock import FakeClock, elapsed
from tarry.errors import StoreUnavailable
from tarry.keeper import expired_leases
from tarry.keeper.chores import Keeper
from tarry.model import lifecycle
from tarry.model.change import DONE, PUT
from tarry.model.duration import HOUR, SECOND
from tarry.model.job import Job, State
from tarry.model.lifecycle import Rules
from tarry.model.limit import Level, Limit
from tarry.model.outcome import Returned
from tarry.model.retry import Retry
from tarry.store.memory.store import MemoryStore
from tarry.store.queries.history_reading import Period, view
from tarry.store.rules import ids, owner
from tarry.store.rules.base import BANDS, Query, Store, Want
from tarry.store.rules.history.history import TAKEN_AT_ONCE
from tarry.store.rules.history.sums import MINUTES, decode
from tarry.store.shared.backoff import LEASE_GRACE
from tarry.store.sqlite.store import SqliteStore
from tests.store.away_store import AwayStore
from tests.store.switched import (
    closing,  # noqa: F401 - a fixture
    memories,
    slow,
)

LEASE = 30 * SECOND
WANTS = [Want("default", band, 100) for band in BANDS]
RETRYING = Rules(retry=Retry(3, base=60))


@pytest.fixture
def keeper(store: Store, clock: FakeClock) -> Keeper:
    return Keeper(store, clock=clock, rules=lambda task, queue: RETRYING)


def test_shares_outlast_the_places_that_are_taken_outside_of_jobs(store: Store, clock: FakeClock) -> None:
    """Also where workers have shorter leases: what a store that is away may have is not given to others before."""
    told = []

    def note(owner: str, now: int, lease: int) -> bool:
        told.append(lease)
        return False

    store.move_shares = note  # type: ignore[method-assign]
    Keeper(store, clock=clock, lease=3 * SECOND).move_shares()
    Keeper(store, clock=clock, lease=LEASE).move_shares()
    assert told == [10 * SECOND, LEASE]


def claimed(store: Store, clock: FakeClock, by: str, count: int = 1) -> list[Job]:
    """New jobs, in the hands of that owner."""
    store.insert([Job(ids.uuid7(), "pay", b"[]", due=clock.now(), state_since=clock.now()) for _ in range(count)])
    return reclaimed(store, clock, by)


def reclaimed(store: Store, clock: FakeClock, by: str) -> list[Job]:
    return store.claim(WANTS, 100, by, LEASE, clock.now())


def seen(store: Store, jobs: list[Job]) -> list[tuple[State, int, int]]:
    """State, failures and losses of each."""
    return [(job.state, job.failures, job.crashes) for job in store.get([job.id for job in jobs]) if job]


def test_the_jobs_of_a_dead_owner_come_back_and_only_those_that_were_on_count(
    store: Store, clock: FakeClock, keeper: Keeper
) -> None:
    jobs, others = claimed(store, clock, "gone", 3), claimed(store, clock, "alive")
    keeper.rescue("gone", on=[jobs[0].id.hex()])
    assert seen(store, jobs) == [(State.READY, 1, 1), (State.READY, 0, 0), (State.READY, 0, 0)]
    assert seen(store, others) == [(State.RUNNING, 0, 0)]
    assert b"worker gone died while this job was on" in store.find(Query(limit=1))[0].note


def test_a_stuck_job_has_timed_out(store: Store, clock: FakeClock, keeper: Keeper) -> None:
    stuck, neighbour = claimed(store, clock, "gone", 2)
    keeper.rescue("gone", on=[stuck.id.hex(), neighbour.id.hex()], stuck=[stuck.id.hex()])
    assert seen(store, [stuck, neighbour]) == [(State.SCHEDULED, 1, 0), (State.READY, 1, 1)]
    record = store.get([stuck.id])[0]
    assert record is not None
    assert b"did not end after its timeout, so its worker was killed" in record.note
    assert record.due == clock.now() + 60 * SECOND, "by the task's own rule"


def test_a_stuck_job_shows_where_it_was(store: Store, clock: FakeClock, keeper: Keeper) -> None:
    (stuck,) = claimed(store, clock, "gone")
    id = stuck.id.hex()
    keeper.handle_message({"gone": "gone", "stuck": [id], "stacks": {id: "in spin"}, "epochs": {id: stuck.epoch}})
    record = store.get([stuck.id])[0]
    assert record is not None
    assert json.decode(record.note)["traceback"] == "in spin"


def test_an_attempt_that_went_down_with_an_earlier_one_of_the_same_job_does_not_count(
    store: Store, clock: FakeClock, keeper: Keeper
) -> None:
    (again,) = claimed(store, clock, "gone")
    id = again.id.hex()
    keeper.handle_message({"gone": "gone", "on": [], "stuck": [id], "epochs": {id: again.epoch - 1}})
    assert seen(store, [again]) == [(State.READY, 0, 0)]


def test_an_overdue_lease_ends_and_one_that_is_not_does_not(store: Store, clock: FakeClock, keeper: Keeper) -> None:
    jobs = claimed(store, clock, "silent", 2)
    clock.advance(LEASE / SECOND - 1)
    keeper.rescue_overdue()
    assert seen(store, jobs) == [(State.RUNNING, 0, 0)] * 2
    clock.advance(2)
    keeper.rescue_overdue()
    assert seen(store, jobs) == [(State.READY, 0, 0)] * 2, "which of the two was on is not known"


def test_a_lease_of_a_program_outside_that_ran_out_is_a_time_out(
    store: Store, clock: FakeClock, keeper: Keeper
) -> None:
    taken = claimed(store, clock, owner.outside_name())
    clock.advance(31)
    keeper.rescue_overdue()
    assert seen(store, taken) == [(State.READY, 1, 0)], "at once whatever its rule's delay is, and with no crash"
    (job,) = store.get([taken[0].id])
    assert job is not None
    assert json.decode(job.note)["type"] == "LeaseExpired"


def test_the_death_of_a_door_counts_for_no_job(store: Store, clock: FakeClock, keeper: Keeper) -> None:
    child = os.fork()
    if child == 0:
        signal.pause()
        os._exit(0)
    # The only job of its owner: a worker's would count.
    held = claimed(store, clock, f"{owner.process_owner(child)}:door1")
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    keeper.rescue_dead()
    assert seen(store, held) == [(State.READY, 0, 0)]


def test_a_lease_that_ran_out_counts_no_death_and_a_known_death_does(
    store: Store, clock: FakeClock, keeper: Keeper
) -> None:
    dead = f"{owner.host_scope()}:{2**22 + 1}:1:1"
    silent, gone = claimed(store, clock, "silent"), claimed(store, clock, dead)
    clock.advance(LEASE / SECOND + 1)
    keeper.rescue_overdue()
    assert seen(store, [*silent, *gone]) == [(State.READY, 0, 0), (State.READY, 1, 1)]


def test_an_owner_that_came_too_late_changes_nothing(store: Store, clock: FakeClock, keeper: Keeper) -> None:
    (job,) = claimed(store, clock, "silent")
    clock.advance(LEASE / SECOND + 1)
    keeper.rescue_overdue()
    change = lifecycle.after(job, Returned(), RETRYING, clock.now())
    assert store.apply([change], clock.now()) == [False]


def test_three_deaths_are_poison(store: Store, clock: FakeClock, keeper: Keeper) -> None:
    jobs = claimed(store, clock, "gone 1")
    for number, waits in ((1, 0), (2, 6), (3, 0)):
        if number > 1:
            assert len(reclaimed(store, clock, f"gone {number}")) == 1
        keeper.rescue(f"gone {number}", on=[jobs[0].id.hex()])
        clock.advance(waits)
    assert seen(store, jobs) == [(State.DEAD, 3, 3)]
    record = store.get([jobs[0].id])[0]
    assert record is not None
    assert b"3 workers died while this job was on" in record.note
    assert reclaimed(store, clock, "next") == []


def test_rescue_brings_back_more_than_a_page(store: Store, clock: FakeClock, keeper: Keeper) -> None:
    jobs = [Job(ids.uuid7(), "pay", b"[]", due=clock.now()) for _ in range(2500)]
    store.insert(jobs)
    for _ in range(3):
        store.claim(WANTS, 1000, "gone", LEASE, clock.now())
    keeper.rescue("gone")
    assert store.owners() == []
    assert [tally.count for tally in store.counts()] == [2500]


def _holding_child(path: Path, clock: FakeClock) -> tuple[int, list[bytes]]:
    """A forked process that claimed what is there, and its jobs."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            store = SqliteStore(path)
            jobs = reclaimed(store, clock, owner.new_name())
            os.write(writing, b"".join(job.id for job in jobs))
            os.close(writing)
            signal.pause()
        finally:
            os._exit(1)
    os.close(writing)
    with open(reading, "rb") as told:
        text = told.read()
    return child, [text[start : start + 16] for start in range(0, len(text), 16)]


def test_a_killed_process_of_this_host_is_noticed_before_its_lease_ends(tmp_path: Path, clock: FakeClock) -> None:
    path = tmp_path / "tarry.db"
    setup = SqliteStore(path)
    jobs = [Job(ids.uuid7(), "pay", b"[]", due=clock.now()) for _ in range(3)]
    setup.insert(jobs)
    setup.close()
    child, held = _holding_child(path, clock)
    store = SqliteStore(path)
    keeper = Keeper(store, clock=clock)
    try:
        assert held == [job.id for job in jobs]
        keeper.rescue_dead()
        assert seen(store, jobs) == [(State.RUNNING, 0, 0)] * 3, "it lives"
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    keeper.rescue_dead()
    assert seen(store, jobs) == [(State.RUNNING, 0, 0)] * 3, "its master's word may still come"
    keeper.rescue_dead()
    assert seen(store, jobs) == [(State.READY, 0, 0)] * 3
    store.close()


def test_what_was_dead_before_the_keeper_began_comes_back_at_once(
    store: Store, clock: FakeClock, keeper: Keeper
) -> None:
    jobs = claimed(store, clock, f"{owner.host_scope()}:{2**22 + 1}:1:1", 2)
    keeper.rescue_dead()
    assert seen(store, jobs) == [(State.READY, 0, 0)] * 2


def test_finished_jobs_are_forgotten_after_their_time(store: Store, clock: FakeClock, keeper: Keeper) -> None:
    jobs = claimed(store, clock, "me", 3)
    store.apply([lifecycle.after(job, Returned(), RETRYING, clock.now()) for job in jobs[:2]], clock.now())
    keeper.prune()
    assert len(store.find(Query())) == 3
    clock.advance(HOUR / SECOND + 1)
    keeper.prune()
    assert [job.id for job in store.find(Query())] == [jobs[2].id]


def test_a_queues_finished_jobs_take_no_more_room_than_they_may(store: Store, clock: FakeClock) -> None:
    keeper = Keeper(store, clock=clock, kept_bytes={"default": 250})
    jobs = claimed(store, clock, "me", 5)
    results = [lifecycle.after(job, Returned(b"x" * 98), RETRYING, clock.now()) for job in jobs]
    store.apply(results, clock.now())
    keeper.prune()
    assert [job.id for job in store.find(Query())] == [job.id for job in jobs[3:]]


def test_one_keeper_of_several_prunes(store: Store, clock: FakeClock) -> None:
    one, two = Keeper(store, clock=clock), Keeper(store, clock=clock)
    assert not one.prune(), "nothing is old: it rests"
    jobs = claimed(store, clock, "me")
    store.apply([lifecycle.after(jobs[0], Returned(), Rules(keep_done=1), clock.now())], clock.now())
    clock.advance(1)
    assert not two.prune()
    assert len(store.find(Query())) == 1
    assert one.prune()
    assert store.find(Query()) == []


def test_what_was_counted_is_summed_up_and_pruned(store: Store, clock: FakeClock, keeper: Keeper) -> None:
    jobs = claimed(store, clock, "me", 3)
    store.apply([lifecycle.after(job, Returned(), RETRYING, clock.now()) for job in jobs], clock.now())
    keeper.tick()
    assert store.history.unsummed(10) == []
    kinds = [decode(cell).kinds for place, cell in store.history.read(MINUTES, 0, 2**40).items() if place.task]
    assert kinds == [{PUT: 3, DONE: 3}]
    clock.advance(25 * HOUR / SECOND)
    keeper.prune_history()
    assert store.history.read(MINUTES, 0, 2**40) == {}


def test_what_is_ready_is_sampled_once_a_minute(store: Store, clock: FakeClock) -> None:
    one, two = Keeper(store, clock=clock), Keeper(store, clock=clock)
    began = clock.now()
    for count, keeper in ((3, one), (2, two), (4, one)):
        jobs = [Job(ids.uuid7(), "pay", b"[]", due=began, state_since=began) for _ in range(count)]
        store.insert(jobs)
        keeper.sample_history()
    points = view(store.history, Period.last(MINUTES, 1, clock.now())).points
    assert [(point.ready, point.oldest) for point in points] == [(3, 0.0)]
    clock.advance(60)
    two.sample_history()
    one.sample_history()
    points = view(store.history, Period.last(MINUTES, 2, clock.now())).points
    assert [(point.ready, point.oldest) for point in points] == [(3, 0.0), (9, 60.0)]


def test_a_long_journal_is_summed_up_in_one_tick(store: Store, clock: FakeClock, keeper: Keeper) -> None:
    for _ in range(2 * TAKEN_AT_ONCE + 1):
        store.insert([Job(ids.uuid7(), "pay", b"[]", due=clock.now(), state_since=clock.now())])
    keeper.tick()
    assert store.history.unsummed(10) == []


class Monotonic:
    """A clock for the pauses between chores."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.mark.parametrize("other_dies", [False, True])
def test_a_level_that_is_wrong_is_put_right_within_a_minute(
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    other_dies: bool,
) -> None:
    time, store = Monotonic(), MemoryStore(clock.now)
    monkeypatch.setattr("tarry.keeper.chores.time", time)
    other, keeper = Keeper(store, clock=clock), Keeper(store, clock=clock)
    store.limit("task:pay", Limit(1))
    if other_dies:
        other.recount()
    keeper.tick()
    store._levels["task:pay"] = Level(7)
    for _ in range(60):
        time.now += 1
        clock.advance(1)
        keeper.tick()
    assert store.limits()["task:pay"][1].running == 0
    assert caplog.text.count("1 limits did not count what runs under them; they do now") == 1


def test_one_keeper_of_several_recounts(clock: FakeClock) -> None:
    store = MemoryStore(clock.now)
    one, two = Keeper(store, clock=clock), Keeper(store, clock=clock)
    store.limit("task:pay", Limit(1))
    one.recount()
    store._levels["task:pay"] = Level(7)
    two.recount()
    assert store.limits()["task:pay"][1].running == 7
    one.close()
    two.recount()
    assert store.limits()["task:pay"][1].running == 0


def test_it_hears_the_masters_word_and_answers(store: Store, clock: FakeClock, keeper: Keeper) -> None:
    jobs = claimed(store, clock, "gone", 3)
    on, stuck = [jobs[0].id.hex(), jobs[1].id.hex()], [jobs[1].id.hex()]
    assert keeper.handle_message({"gone": "gone", "on": on, "stuck": stuck}) == {"returned": "gone"}
    assert seen(store, jobs) == [(State.READY, 1, 1), (State.SCHEDULED, 1, 0), (State.READY, 0, 0)]
    assert keeper.handle_message({"gone": "never heard of"}) == {"returned": "never heard of"}
    assert keeper.handle_message({"hello": 1}) is None


class Away(MemoryStore):
    """A store that cannot be reached for so many calls of `reclaim`."""

    left = 0

    def reclaim(self, now: int, of: str | None = None, limit: int = 1000) -> list[Job]:
        if self.left:
            self.left -= 1
            raise StoreUnavailable("away")
        return super().reclaim(now, of, limit)


def test_while_the_store_is_away_it_gives_no_answer(clock: FakeClock, caplog: pytest.LogCaptureFixture) -> None:
    store = Away(clock.now)
    keeper = Keeper(store, clock=clock)
    jobs = claimed(store, clock, "gone")
    store.left = 5
    assert [keeper.handle_message({"gone": "gone"}) for _ in range(5)] == [None] * 5
    assert caplog.text.count("away; the jobs of gone come back later") == 1
    assert seen(store, jobs) == [(State.RUNNING, 0, 0)]
    assert keeper.handle_message({"gone": "gone"}) == {"returned": "gone"}
    assert seen(store, jobs) == [(State.READY, 0, 0)]


def test_a_tick_does_what_is_due_and_says_how_long_it_may_sleep(store: Store, clock: FakeClock, keeper: Keeper) -> None:
    jobs = claimed(store, clock, "silent")
    clock.advance(LEASE / SECOND + 1)
    assert 0.5 < keeper.tick() <= 1.1
    assert seen(store, jobs) == [(State.READY, 0, 0)]
    assert reclaimed(store, clock, "silent too")
    clock.advance(LEASE / SECOND + 1)
    keeper.tick()
    assert seen(store, jobs) == [(State.RUNNING, 0, 0)], "not due again yet"


def test_chores_are_done_together(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that an idle host is woken a few times a second; each chore is done as often as it says, or a bit more."""
    time = Monotonic()
    monkeypatch.setattr("tarry.keeper.chores.time", time)
    keeper = Keeper(MemoryStore(clock.now), clock=clock)
    done: dict[int, list[float]] = {number: [] for number in range(10)}

    def note(moments: list[float]) -> None:
        moments.append(time.now)

    for number, moments in done.items():
        keeper.register_chore(0.5 if number == 0 else 1.0, functools.partial(note, moments))
    wakes = 0
    end = time.now + 60
    while time.now < end:
        time.now += keeper.tick() + 1e-6
        wakes += 1
    assert wakes < 60 * 3
    for number, moments in done.items():
        period = 0.5 if number == 0 else 1.0
        gaps = [later - before for before, later in itertools.pairwise(moments)]
        assert period * 0.7 <= min(gaps)
        assert max(gaps) <= period * 1.1 + 1e-5


def test_a_chore_that_finds_nothing_is_done_seldomer(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    time = Monotonic()
    monkeypatch.setattr("tarry.keeper.chores.time", time)
    monkeypatch.setattr("tarry.keeper.chores.random.uniform", lambda low, high: 1.0)
    keeper = Keeper(MemoryStore(clock.now), clock=clock)
    moments: list[float] = []
    answers = [False, False, False, False, True, False, False, None, False]

    def look() -> bool | None:
        moments.append(time.now)
        return answers[len(moments) - 1]

    keeper.register_chore(1.0, look, 4.0)
    while len(moments) < len(answers):
        time.now += keeper.tick() + 1e-6
    gaps = [later - before for before, later in itertools.pairwise(moments)]
    # Up to a fifth of a second early, with other chores.
    assert gaps == pytest.approx([2, 4, 4, 4, 1, 2, 4, 1], abs=0.25)


def test_on_an_idle_store_a_keeper_asks_little_and_leases_are_looked_at_each_second(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    time = Monotonic()
    monkeypatch.setattr("tarry.keeper.chores.time", time)
    store, reclaims = MemoryStore(clock.now), itertools.count()
    reclaim = store.reclaim
    monkeypatch.setattr(store, "reclaim", lambda *given: (next(reclaims), reclaim(*given))[1])
    keeper = Keeper(store, clock=clock)

    def looks(seconds: float) -> int:
        """How often it looks for leases that have run out in so many seconds."""
        before, end = next(reclaims), time.now + seconds
        while time.now < end:
            pause = keeper.tick() + 1e-6
            time.now += pause
            clock.advance(pause)
        return next(reclaims) - before - 1

    looks(20)
    assert looks(60) <= 20
    claimed(store, clock, "busy")
    looks(5)
    assert looks(20) >= 18, "a lease may run out"


def test_what_failed_is_not_tried_again_early(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    time = Monotonic()
    monkeypatch.setattr("tarry.keeper.chores.time", time)
    store = Away(clock.now)
    keeper = Keeper(store, clock=clock)
    store.left = 2
    pause = keeper.tick()
    assert (store.left, pause > 0) == (1, True)
    time.now += pause / 2
    keeper.tick()
    assert store.left == 1


def test_a_tick_outlasts_trouble_tells_it_once_and_tries_again_sooner(
    clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    store = Away(clock.now)
    keeper = Keeper(store, clock=clock)
    store.left = 1
    caplog.set_level(logging.ERROR)
    assert keeper.tick() < 0.3
    assert [record.getMessage() for record in caplog.records] == ["rescue_overdue: away"]


def test_a_chore_that_asks_nothing_does_not_say_that_the_store_is_back(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    time = Monotonic()
    monkeypatch.setattr("tarry.keeper.chores.time", time)
    store = AwayStore(MemoryStore(clock.now))
    keeper = Keeper(store, clock=clock)
    keeper.register_chore(0.5, lambda: None)
    keeper.tick()
    store.left = 0
    while not keeper.away:
        time.now += keeper.tick()
    said = []
    for _ in range(20):
        time.now += keeper.tick()
        said.append(keeper.away)
    assert set(said) == {"away"}
    # So far have the pauses grown.
    assert keeper.tick() >= 2.5
    store.left = -1
    time.now += 5
    keeper.tick()
    assert keeper.away == ""


@pytest.mark.usefixtures("closing")
def test_of_several_stores_one_that_is_away_holds_up_only_the_chores_that_need_it(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow(monkeypatch)
    store, (first, second) = memories("ab")
    keeper = Keeper(store, clock=clock)
    done: list[int] = []

    def write() -> None:
        for number in range(40):
            store.kv_cas(f"cell {number}", b"x", None)

    keeper.register_chore(1.0, write)
    keeper.register_chore(1.0, lambda: done.append(1))
    second.down()
    keeper.tick()
    assert (keeper.away, done) == ("", [1])
    assert 0 < len(first.inner.kv_list("cell")) < 40, "the chore has met the store that is away"
    first.down()
    time = Monotonic()
    monkeypatch.setattr("tarry.keeper.chores.time", time)
    while not keeper.away:
        time.now += keeper.tick() + 0.1
    assert "no answer" in keeper.away


def test_after_trouble_owners_have_a_moment_to_prolong_their_leases(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the store was away nobody could."""
    store = Away(clock.now)
    keeper = Keeper(store, clock=clock, rules=lambda task, queue: RETRYING)
    jobs = claimed(store, clock, "alive")
    clock.advance(LEASE / SECOND + 1)
    store.left = 1
    keeper.tick()
    keeper.rescue_overdue()
    assert seen(store, jobs) == [(State.RUNNING, 0, 0)]
    start = elapsed()
    for second in range(int(LEASE_GRACE) + 2):
        later = start + second * SECOND
        monkeypatch.setattr(expired_leases, "elapsed", lambda now=later: now)
        keeper.rescue_overdue()
    assert seen(store, jobs) == [(State.READY, 0, 0)]


class SecondsPass:
    """The module `time` of the keeper and `elapsed`, both moved by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds = 1000.0
        monkeypatch.setattr(expired_leases, "elapsed", lambda: round(self.seconds * SECOND))
        monkeypatch.setattr("tarry.keeper.chores.time.monotonic", lambda: self.seconds)


@pytest.mark.parametrize("is_slow", [False, True])
def test_no_lease_is_over_right_after_a_long_outage(
    store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, is_slow: bool
) -> None:
    """Also of a keeper whose calls come late anyhow, so that the gap of the outage says nothing to it."""
    moved = SecondsPass(monkeypatch)
    away = AwayStore(store)
    keeper = Keeper(away, clock=clock, rules=lambda task, queue: RETRYING)

    def pass_seconds(seconds: float) -> None:
        moved.seconds += seconds
        clock.advance(seconds)

    for _ in range(3):
        keeper.tick()
        pass_seconds(6 if is_slow else 1)
    jobs = claimed(store, clock, "alive")
    away.left = 0
    for _ in range(45):
        keeper.tick()
        pass_seconds(1)
    away.left = -1
    for _ in range(int(LEASE_GRACE) - 1):
        keeper.tick()
        pass_seconds(1)
        assert seen(store, jobs) == [(State.RUNNING, 0, 0)]
    pass_seconds(LEASE_GRACE)
    for _ in range(int(LEASE_GRACE) + 10):
        keeper.tick()
        pass_seconds(1)
    assert seen(store, jobs) == [(State.READY, 0, 0)]


def test_a_gap_behind_a_gap_counts(store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the store was away twice: the workers had no time to extend their leases. Of a keeper all of whose calls
    are late that says nothing, and it finds what is lost."""
    moved = SecondsPass(monkeypatch)
    keeper = Keeper(store, clock=clock, rules=lambda task, queue: RETRYING)

    def pass_seconds(seconds: float) -> None:
        moved.seconds += seconds
        clock.advance(seconds)

    jobs = claimed(store, clock, "alive")
    for seconds in (1, 20, LEASE_GRACE - 1, 2, 2, 2, 2):
        pass_seconds(seconds)
        keeper.rescue_overdue()
        assert seen(store, jobs) == [(State.RUNNING, 0, 0)]
    late = [LEASE_GRACE + 1] * (expired_leases.MOST_GAPS + 1)
    for seconds in late:
        pass_seconds(seconds)
        keeper.rescue_overdue()
    assert seen(store, jobs) == [(State.READY, 0, 0)]


def test_a_chore_that_fails_over_something_stored_stops_no_other(
    keeper: Keeper, caplog: pytest.LogCaptureFixture
) -> None:
    done: list[int] = []

    def fail() -> None:
        raise OverflowError("a number")

    keeper.register_chore(0.0, fail)
    keeper.register_chore(0.0, lambda: done.append(1))
    for _ in range(5):
        keeper.tick()
    assert len(done) == 5
    assert keeper.chores_failed >= 1
    assert caplog.text.count("fail: a number") == 1


def cancelled_under_a_limit(store: Store, clock: FakeClock, by: str) -> None:
    store.limit("queue:default", Limit(1))
    (job,) = claimed(store, clock, by)
    assert store.apply([lifecycle.cancel(job, RETRYING, clock.now())], clock.now()) == [True]


def places(store: Store) -> int:
    return store.limits()["queue:default"][1].running


def test_the_place_of_an_attempt_that_was_cancelled_ends_with_its_lease(
    store: Store, clock: FakeClock, keeper: Keeper
) -> None:
    cancelled_under_a_limit(store, clock, "silent")
    keeper.free_places()
    assert places(store) == 1
    clock.advance(LEASE / SECOND + 1)
    keeper.free_places()
    assert places(store) == 0
    assert store.recount(clock.now()) == 0


def test_the_place_of_an_attempt_that_was_cancelled_ends_with_its_process(
    store: Store, clock: FakeClock, keeper: Keeper
) -> None:
    cancelled_under_a_limit(store, clock, f"{owner.host_scope()}:{2**22 + 1}:1:1")
    keeper.tick()
    assert places(store) == 0


def test_after_an_outage_workers_have_time_to_keep_their_places(store: Store, clock: FakeClock, keeper: Keeper) -> None:
    cancelled_under_a_limit(store, clock, "silent")
    clock.advance(LEASE / SECOND + 1)
    keeper._expired_leases.be_patient()
    keeper.free_places()
    assert places(store) == 1
