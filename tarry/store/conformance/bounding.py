"""Queues with a bound: new jobs are stored as long as there is room for them."""

from collections.abc import Sequence

import pytest

from tarry.errors import QueueFull
from tarry.model import lifecycle
from tarry.model.bound import Bound
from tarry.model.duration import HOUR, SECOND
from tarry.model.job import Job
from tarry.model.lifecycle import DEFAULT
from tarry.model.limit import Limit
from tarry.model.outcome import Released
from tarry.store.conformance.cases.jobs import (
    NOW,
    WAITING,
    Promises,
    ids,
    made,
    outcomes,
    put,
    seen,
    side_by_side,
    taken,
)
from tarry.store.rules.base import Store

LATER = NOW + 60 * SECOND
"""When a store may count again, however long the last count took."""


def waiting(store: Store, queue: str = "default") -> int:
    """How many jobs of the queue wait."""
    return sum(tally.count for tally in store.counts() if tally.queue == queue and tally.state in WAITING)


def stored(answers: Sequence[bytes | QueueFull]) -> list[bytes]:
    """The ids among the answers."""
    return [answer for answer in answers if isinstance(answer, bytes)]


class Bounding(Promises):
    """Bounded queues."""

    def bounds(self, most: int) -> dict[str, Bound]:
        """A bound for the default queue; several stores share it out."""
        return {"default": Bound(most * self.shards)}

    def of_one_shard(self, store: Store, count: int, **fields: object) -> list[Job]:
        """New jobs, not inserted, that all belong to one shard."""
        lane = "" if self.shards > 1 else None
        return made(store, count, lane=lane, **fields)

    def test_the_first_jobs_are_stored_for_which_there_is_room(self, store: Store) -> None:
        """Of one call exactly as many jobs are stored as there is room for, the first ones; the others are refused,
        and the error names the queue and says when to come again."""
        jobs = self.of_one_shard(store, 5)
        answers = store.insert_bounded(jobs, self.bounds(3), NOW)
        assert answers[:3] == ids(jobs)[:3]
        for error in answers[3:]:
            assert isinstance(error, QueueFull)
            assert (error.queue, error.stored) == ("default", False)
            assert error.retry_after >= 1
        assert waiting(store) == 3
        assert [job is not None for job in store.get(ids(jobs))] == [True] * 3 + [False] * 2
        assert stored(store.insert_bounded(self.of_one_shard(store, 1), self.bounds(3), LATER)) == []

    def test_other_queues_are_not_bound(self, store: Store) -> None:
        """Jobs of a queue without a bound are stored beside jobs that are refused, and 0 is no bound."""
        bound, free = self.of_one_shard(store, 3), self.of_one_shard(store, 3, queue="free")
        mixed = [job for pair in zip(bound, free, strict=True) for job in pair]
        answers = store.insert_bounded(mixed, self.bounds(1), NOW)
        assert stored(answers) == [bound[0].id, *ids(free)]
        assert len(stored(store.insert_bounded(self.of_one_shard(store, 3), {"default": Bound(0)}, NOW))) == 3

    def test_scheduled_jobs_wait_too(self, store: Store) -> None:
        """Scheduled jobs count, those that were inserted without a bound as well; those of other queues do not."""
        lane = "" if self.shards > 1 else None
        put(store, 2, due=NOW + HOUR, lane=lane)
        put(store, 2, lane=lane)
        put(store, 9, due=NOW + HOUR, queue="other", lane=lane)
        jobs = self.of_one_shard(store, 3, due=NOW + HOUR)
        assert stored(store.insert_bounded(jobs, self.bounds(6), NOW)) == ids(jobs)[:2]

    @pytest.mark.parametrize("limit", [None, Limit(50)])
    def test_jobs_that_leave_make_room(self, store: Store, limit: Limit | None) -> None:
        """Claimed and deleted jobs make room at the next count, also those of a limited task, in lanes."""
        if limit:
            store.limit("task:mail", limit)
        jobs = self.of_one_shard(store, 4)
        assert stored(store.insert_bounded(jobs, self.bounds(4), NOW)) == ids(jobs)
        assert len(taken(store, 3)) == 3
        more = self.of_one_shard(store, 4)
        assert stored(store.insert_bounded(more, self.bounds(4), LATER)) == ids(more)[:3]

    def test_what_comes_back_counts_and_is_never_refused(self, store: Store) -> None:
        """A job that was given back counts at the next count: then nothing new is taken until there is room again."""
        jobs = self.of_one_shard(store, 2)
        store.insert_bounded(jobs, self.bounds(2), NOW)
        held = taken(store, 2)
        more = self.of_one_shard(store, 2)
        assert stored(store.insert_bounded(more, self.bounds(2), LATER)) == ids(more)
        assert outcomes(store, held, Released(), now=LATER) == [True, True]
        assert waiting(store) == 4
        assert stored(store.insert_bounded(self.of_one_shard(store, 1), self.bounds(2), LATER + HOUR)) == []

    def test_a_repeated_insert_is_one_job(self, store: Store) -> None:
        """Sent again while there is room, the same jobs are stored once."""
        jobs = self.of_one_shard(store, 2)
        for _ in range(2):
            assert store.insert_bounded(jobs, self.bounds(10), NOW) == ids(jobs)
        assert waiting(store) == 2

    def test_keys_and_fields_are_kept(self, store: Store) -> None:
        """As after a plain insert: the job is the same in all fields, and a key that is held answers its holder."""
        job = made(store, key="a", priority=-5, body=b"[1]", headers=b"{}")[0]
        assert store.insert_bounded([job], self.bounds(9), NOW) == [job.id]
        assert seen(store, job) == job
        again = made(store, key="a")[0]
        assert store.insert_bounded([again], self.bounds(9), NOW) == [job.id]

    def test_a_changed_bound_holds_at_once(self, store: Store) -> None:
        """A lower bound refuses at once, a higher one takes at once."""
        store.insert_bounded(self.of_one_shard(store, 4), self.bounds(4), NOW)
        assert stored(store.insert_bounded(self.of_one_shard(store, 1), self.bounds(3), NOW)) == []
        jobs = self.of_one_shard(store, 3)
        assert stored(store.insert_bounded(jobs, self.bounds(6), NOW)) == ids(jobs)[:2]

    def test_freed_room_is_the_callers(self, store: Store) -> None:
        """Whoever deletes waiting jobs may insert as many at once, without another count."""
        old = self.of_one_shard(store, 3)
        store.insert_bounded(old, self.bounds(3), NOW)
        assert store.apply([lifecycle.forget(job) for job in store.get(ids(old)[:2]) if job], NOW) == [True, True]
        new = self.of_one_shard(store, 3)
        assert stored(store.insert_bounded(new, self.bounds(3), NOW, {"default"})) == ids(new)[:2]
        assert waiting(store) == 3

    def test_the_oldest_jobs_of_the_lowest_band_come_first(self, store: Store) -> None:
        """`oldest_waiting`: the ready jobs of the queue by band, due and id, then the scheduled ones by due."""
        fields = [(5, 0), (0, -2), (0, -3), (-3, -1), (-7, 50), (0, -4), (3, 40), (-5, -2)]
        jobs = [put(store, priority=priority, due=NOW + due * SECOND)[0] for priority, due in fields]
        put(store, queue="other", priority=-9)
        lone = put(store, queue="third")
        assert ids(store.oldest_waiting("default", 10)) == [jobs[at].id for at in (7, 3, 5, 2, 1, 0, 6, 4)]
        assert ids(store.oldest_waiting("default", 2)) == [jobs[7].id, jobs[3].id]
        assert store.oldest_waiting("third", 5) == lone
        assert store.oldest_waiting("nobody", 5) == []

    def test_producers_at_once_keep_to_the_bound(self, store: Store) -> None:
        """Many producers at once store exactly as many jobs as the bound allows."""
        batches = [[self.of_one_shard(store, 3) for _ in range(8)] for _ in range(4)]
        taken_in: list[bytes] = []

        def produce(number: int) -> None:
            for batch in batches[number]:
                taken_in.extend(stored(store.insert_bounded(batch, self.bounds(50), NOW)))

        side_by_side(4, produce)
        assert len(taken_in) == 50 if self.shards == 1 else 50 <= len(taken_in) <= 50 * self.shards
        assert waiting(store) == len(taken_in)

    def test_a_claim_of_bounded_jobs_is_like_any_other(self, store: Store) -> None:
        """Jobs that were stored so are claimed in the usual order, and end as all others."""
        jobs = self.of_one_shard(store, 3)
        store.insert_bounded(jobs, self.bounds(3), NOW)
        held = taken(store)
        assert {job.id for job in held} == set(ids(jobs))
        assert outcomes(store, held, Released(), DEFAULT) == [True] * 3
