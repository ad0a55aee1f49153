"""What a schedule remembers of its last ticks."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from tarry import Cron
from tarry.client.clock import FakeClock
from tarry.errors import StoreAway
from tarry.keeper import schedule_state
from tarry.keeper.keeper_records import ScheduledRunRecord, schedule_detail
from tarry.keeper.schedule_state import ScheduleState
from tarry.model import lifecycle
from tarry.model.bound import BOUNDS
from tarry.model.duration import HOUR, MINUTE, SECOND
from tarry.model.job import Job
from tarry.model.lifecycle import Rules
from tarry.model.outcome import Outcome, Raised, Returned
from tarry.model.retry import Retry
from tarry.model.schedules.schedule import MOST_RUNS, ScheduledRun
from tarry.store.memory.store import MemoryStore
from tarry.store.rules import ids
from tests.keeper.ticking import NOON, NOTHING_KEPT, WANTS, TickingHost, shop


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(NOON + 30 * SECOND)


@pytest.fixture
def store(clock: FakeClock) -> MemoryStore:
    return MemoryStore(clock.now)


def detail(one: TickingHost) -> list[ScheduledRunRecord]:
    return schedule_detail(one.store, one.schedule(), one.clock.now()).runs


def claim(one: TickingHost) -> Job:
    (job,) = one.store.claim(WANTS, 1000, "here|1", HOUR, one.clock.now())
    return job


def end(one: TickingHost, job: Job, outcome: Outcome | None = None, rules: Rules = NOTHING_KEPT) -> None:
    change = lifecycle.after(job, outcome or Returned(), rules, one.clock.now())
    assert one.store.apply([change], one.clock.now()) == [True]


def tick_minute(one: TickingHost, minutes: int = 1) -> None:
    for _ in range(minutes):
        one.clock.advance(30)
        one.tick()
        one.clock.advance(30)
        one.tick()


def test_a_new_schedule_has_none(store: MemoryStore, clock: FakeClock) -> None:
    one = TickingHost(store, clock, shop(cron="* * * * *"))
    assert detail(one) == []
    one.tick()
    assert detail(one) == []


def test_from_the_tick_to_the_end(store: MemoryStore, clock: FakeClock) -> None:
    one = TickingHost(store, clock, shop(cron="* * * * *"))
    one.tick()
    clock.advance(30)
    one.tick()
    (run,) = detail(one)
    (job,) = one.jobs()
    at = (NOON + MINUTE) / SECOND
    assert run == ScheduledRunRecord(at, "ready", ids.text(job.id), True, None, None, None, None, 1)
    clock.advance(2)
    claimed = claim(one)
    (run,) = detail(one)
    assert (run.state, run.delay, run.started, run.ended, run.duration) == (
        "running", 2.0, clock.now() / SECOND, None, None,
    )  # fmt: skip
    clock.advance(5)
    end(one, claimed)
    (run,) = detail(one)
    assert (run.state, run.delay, run.ended, run.duration) == ("done", 2.0, clock.now() / SECOND, 5.0)


def test_failed_attempts_and_the_pauses_between_them_are_in_the_duration(store: MemoryStore, clock: FakeClock) -> None:
    one = TickingHost(store, clock, shop(cron="@hourly"))
    one.tick()
    clock.advance(3570)
    one.tick()
    clock.advance(1)
    rules = Rules(Retry(1, base=60, jitter=0.0))
    end(one, claim(one), Raised(b"{}"), rules)
    clock.advance(100)
    last = claim(one)
    clock.advance(9)
    end(one, last, Raised(b"{}"), rules)
    (run,) = detail(one)
    assert (run.state, run.delay, run.duration) == ("dead", 1.0, 109.0)


def test_the_end_is_known_after_the_job_is_gone(store: MemoryStore, clock: FakeClock) -> None:
    one = TickingHost(store, clock, shop(cron="@daily"))
    one.tick()
    clock.advance(12 * 3600 - 30)
    one.tick()
    clock.advance(1)
    job = claim(one)
    clock.advance(2)
    end(one, job)
    for _ in range(6):
        clock.advance(one.tick())
        one.prune()
    assert one.jobs() == []
    (first,) = detail(one)
    assert (first.state, first.kept, first.delay, first.duration) == ("done", False, 1.0, 2.0)
    assert first.job == ids.text(job.id)


def test_an_end_that_nobody_saw_is_not_made_up(store: MemoryStore, clock: FakeClock) -> None:
    one = TickingHost(store, clock, shop(cron="@daily"))
    one.tick()
    clock.advance(12 * 3600 - 30)
    one.tick()
    one.work()
    clock.advance(3601)
    one.prune()
    assert one.jobs() == []
    (run,) = detail(one)
    assert (run.state, run.kept, run.delay, run.duration) == ("gone", False, None, None)


def test_a_job_that_is_tried_again_after_its_end_shows_how_it_is_now(store: MemoryStore, clock: FakeClock) -> None:
    one = TickingHost(store, clock, shop(cron="@daily"))
    one.tick()
    clock.advance(12 * 3600 - 30)
    one.tick()
    end(one, claim(one), Raised(b"{}"), Rules())
    clock.advance(1800)
    one.tick()
    assert [run.end for run in one.state().runs] == ["dead"]
    (job,) = one.jobs()
    assert store.apply([lifecycle.run_now(job, clock.now())], clock.now()) == [True]
    assert [run.state for run in detail(one)] == ["ready"]


def test_the_newest_twenty_are_kept(store: MemoryStore, clock: FakeClock) -> None:
    one = TickingHost(store, clock, shop(cron="* * * * *"))
    one.tick()
    tick_minute(one, 25)
    assert [(run.tick - NOON) // MINUTE for run in one.state().runs] == list(range(6, 26))
    assert len(detail(one)) == MOST_RUNS


def test_ticks_that_were_left_out_are_told_beside_the_run_that_made_up_for_them(
    store: MemoryStore, clock: FakeClock
) -> None:
    TickingHost(store, clock, shop(cron="@hourly")).tick()
    clock.advance(10 * 3600 + 60)
    one = TickingHost(store, clock, shop(cron="@hourly"))
    one.tick()
    missed, made_up = detail(one)
    assert (missed.state, missed.ticks, missed.tick, missed.job) == ("left_out", 9, NOON / SECOND + 9 * 3600, None)
    assert (made_up.state, made_up.ticks, made_up.delay) == ("ready", 1, None)


@pytest.mark.parametrize(("missed", "told"), [("skip", [("left_out", 3)]), ("all", [("ready", 1)] * 3)])
def test_what_is_skipped_is_told_and_what_is_made_up_for_is_a_run(
    store: MemoryStore, clock: FakeClock, missed: str, told: list[tuple[str, int]]
) -> None:
    TickingHost(store, clock, shop(cron="@hourly", missed=missed)).tick()
    clock.advance(3 * 3600 + 120)
    one = TickingHost(store, clock, shop(cron="@hourly", missed=missed))
    one.tick()
    assert [(run.state, run.ticks) for run in detail(one)] == told


def test_a_call_that_cannot_be_enqueued_is_told(store: MemoryStore, clock: FakeClock) -> None:
    one = TickingHost(store, clock, shop(cron=Cron("* * * * *", args=("x" * 100,))))
    one.client.factory.largest = 50
    one.tick()
    clock.advance(30)
    one.tick()
    (run,) = detail(one)
    assert (run.state, run.job, run.kept) == ("refused", None, False)


class Counting(MemoryStore):
    """Counts what schedules ask for."""

    def __init__(self, now: Any) -> None:
        super().__init__(now)
        self.calls: Counter[str] = Counter()

    def insert(self, jobs: Sequence[Job]) -> list[bytes]:
        self.calls["insert"] += 1
        return super().insert(jobs)

    def get(self, ids: Sequence[bytes]) -> list[Job | None]:
        self.calls["get"] += 1
        return super().get(ids)

    def kv_list(self, prefix: str) -> dict[str, bytes]:
        # A producer reads the bounds of queues every few seconds of the real clock.
        if not prefix.startswith(BOUNDS):
            self.calls["kv_list"] += 1
        return super().kv_list(prefix)

    def kv_cas(self, name: str, value: bytes | None, was: bytes | None) -> bool:
        self.calls["kv_cas"] += 1
        return super().kv_cas(name, value, was)


def test_a_tick_takes_no_call_more_than_without_runs(clock: FakeClock) -> None:
    store = Counting(clock.now)
    one = TickingHost(store, clock, shop(cron="* * * * *"))
    one.tick()
    store.calls.clear()
    tick_minute(one, 20)
    assert store.calls == {"kv_list": 20, "insert": 20, "kv_cas": 20}
    clock.advance(11 * 60)
    one.tick()
    assert store.calls["get"] == 1, "how all of them ended is one call in half an hour"


def test_two_hosts_write_an_end_once(clock: FakeClock) -> None:
    store = Counting(clock.now)
    one, other = (TickingHost(store, clock, shop(cron="@daily")) for _ in range(2))
    for each in (one, other):
        each.tick()
    clock.advance(12 * 3600 - 30)
    for each in (one, other):
        each.tick()
    one.work()
    store.calls.clear()
    clock.advance(1800)
    for each in (one, other):
        each.tick()
    assert (store.calls["get"], store.calls["kv_cas"]) == (1, 1)
    assert one.state().runs[0].end == "done"


def test_jobs_that_cannot_be_read_stop_no_tick_and_are_read_later(clock: FakeClock) -> None:
    class Away(MemoryStore):
        away = False

        def get(self, ids: Sequence[bytes]) -> list[Job | None]:
            if self.away:
                raise StoreAway("away")
            return super().get(ids)

    store = Away(clock.now)
    one = TickingHost(store, clock, shop(cron="0,30 * * * *"))
    one.tick()
    clock.advance(1770)
    one.tick()
    one.work()
    store.away = True
    clock.advance(1800)
    one.tick()
    assert [run.end for run in one.state().runs] == ["", ""]
    store.away = False
    clock.advance(1799)
    one.tick()
    clock.advance(1)
    one.tick()
    assert one.state().runs[0].end == "done"


def test_a_pause_and_a_changed_rule_lose_none(store: MemoryStore, clock: FakeClock) -> None:
    one = TickingHost(store, clock, shop(cron="* * * * *"))
    one.tick()
    tick_minute(one, 2)
    schedule_state.pause(store, one.schedule(), clock.now())
    schedule_state.resume(store, one.schedule(), clock.now())
    changed = TickingHost(store, clock, shop(cron="*/2 * * * *"))
    changed.tick()
    tick_minute(changed, 2)
    assert [(run.tick - NOON) // MINUTE for run in changed.state().runs] == [1, 2, 4]


GOOD = {"rule": "* * * * * UTC", "after": NOON, "seen": NOON, "last": NOON}


@pytest.mark.parametrize(
    ("runs", "kept"),
    [
        (None, 0),  # as an earlier tarry wrote it
        ([], 0),
        ([[NOON]], 1),
        ([[NOON, "x" * 32, "done", 1, 2, 1, "more", {}]], 1),  # as a later one may
        ([[NOON, "no id"]], 1),
        ([[NOON, "\u0000" * 36, "running"]], 1),
        ("runs", 0),
        ([[-1]], 0),
        ([[2**63]], 0),
        ([["noon"]], 0),
        ([[NOON, "x" * 37]], 0),
        ([[NOON, "", "x" * 99]], 0),
        ([[NOON, None]], 0),
        ([[NOON, "", "", 0, 0, -5]], 0),
        ([[NOON]] * 150, 20),
        ([[NOON]] * 201, 0),
    ],
)
def test_what_others_wrote_there_stops_nothing(store: MemoryStore, clock: FakeClock, runs: Any, kept: int) -> None:
    one = TickingHost(store, clock, shop(cron="* * * * *"))
    written = GOOD | ({} if runs is None else {"runs": runs})
    assert store.kv_cas("cron:report", msgspec.json.encode(written), None)
    assert len(one.state().runs) == len(detail(one)) == kept
    one.tick()
    clock.advance(30)
    one.tick()
    assert one.dues() == [60], "the rest of the state is as it was"
    assert [run.tick for run in one.state().runs][-1] == NOON + MINUTE


@pytest.mark.parametrize(
    "cell", [b"", b"no json", b"[]", b"{}", b'"\xff"', b"[" * 100_000, b'{"rule": "x", "after": -1, "seen": 0}']
)
def test_a_state_that_cannot_be_read_is_as_one_that_has_just_changed(
    store: MemoryStore, clock: FakeClock, cell: bytes
) -> None:
    one = TickingHost(store, clock, shop(cron=["* * * * *", Cron("* * * * *", name="other")]))
    one.tick()
    assert store.kv_cas("cron:report", cell, store.kv_get("cron:report"))
    clock.advance(30)
    one.tick()
    assert one.dues() == [60, 60]
    assert one.state().after == NOON + MINUTE
    assert [run.state for run in detail(one)] == ["ready"]


def test_an_older_tarry_reads_a_state_with_runs() -> None:
    class Old(msgspec.Struct):
        rule: str
        after: int
        seen: int
        last: int = 0
        paused: bool = False

    written = msgspec.json.encode(ScheduleState("r", 1, 2, runs=[ScheduledRun(NOON, "x" * 36, "done")]))
    assert msgspec.json.decode(written, type=Old).after == 1
    assert b"runs" not in msgspec.json.encode(ScheduleState("r", 1, 2))
