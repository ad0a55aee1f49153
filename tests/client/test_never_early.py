"""Never early, also where the store answers slowly: nobody knows then how late it is at the store."""

from collections.abc import Iterator

import pytest

from tarry.client import clock
from tarry.client.client import Client
from tarry.client.clock import Clock
from tarry.keeper.chores import Keeper
from tarry.model import lifecycle
from tarry.model.duration import SECOND
from tarry.model.job import Job
from tarry.model.lifecycle import Rules
from tarry.model.outcome import Lost, Outcome, Quarantined, Raised, Released, Snoozed, Unknown, outcome_note
from tarry.model.retry import Retry
from tarry.store.memory.store import MemoryStore
from tarry.store.rules.base import NORMAL, Store, Want
from tarry.tasks.arguments.options import Options
from tarry.worker.pump import Pump

START, LEASE = 1_800_000_000 * SECOND, 30 * SECOND
AHEAD = START
"""How far the store's clock is ahead of the monotonic one of the processes."""
HERE = 9000
"""Microseconds that an answer is under way."""
FAILED = Raised(outcome_note("ValueError", "no"), ("ValueError",))
RULES = Rules(retry=Retry(5, base=10))


class Time:
    """Stands in for the module `time`, where clocks read it; goes on while the store is asked."""

    CLOCK_BOOTTIME = CLOCK_MONOTONIC = 0

    def __init__(self) -> None:
        self.us = SECOND

    def monotonic_ns(self) -> int:
        return self.us * 1000

    def time_ns(self) -> int:
        return self.us * 1000

    def clock_gettime_ns(self, which: int) -> int:
        return self.us * 1000

    def store(self) -> int:
        """What the store answers: it is that late there, and the answer takes a while."""
        told = self.us + AHEAD
        self.us += HERE
        return told


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    time = Time()
    monkeypatch.setattr(clock, "time", time)
    return time


@pytest.fixture
def store(time: Time) -> MemoryStore:
    return MemoryStore(time.store)


@pytest.fixture
def pump(time: Time, store: MemoryStore) -> Iterator[Pump]:
    pump = Pump(store, {}, owner="ann", clock=Clock(time.store), rules=lambda task, queue: RULES)
    yield pump
    pump.wakeup.close()


@pytest.mark.parametrize("delay", [0.001, 60.0])
def test_a_delay_counts_from_when_it_was_said(time: Time, store: MemoryStore, delay: float) -> None:
    client = Client(store, {}, clock=Clock(time.store))
    client.clock.now()
    time.us += SECOND
    job = client.make_job("mail", b"[]", Options(delay=delay))
    assert job.due >= time.us + AHEAD + delay * SECOND


def test_what_has_no_delay_is_due_at_once(time: Time, store: MemoryStore) -> None:
    job = Client(store, {}, clock=Clock(time.store)).make_job("mail", b"[]", Options(delay=0))
    assert job.due <= time.us + AHEAD
    assert job.state == lifecycle.initial_state(job.due, job.due)


OUTCOMES: list[tuple[Outcome, int]] = [
    (FAILED, 10 * SECOND), (Raised(outcome_note("E", ""), ("E",), False, 3 * SECOND), 3 * SECOND),
    (Snoozed(SECOND), SECOND), (Quarantined(), SECOND), (Unknown(), SECOND),
]  # fmt: skip


@pytest.mark.parametrize(("outcome", "delay"), OUTCOMES)
def test_a_pause_lasts_from_the_end_of_the_attempt(time: Time, pump: Pump, outcome: Outcome, delay: int) -> None:
    job = running(pump.store, pump._clock.now())
    change = pump._exchanger.decide(job, outcome, pump._clock.now())
    assert change.due is not None
    assert change.due >= time.us + AHEAD + delay


def test_what_goes_back_as_it_was_is_due_as_it_was(pump: Pump) -> None:
    job = running(pump.store, pump._clock.now())
    assert pump._exchanger.decide(job, Released(), pump._clock.now()).due == job.due


def test_a_keeper_lets_the_second_death_wait_for_long_enough(time: Time, store: MemoryStore) -> None:
    own = Clock(time.store)
    job = running(store, own.now(), crashes=1)
    Keeper(store, clock=own).rescue("ann", on=[job.id.hex()])
    (after,) = store.get([job.id])
    assert after is not None
    plain = lifecycle.after(job, Lost(on=True), RULES, 0).due
    assert plain is not None
    assert after.due >= time.us + AHEAD + plain


def running(store: Store, now: int, crashes: int = 0) -> Job:
    job = Job(store.new_id("mail"), "mail", b"[]", due=now, state_since=now, crashes=crashes)
    store.insert([job])
    (claimed,) = store.claim([Want("default", NORMAL, 1)], 1, "ann", LEASE, now)
    return claimed
