"""Cancels that the worker cannot hear, as its host's keeper sees them."""

import pytest

from tarry.client.clock import FakeClock
from tarry.errors import PartlyUnavailable, StoreUnavailable
from tarry.keeper.cancel_enforcer import AttemptKey, CancelEnforcer
from tarry.model import lifecycle
from tarry.model.duration import SECOND
from tarry.model.job import Job
from tarry.model.killing import CANCELLED
from tarry.store.memory.store import MemoryStore
from tarry.store.rules import ids
from tarry.store.rules.base import BANDS, Store, Want


class Seen:
    """What is on in silent workers, and what was to be ended."""

    def __init__(self) -> None:
        self.on: dict[str, list[AttemptKey]] = {}
        self.ended: list[tuple[str, AttemptKey]] = []

        self.reasons: list[int] = []

    def end(self, owner: str, attempt: AttemptKey, reason: int) -> bool:
        self.ended.append((owner, attempt))
        self.reasons.append(reason)
        return True


def running(store: Store, clock: FakeClock) -> Job:
    now = clock.now()
    store.insert([Job(ids.uuid7(), "task", b"[]", due=now, state_since=now)])
    (job,) = store.claim([Want("default", band, 1) for band in BANDS], 1, "me", 30 * SECOND, now)
    return job


def test_only_what_is_no_longer_wanted_is_ended(clock: FakeClock, caplog: pytest.LogCaptureFixture) -> None:
    store, seen = MemoryStore(clock.now), Seen()
    recall = CancelEnforcer(store, lambda: seen.on, seen.end)
    recall.end_unwanted()
    wanted, cancelled = running(store, clock), running(store, clock)
    seen.on = {"me": [(wanted.id, wanted.epoch), (cancelled.id, cancelled.epoch)]}
    recall.end_unwanted()
    assert seen.ended == []
    now = clock.now()
    store.apply([lifecycle.cancel(cancelled, lifecycle.DEFAULT, now)], now)
    recall.end_unwanted()
    recall.end_unwanted()
    assert seen.ended == [("me", (cancelled.id, cancelled.epoch))] * 2
    assert seen.reasons == [CANCELLED] * 2
    assert caplog.text.count("was taken from me, which goes on with it") == 1


def test_an_attempt_that_is_another_workers_by_now_is_unwanted_and_what_is_forgotten_too(clock: FakeClock) -> None:
    store, seen = MemoryStore(clock.now), Seen()
    job = running(store, clock)
    seen.on = {"me": [(job.id, job.epoch - 1), (ids.uuid7(), 1)]}
    CancelEnforcer(store, lambda: seen.on, seen.end).end_unwanted()
    assert len(seen.ended) == 2


def test_the_same_epoch_of_another_worker_is_unwanted(clock: FakeClock) -> None:
    """As after a failover that lost the first claim."""
    store, seen = MemoryStore(clock.now), Seen()
    job = running(store, clock)
    seen.on = {"other": [(job.id, job.epoch)]}
    CancelEnforcer(store, lambda: seen.on, seen.end).end_unwanted()
    assert seen.ended == [("other", (job.id, job.epoch))]


class HalfAway(MemoryStore):
    def get(self, ids: object) -> list[Job | None]:
        raise PartlyUnavailable("one is away", [None], {0: StoreUnavailable("away")})


def test_what_may_be_on_a_store_that_is_away_is_left_alone(clock: FakeClock) -> None:
    seen = Seen()
    seen.on = {"me": [(ids.uuid7(), 1)]}
    CancelEnforcer(HalfAway(clock.now), lambda: seen.on, seen.end).end_unwanted()
    assert seen.ended == []
