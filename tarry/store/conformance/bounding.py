"""Queues with a bound: new jobs are stored as long as there is room for them."""

from collections.abc import Sequence

import pytest

from tarry.errors import QueueFull, TenantFull
from tarry.model import lifecycle
from tarry.model.bound import KEY_ROOM, Bound, KeyBounds
from tarry.model.duration import HOUR, SECOND
from tarry.model.job import Job, State
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

    def test_what_is_sent_again_needs_no_room(self, store: Store) -> None:
        """Sent again together with new ones, jobs that are stored leave the room to those."""
        jobs = self.of_one_shard(store, 5)
        assert stored(store.insert_bounded(jobs, self.bounds(3), NOW)) == ids(jobs)[:3]
        for _ in range(2):
            assert store.insert_bounded(jobs, self.bounds(5), NOW) == ids(jobs)
        assert waiting(store) == 5

    def test_a_duplicate_takes_no_room(self, store: Store) -> None:
        """A job whose key another job holds waits for nothing: the room is for the others."""
        lane = "" if self.shards > 1 else None
        holder = put(store, key="a", lane=lane)[0]
        for _ in range(9):
            assert store.insert_bounded(made(store, 2, key="a", lane=lane), self.bounds(4), NOW) == [holder.id] * 2
        assert len(stored(store.insert_bounded(self.of_one_shard(store, 4), self.bounds(4), NOW))) == 3

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


class KeyBounding(Promises):
    """Keys of a task with a bound: how many of their jobs may be ready in a queue."""

    def test_a_key_takes_as_many_as_there_is_room_for(self, store: Store) -> None:
        """The first jobs are stored, the others refused with the key and the number; other keys, tasks and jobs without
        a key are stored beside them."""
        ann, bob = made(store, 5, lane="ann"), made(store, 5, lane="bob")
        others = [*made(store, 5, lane="cid"), *made(store, 5, task="bill", lane="ann"), *made(store, 5)]
        answers = insert(store, [*ann, *others, *bob], {("mail", "ann"): 3, ("mail", "bob"): 2})
        assert stored(answers) == [*ids(ann)[:3], *ids(others), *ids(bob)[:2]]
        error = answers[4]
        assert isinstance(error, TenantFull)
        assert (error.task, error.tenant, error.most, error.queue, error.stored) == ("mail", "ann", 3, "default", False)
        assert error.retry_after >= 1
        assert ready(store, "ann") == 3
        assert stored(insert(store, made(store, lane="ann"), {("mail", "ann"): 3}, LATER)) == []

    @pytest.mark.parametrize("lane", ["käse", "a=b:c'\"%_", "x" * 100])
    @pytest.mark.parametrize("limit", [None, Limit(1)])
    def test_jobs_of_a_key_that_leave_make_room(self, store: Store, lane: str, limit: Limit | None) -> None:
        """Jobs that are claimed or deleted make room at the next count, whether the key has a limit or not; jobs of all
        bands count."""
        store.limit("each:mail", limit)
        jobs = [made(store, lane=lane, priority=priority)[0] for priority in (-5, 0, 0, 5)]
        bounds = {("mail", lane): 4}
        assert stored(insert(store, jobs, bounds)) == ids(jobs)
        assert stored(insert(store, made(store, lane=lane), bounds, LATER)) == []
        left = len(taken(store, 3))
        assert left == (1 if limit else 3)
        waiting = [job for job in store.get(ids(jobs)) if job is not None and job.state is State.READY]
        assert store.apply([lifecycle.forget(waiting[0])], LATER) == [True]
        more = made(store, 9, lane=lane)
        assert stored(insert(store, more, bounds, LATER + HOUR)) == ids(more)[: left + 1]

    def test_what_is_not_due_counts_once_it_is(self, store: Store) -> None:
        """Scheduled jobs of a key are not counted, however many there are, but those that were due are ready and are;
        what comes back is never refused, and then nothing new is taken."""
        bounds = {("mail", "ann"): 4}
        put(store, 9, lane="ann", due=NOW + HOUR)
        jobs = made(store, 2, lane="ann")
        assert stored(insert(store, jobs, bounds)) == ids(jobs)
        assert len(taken(store, 2)) == 2
        assert len(taken(store, 1, now=NOW + 2 * HOUR)) == 1
        assert ready(store, "ann") == 8
        assert stored(insert(store, made(store, lane="ann"), bounds, NOW + 2 * HOUR)) == []

    def test_a_changed_number_of_a_key_holds_at_once(self, store: Store) -> None:
        """A lower number refuses at once, a higher one takes at once; 0 takes nothing, and without a number all is
        taken."""
        assert stored(insert(store, made(store, 4, lane="ann"), {("mail", "ann"): 0})) == []
        assert len(stored(insert(store, made(store, 4, lane="ann"), {("mail", "ann"): 4}))) == 4
        assert stored(insert(store, made(store, lane="ann"), {("mail", "ann"): 3})) == []
        jobs = made(store, 3, lane="ann")
        assert stored(insert(store, jobs, {("mail", "ann"): 6})) == ids(jobs)[:2]
        assert len(stored(insert(store, made(store, 9, lane="ann"), {("mail", "bob"): 1}))) == 9
        assert stored(insert(store, made(store, lane="ann"), {("mail", "ann"): 0}, LATER)) == []

    def test_queue_and_key_both_hold(self, store: Store) -> None:
        """A job needs room in its queue and for its key. What one of them refuses takes no room in the other, and a job
        that both refuse is one of a full key: no other job makes room for it."""
        jobs = made(store, 9, lane="ann")
        bounds, key_bounds = {"default": Bound(4 * self.shards)}, {("mail", "ann"): 3}
        answers = store.insert_bounded(jobs, bounds, NOW, (), key_bounds)
        assert [type(answer) for answer in answers] == [bytes] * 3 + [TenantFull] * 6
        others = made(store, 2, lane="bob")
        # Whether both keys are on one of several stores, each of which has its part of the queue's bound, is open.
        taken_in = stored(store.insert_bounded(others, bounds, NOW, (), key_bounds))
        assert taken_in in ([ids(others)[:1]] if self.shards == 1 else [ids(others)[:1], ids(others)])
        more = made(store, 9, lane="ann")
        answers = store.insert_bounded(more, {"default": Bound(0)}, NOW, (), {("mail", "ann"): 5})
        assert stored(answers) == ids(more)[:2]
        if self.shards == 1:
            (error,) = store.insert_bounded(made(store, lane="ann"), bounds, NOW, (), {("mail", "ann"): 5})
            assert type(error) is TenantFull
            (error,) = store.insert_bounded(made(store, lane="bob"), bounds, NOW, (), {("mail", "bob"): 5})
            assert type(error) is QueueFull

    def test_each_queue_is_counted_apart(self, store: Store) -> None:
        """The number holds in each queue in which the key has jobs."""
        bounds = {("mail", "ann"): 2}
        for queue in ("default", "fast"):
            jobs = made(store, 3, lane="ann", queue=queue)
            assert stored(insert(store, jobs, bounds)) == ids(jobs)[:2]

    def test_a_duplicate_takes_no_room_of_its_key(self, store: Store) -> None:
        """As in a bounded queue; and a repeated insert is one job."""
        bounds = {("mail", "ann"): 3}
        holder = put(store, key="a", lane="ann")[0]
        for _ in range(9):
            assert insert(store, made(store, key="a", lane="ann"), bounds) == [holder.id]
        job = made(store, lane="ann")
        assert insert(store, job, bounds) == ids(job)
        assert stored(insert(store, made(store, 3, lane="ann"), bounds, LATER))
        assert ready(store, "ann") == 3

    def test_freed_room_of_a_key_is_the_callers(self, store: Store) -> None:
        """Where the caller has deleted jobs of the queue, the jobs of the key are counted at once, too."""
        old, bounds = made(store, 3, lane="ann"), {("mail", "ann"): 3}
        insert(store, old, bounds)
        assert store.apply([lifecycle.forget(job) for job in store.get(ids(old)[:2]) if job], NOW) == [True, True]
        new = made(store, 3, lane="ann")
        assert stored(store.insert_bounded(new, {}, NOW, {"default"}, bounds)) == ids(new)[:2]

    def test_producers_at_once_keep_to_the_bound_of_a_key(self, store: Store) -> None:
        """Many producers at once, each with jobs of both keys, store exactly as many as each key may have."""
        bounds = {("mail", "ann"): 30, ("mail", "bob"): 20}
        batches = [
            [[*made(store, 2, lane="ann"), *made(store, 2, lane="bob")][:: number % 2 * 2 - 1] for _ in range(10)]
            for number in range(4)
        ]

        def produce(number: int) -> None:
            for batch in batches[number]:
                store.insert_bounded(batch, {}, NOW, (), bounds)

        side_by_side(4, produce)
        assert (ready(store, "ann"), ready(store, "bob")) == (30, 20)

    def test_nothing_is_kept_of_keys_that_were_not_used_for_long(self, store: Store) -> None:
        """What a store keeps to count less often goes when finished jobs are deleted; a key without a number has
        none. Then it is counted anew."""
        lanes = [f"k{number}" for number in range(40)]
        insert(store, [made(store, lane=lane)[0] for lane in lanes], {("mail", lane): 1 for lane in lanes})
        insert(store, made(store, lane="free"), {("mail", "ann"): 1})
        assert len(store.kv_list(KEY_ROOM)) in (0, 40)
        store.prune(NOW + HOUR, 10**9)
        assert store.kv_list(KEY_ROOM) == {}
        assert stored(insert(store, made(store, lane="k7"), {("mail", "k7"): 1}, NOW + HOUR)) == []


def insert(store: Store, jobs: Sequence[Job], key_bounds: KeyBounds, now: int = NOW) -> list[bytes | QueueFull]:
    """Inserts jobs in queues without a bound."""
    return store.insert_bounded(jobs, {}, now, (), key_bounds)


def ready(store: Store, lane: str) -> int:
    """How many jobs of that key are ready."""
    return store.waiting.lane("default", "mail", lane, 1000).count.count
