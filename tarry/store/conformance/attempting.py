"""The record of a job's attempts."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from tarry.model import lifecycle
from tarry.model.attempts import KEPT_FROM_START, MOST_KEPT, attempts_of
from tarry.model.change import Change
from tarry.model.duration import MINUTE, SECOND
from tarry.model.job import HELD, Job, State
from tarry.model.lifecycle import DEFAULT
from tarry.model.outcome import (
    Cancelled,
    Expired,
    Lost,
    Outcome,
    Released,
    Returned,
    Snoozed,
    TimedOut,
    Unknown,
    Unread,
)
from tarry.store.conformance.cases.jobs import FAILED, NOW, RETRY, Promises, made, put, running, seen, settle, taken
from tarry.store.rules.base import Store

OUTCOMES: list[tuple[Outcome, str]] = [
    (FAILED, "failed"),
    (TimedOut(b'{"type":"TimedOut","message":"slow"}'), "timeout"),
    (Lost(on=True), "lost"),
    (Lost(), "lease_lost"),
    (Released(), "interrupted"),
    (Snoozed(SECOND), "snoozed"),
    (Cancelled("no"), "cancelled"),
    (Expired(), "expired"),
    (Unknown(), "unknown_task"),
    (Unknown("3f2a91c0"), "no_key"),
    (Unread("file:///srv/tarry cannot be read"), "payload_away"),
]
ACTS: list[tuple[Callable[[Job], Change], str]] = [
    (lambda job: lifecycle.cancel(job, DEFAULT, NOW), "cancelled"),
    (lambda job: lifecycle.give_back(job, NOW), "given_back"),
    (lambda job: lifecycle.bury(job, DEFAULT, NOW), "buried"),
]


class Attempting(Promises):
    """The record of a job's attempts: kept as long as the job."""

    @pytest.mark.parametrize(("outcome", "name"), OUTCOMES)
    @pytest.mark.parametrize("count", [1, 6])
    def test_every_other_end_is_recorded(self, store: Store, outcome: Outcome, name: str, count: int) -> None:
        """An attempt that ends in another way than with a result is kept, with its worker, its times and its end."""
        jobs = running(store, count, owner="here|1:2:3:1")
        changes = [lifecycle.after(job, outcome, RETRY, NOW + SECOND) for job in jobs]
        assert store.apply(changes, NOW + SECOND) == [True] * count
        for job in jobs:
            (one,) = attempts_of(seen(store, job)).attempts
            assert (one.number, one.epoch, one.outcome, one.owner, one.host) == (1, 1, name, "here|1:2:3:1", "here")
            assert (one.started, one.ended) == (job.state_since, NOW + SECOND)

    @pytest.mark.parametrize(("act", "name"), ACTS)
    def test_what_others_end_is_recorded(self, store: Store, act: Callable[[Job], Change], name: str) -> None:
        """So is one that a person, or the program that took it, ends."""
        (job,) = running(store)
        assert store.apply([act(job)], NOW) == [True]
        assert [one.outcome for one in attempts_of(seen(store, job)).attempts] == [name]

    def test_a_result_at_once_is_not_recorded(self, store: Store) -> None:
        """Of a job that is done at its first attempt, only that it is and since when."""
        (job,) = running(store)
        done = settle(store, job, Returned(), now=NOW + SECOND)
        assert done.attempts == b""
        (one,) = attempts_of(done).attempts
        assert (one.number, one.started, one.ended, one.outcome, one.owner) == (1, 0, NOW + SECOND, "done", "")

    def test_a_record_from_the_start_has_that_one_too(self, store: Store) -> None:
        """Unless it had a record from the start, as jobs of schedules have: then with its start and its worker."""
        jobs = put(store, 3, attempts=KEPT_FROM_START)
        put(store)
        claimed = {job.id: job for job in taken(store, owner="here|1:2:3:1")}
        assert [claimed[job.id].attempts for job in jobs] == [KEPT_FROM_START] * 3
        ends = [lifecycle.after(job, Returned(), DEFAULT, NOW + SECOND) for job in claimed.values()]
        assert store.apply(ends, NOW + SECOND) == [True] * 4
        for job in jobs:
            (one,) = attempts_of(seen(store, job)).attempts
            assert (one.started, one.ended, one.outcome) == (claimed[job.id].state_since, NOW + SECOND, "done")
            assert one.owner == "here|1:2:3:1"

    def test_a_result_after_failures_is_recorded(self, store: Store) -> None:
        """With all that came before; in another worker's hands, and by one call of many."""
        jobs = running(store, 6, owner="here|1:2:3:1")
        back = [settle(store, job, FAILED, RETRY) for job in jobs]
        assert {job.state for job in back} == {State.SCHEDULED}
        later = max(job.due for job in back)
        claimed = taken(store, owner="there|1:2:3:1", now=later)
        assert [job.attempts for job in sorted(claimed, key=lambda job: job.id)] == [job.attempts for job in back]
        ends = [lifecycle.after(job, Returned(), DEFAULT, later + 1) for job in claimed]
        assert store.apply(ends, later + 1) == [True] * 6
        for job in jobs:
            ended = attempts_of(seen(store, job))
            assert [(one.number, one.epoch, one.outcome, one.host) for one in ended.attempts] == [
                (1, 1, "failed", "here"),
                (2, 2, "done", "there"),
            ]
            assert ended.attempts[0].error == "ValueError: no"
            assert (ended.attempts[1].started, ended.attempts[1].ended) == (later, later + 1)

    def test_the_record_is_bounded(self, store: Store) -> None:
        """The newest are kept, and how many were before them."""
        put(store)
        for number in range(MOST_KEPT + 3):
            # Not one right after the other: such a job would pause.
            now = NOW + number * MINUTE
            (job,) = taken(store, now=now)
            back = settle(store, job, Released(), now=now)
        kept = attempts_of(back)
        assert (len(kept.attempts), kept.left_out) == (MOST_KEPT, 3)
        assert [one.epoch for one in kept.attempts] == list(range(4, MOST_KEPT + 4))

    def test_it_survives_a_retry_by_hand(self, store: Store) -> None:
        """And a cancel of the job while it waits, which is no attempt."""
        (job,) = running(store)
        dead = settle(store, job, FAILED)
        assert store.apply([lifecycle.run_now(dead, NOW)], NOW) == [True]
        ready = seen(store, job)
        assert store.apply([lifecycle.cancel(ready, DEFAULT, NOW)], NOW) == [True]
        assert seen(store, job).attempts == ready.attempts == dead.attempts != b""

    def test_it_comes_with_the_job(self, store: Store) -> None:
        """An insert stores it, as of a job that comes from another store; with a key, too. It counts as bytes."""
        (job,) = running(store)
        record = settle(store, job, FAILED).attempts
        plain, keyed = made(store, attempts=record)[0], made(store, key="k", key_held_until=HELD, attempts=record)[0]
        for one in (plain, keyed):
            assert store.insert([one]) == [one.id]
            assert seen(store, one) == one
        sizes = {tally.state: tally.bytes for tally in store.counts()}
        assert sizes[State.READY] == plain.size + keyed.size

    def test_a_change_that_says_nothing_keeps_it(self, store: Store) -> None:
        """None leaves the record, and bytes replace it."""
        (job,) = running(store)
        back = settle(store, job, FAILED, RETRY)
        moved = lifecycle.move(back, NOW, due=NOW)
        assert store.apply([moved], NOW) == [True]
        ready = seen(store, job)
        assert ready.attempts == back.attempts
        assert store.apply([replace(lifecycle.move(ready, NOW, priority=1), attempts=b"")], NOW) == [True]
        assert seen(store, job).attempts == b""
