"""Time is the store's: no verb looks at the clock of the process that calls it."""

import time
from typing import Any

import pytest
from msgspec.structs import replace

from tarry.model import lifecycle
from tarry.model.duration import HOUR, MINUTE, SECOND
from tarry.model.job import HELD, Job
from tarry.model.lifecycle import DEFAULT
from tarry.model.limit import Limit
from tarry.model.outcome import Returned, Snoozed
from tarry.store.conformance.cases.jobs import EVERYTHING, LEASE, PLENTY, Promises, ids, made, seen, taken
from tarry.store.rules import ids as new_ids
from tarry.store.rules.base import Backlog, Store

LATER = 5 * MINUTE


class Timing(Promises):
    """Each verb that takes a time, in a process whose clock is an hour off."""

    @pytest.fixture(params=[-HOUR, HOUR], ids=["behind", "ahead"])
    def now(self, store: Store, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
        """The store's time. From here on the clock of this process is an hour off."""
        moment, real = store.time(), time.time_ns
        for state in ("_last_ms", "_last_tail"):
            # Ids never go back in time: those made an hour ahead must not be the start for the ids of later tests.
            monkeypatch.setattr(new_ids, state, getattr(new_ids, state))
        # The clocks are off only from here on, after the store's time was read.
        monkeypatch.setattr(time, "time_ns", lambda: real() + request.param * 1000)
        monkeypatch.setattr(time, "time", lambda: (real() + request.param * 1000) / 1e9)
        return moment

    def jobs(self, store: Store, now: int, count: int = 1, **fields: Any) -> list[Job]:
        """New jobs, inserted; due now unless `due` is given."""
        start = replace(made(store, **fields)[0], state_since=now, due=int(fields.get("due", now)))
        start = replace(start, state=lifecycle.initial_state(start.due, now))
        jobs = [replace(start, id=store.new_id(start.task, start.key)) for _ in range(count)]
        assert store.insert(jobs) == ids(jobs)
        return jobs

    def test_its_own_clock(self, store: Store, now: int) -> None:
        """`time()` is the clock of the server, if there is one."""
        if self.own_clock:
            assert abs(store.time() - now) < MINUTE

    def test_due_by_the_stores_clock(self, store: Store, now: int) -> None:
        """A claim, `next_due` and `backlog`: what is ready, what is due, and nothing early."""
        ready, late = self.jobs(store, now), self.jobs(store, now, due=now + LATER)
        assert store.next_due() == now + LATER
        assert store.backlog(None, now, 10) == Backlog(1, now)
        assert ids(taken(store, now=now)) == ids(ready)
        assert taken(store, now=now + LATER - 1) == []
        assert store.backlog(None, now + LATER, 10) == Backlog(1, now + LATER)
        (job,) = taken(store, now=now + LATER)
        assert (job.id, job.state_since) == (late[0].id, now + LATER)

    def test_an_exchange_goes_by_it(self, store: Store, now: int) -> None:
        """Also for a job that comes back later."""
        self.jobs(store, now)
        (job,) = taken(store, now=now)
        back = lifecycle.after(job, Snoozed(LATER), DEFAULT, now)
        answer = store.exchange([back], EVERYTHING, 10, "ann", LEASE, now + 1)
        assert (answer.valid, answer.jobs, answer.next_due) == ([True], [], now + LATER)
        assert seen(store, job).due == now + LATER
        assert len(store.exchange((), EVERYTHING, 10, "ann", LEASE, now + LATER).jobs) == 1

    def test_leases_run_by_it(self, store: Store, now: int) -> None:
        """Of claims, extensions and holds."""
        self.jobs(store, now)
        (job,) = taken(store, now=now)
        assert store.reclaim(now + LEASE // 2 - 1) == []
        assert ids(store.reclaim(now + LEASE)) == [job.id]
        assert store.extend("ann", [(job.id, job.epoch)], LEASE, now + LEASE) == []
        assert store.reclaim(now + LEASE + LEASE // 2 - 1) == []
        assert ids(store.reclaim(now + 2 * LEASE)) == [job.id]
        assert store.hold("chore", "ann", now + SECOND, now)
        assert not store.hold("chore", "bob", now + LATER, now + SECOND - 1)
        assert store.hold("chore", "bob", now + LATER, now + SECOND)

    def test_keys_are_held_by_it(self, store: Store, now: int) -> None:
        """From one enqueue to the next, and through a change that takes one."""
        (first,) = self.jobs(store, now, key="k", key_ttl=LATER, key_held_until=HELD)
        (job,) = taken(store, now=now)
        assert store.apply([lifecycle.after(job, Returned(), DEFAULT, now)], now) == [True]
        (second,) = made(store, key="k")
        assert store.insert([replace(second, state_since=now + LATER - 1)]) == [first.id]
        (other,) = made(store, key="k", task="other")
        assert store.insert([replace(other, state_since=now)]) == [other.id]
        assert store.insert([replace(second, state_since=now + LATER)]) == [second.id]

    def test_finished_jobs_are_kept_by_it(self, store: Store, now: int) -> None:
        """`expiring` and `prune`."""
        self.jobs(store, now)
        (job,) = taken(store, now=now)
        assert store.apply([lifecycle.after(job, Returned(), DEFAULT, now)], now) == [True]
        assert ids(store.expiring(now + HOUR, now + HOUR + 1, 10)) == [job.id]
        assert store.prune(now + HOUR - 1, PLENTY) == 0
        assert store.prune(now + HOUR, PLENTY) == 1

    def test_rates_count_by_it(self, store: Store, now: int) -> None:
        """One in five minutes."""
        store.limit("queue:default", Limit(count=1, period=LATER))
        jobs = [replace(made(store)[0], id=id, due=now, state_since=now) for id in self.together(store, 2)]
        store.insert(jobs)
        assert len(taken(store, now=now)) == 1
        answer = store.exchange((), EVERYTHING, 10, "ann", LEASE, now + LATER - 1)
        assert answer.jobs == []
        assert answer.next_due is not None
        assert now + LATER - 1 <= answer.next_due <= now + LATER * self.shards
        assert len(taken(store, now=answer.next_due)) == 1
