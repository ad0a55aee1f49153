"""Late jobs and jobs on time take turns, so that many jobs that fall due at once do not delay the others."""

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from tarry.model import lifecycle
from tarry.model.duration import SECOND
from tarry.model.job import Job
from tarry.model.limit import Limit
from tarry.model.outcome import Released, Snoozed
from tarry.store.conformance.cases.jobs import LEASE, NOW, Promises, ids, made, outcomes, put, running, settle, taken
from tarry.store.rules.base import HIGH, NORMAL, PROMOTED_AT_ONCE, Backlog, Store, Want

LATER = NOW + 9 * SECOND


class Lateness(Promises):
    """Late jobs and those on time, in turn."""

    def lined(self, store: Store, count: int, **fields: Any) -> list[Job]:
        """New jobs of one shard, each due a microsecond after the one before."""
        jobs = made(store, count, **fields)
        # A lane is on one shard anyway.
        at = ids(jobs) if "lane" in fields else self.together(store, count)
        dues = [NOW - count + number for number in range(count)]
        return [replace(job, id=id, due=due, state_since=due) for job, id, due in zip(jobs, at, dues, strict=True)]

    def both(self, store: Store, count: int, **fields: Any) -> tuple[list[Job], list[Job]]:
        """`count` late jobs, and as many on time that came after them; inserted from the last to the first."""
        lined = self.lined(store, 2 * count, **fields)
        late = [replace(job, state_since=NOW) for job in lined[:count]]
        on_time = lined[count:]
        store.insert((late + on_time)[::-1])
        return late, on_time

    @pytest.mark.parametrize("priority", [0, 3, -3])
    @pytest.mark.parametrize("limited", [False, True])
    def test_each_gives_half(self, store: Store, priority: int, limited: bool) -> None:
        """The earliest of both, however much later the jobs on time came; also if there are limits. Of several stores
        one may be asked twice, each time for an odd number, whose halves differ by one."""
        if limited:
            store.limit("queue:default", Limit(10**6))
        late, on_time = self.both(store, 100, priority=priority)
        count = 12 * self.shards
        given = set(ids(taken(store, limit=count)))
        half = len(given & set(ids(late)))
        assert abs(half - count // 2) <= (self.shards > 1)
        assert given == set(ids(late[:half] + on_time[: count - half]))
        assert sorted(ids(taken(store))) == sorted(ids(late[half:] + on_time[count - half :]))

    def test_a_job_at_a_time_is_fair_too(self, store: Store) -> None:
        """A worker that claims one job at a time gets some of both, and of each kind the earliest first."""
        late, on_time = self.both(store, 64)
        given = [id for _ in range(64) for id in ids(taken(store, limit=1))]
        first, second = ([id for id in given if id in set(ids(jobs))] for jobs in (late, on_time))
        assert first == ids(late[: len(first)])
        assert second == ids(on_time[: len(second)])
        # Each of 64 claims is a draw: a fair one gives fewer of a kind once in ten million runs.
        assert min(len(first), len(second)) > 9

    def test_what_the_one_lacks_the_other_fills(self, store: Store) -> None:
        """No place stays empty while there is a job."""
        self.both(store, 10)
        assert len(taken(store, limit=14)) == 14
        extra = self.lined(store, 9)
        store.insert([replace(job, state_since=NOW) for job in extra])
        rest = taken(store, limit=14)
        assert len(rest) == 14
        assert len(taken(store)) == 1

    def test_priority_is_before_lateness(self, store: Store) -> None:
        """A higher priority goes first, late or not."""
        lined = self.lined(store, 8)
        late = [replace(job, state_since=NOW, priority=1) for job in lined[:4]]
        on_time = [replace(job, priority=5) for job in lined[4:]]
        store.insert(late + on_time)
        assert ids(taken(store, limit=4)) == ids(on_time)
        assert ids(taken(store, limit=4)) == ids(late)

    @pytest.mark.parametrize("priority", [0, 2])
    def test_many_due_at_once_hold_up_nobody(self, store: Store, priority: int) -> None:
        """More jobs than a claim makes ready fell due seconds ago: a job that comes now gets its turn at once."""
        store.insert(made(store, PROMOTED_AT_ONCE + 200, due=NOW + 1, priority=priority))
        now = [replace(job, due=LATER, state_since=LATER) for job in made(store, 3, priority=priority)]
        store.insert(now)
        given = taken(store, limit=10 * self.shards, now=LATER)
        assert set(ids(now)) <= set(ids(given))
        assert len(given) == 10 * self.shards

    def test_many_due_at_once_in_lanes_hold_up_nobody(self, store: Store) -> None:
        """Neither a job without a lane nor one of another task, under a limit, waits for them."""
        store.limit("each:fetch", Limit(10**6))
        for lane in "xyz":
            store.insert(made(store, 100, due=NOW + 1, task="fetch", lane=lane))
        store.limit("task:send", Limit(10**6))
        now = [replace(made(store, task=task)[0], due=LATER, state_since=LATER) for task in ("mail", "send")]
        store.insert(now)
        given = taken(store, limit=12 * self.shards, now=LATER)
        assert set(ids(now)) <= set(ids(given))

    def test_within_a_lane_it_goes_by_due(self, store: Store) -> None:
        """Jobs of one key do not overtake each other because they are late."""
        store.limit("each:mail", Limit(10**6))
        late, on_time = self.both(store, 6, lane="x")
        assert ids(taken(store, limit=5)) == ids(late[:5])
        assert ids(taken(store, limit=3)) == ids([late[5], *on_time[:2]])

    def test_given_back_is_late(self, store: Store) -> None:
        """A job that was given back, or is tried again, takes turns with jobs on time, and can be changed as usual."""
        jobs = running(store, 6)
        assert outcomes(store, jobs[:3], Released(), now=LATER) == [True] * 3
        for job in jobs[3:]:
            settle(store, job, Snoozed(0), now=LATER)
        late = [job for job in store.get(ids(jobs)) if job is not None]
        assert [lifecycle.is_late(job.due, job.state_since) for job in late[:3]] == [True] * 3
        fresh = [replace(job, due=LATER, state_since=LATER) for job in made(store, 6)]
        store.insert(fresh)
        assert store.backlog(None, LATER, 100).count == 12
        assert store.backlog(["default"], LATER, 100) == Backlog(12, min(job.due for job in late))
        changes = [lifecycle.forget(late[0]), lifecycle.move(late[1], LATER, priority=2)]
        assert store.apply(changes, LATER) == [True, True]
        assert ids(store.claim([Want("default", HIGH, 9)], 9, "ann", LEASE, LATER)) == [late[1].id]
        rest = taken(store, now=LATER)
        assert sorted(ids(rest)) == sorted(ids(late[2:] + fresh))

    def test_late_ones_alone_make_a_queue(self, store: Store) -> None:
        """A queue with only late jobs is listed and counted."""
        (job,) = put(store, due=NOW - 5, queue="slow")
        assert store.queues() == {"slow": False}
        assert store.backlog(["slow"], NOW, 5) == Backlog(1, NOW - 5)
        assert ids(store.claim([Want("slow", NORMAL, 1)], 1, "ann", LEASE, NOW)) == [job.id]
        assert store.queues() == {}

    def test_two_claims_in_one_share_the_turns(self, store: Store) -> None:
        """First each want's count, then the rest: no job twice, and none left."""
        late, on_time = self.both(store, 20)
        wants: Sequence[Want] = [Want("default", NORMAL, 7)]
        given = store.claim(wants, 40, "ann", LEASE, NOW)
        assert sorted(ids(given)) == sorted(ids(late + on_time))
