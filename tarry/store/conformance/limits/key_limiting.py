"""Promise 8, third part: a key of a task may have numbers of its own, set and changed while jobs run."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from tarry.model.duration import SECOND
from tarry.model.job import Job
from tarry.model.limit import KeyLimit, Limit
from tarry.model.outcome import Returned
from tarry.store.conformance.cases.jobs import LEASE, NOW, Promises, put, settle, taken
from tarry.store.conformance.limits.limiting import EACH, TASK, worked_off
from tarry.store.conformance.limits.place_taking import new_name
from tarry.store.rules import key_limits
from tarry.store.rules.base import Store
from tarry.store.rules.lanes import lane_level

MAIL = "mail"


def lanes_of(jobs: list[Job]) -> dict[str, int]:
    """How many of these jobs are in each lane."""
    lanes = [job.lane or "" for job in jobs]
    return {lane: lanes.count(lane) for lane in sorted(set(lanes))}


class KeyLimiting(Promises):
    """What holds for one key in place of the limit for each key."""

    @pytest.mark.parametrize("lane", ["ann", "", "käse", "a=b:c'\"%_", "x" * 100])
    def test_a_key_has_its_own_number(self, store: Store, lane: str) -> None:
        """It holds for this key alone, and of this task alone, until it is removed."""
        store.limit(EACH, Limit(1))
        store.limit("each:bill", Limit(1))
        store.limit_key(MAIL, lane, KeyLimit(3))
        for task in (MAIL, "bill"):
            put(store, 5, task=task, lane=lane)
            put(store, 5, task=task, lane=lane + "2")
        jobs = taken(store, 100)
        assert lanes_of([job for job in jobs if job.task == MAIL]) == {lane: 3, lane + "2": 1}
        assert lanes_of([job for job in jobs if job.task == "bill"]) == {lane: 1, lane + "2": 1}
        assert key_limits.read_key_limits(store, MAIL) == {lane: KeyLimit(3)}
        assert key_limits.read_key_limit(store, MAIL, lane) == KeyLimit(3)
        store.limit_key(MAIL, lane, None)
        assert key_limits.read_key_limits(store, MAIL) == {}
        for job in jobs:
            settle(store, job, Returned())
        assert lanes_of([job for job in taken(store, 100) if job.task == MAIL]) == {lane: 1, lane + "2": 1}
        assert store.recount(NOW) == 0

    def test_levels_are_told(self, store: Store) -> None:
        """Of single keys and of all of a task; what is not used is empty."""
        store.limit(TASK, Limit(9))
        store.limit(EACH, Limit(2, 100, SECOND))
        for lane in ("ann", "bob"):
            put(store, 2, lane=lane)
        jobs = taken(store)
        names = [lane_level(MAIL, "ann"), lane_level(MAIL, "cid"), TASK, "queue:none", lane_level(MAIL, "ann")]
        assert [level.running for level in store.levels(names)] == [2, 0, 4, 0, 2]
        assert store.levels(names)[0].next > NOW
        assert store.levels([]) == []
        for job in jobs:
            settle(store, job, Returned())
        assert [level.running for level in store.levels(names)] == [0] * 5

    def test_a_task_without_a_limit_for_each_key(self, store: Store) -> None:
        """Other keys have no bound; what ran before counts; nothing is left of the limit once no key has its own."""
        put(store, 4, lane="ann")
        put(store, 4, lane="bob")
        first = taken(store, 2)
        assert lanes_of(first) == {"ann": 1, "bob": 1}
        store.limit_key(MAIL, "ann", KeyLimit(2))
        assert {name: limit.without_keys for name, (limit, _) in store.limits().items()} == {EACH: None}
        assert lanes_of(taken(store)) == {"ann": 1, "bob": 3}
        store.limit_key(MAIL, "bob", KeyLimit(0))
        store.limit_key(MAIL, "ann", None)
        assert lanes_of(taken(store)) == {"ann": 2}
        store.limit_key(MAIL, "bob", None)
        assert store.limits() == {}
        assert store.recount(NOW) == 0

    def test_a_key_changes_at_once(self, store: Store) -> None:
        """Up and down, also where its lane was found full; what runs stays counted."""
        store.limit(EACH, Limit(5))
        put(store, 20, lane="ann")
        for most, got in ((1, 1), (3, 2), (2, 0), (4, 1)):
            store.limit_key(MAIL, "ann", KeyLimit(most))
            jobs = taken(store)
            assert len(jobs) == got
            assert taken(store) == []
        settle(store, jobs[0], Returned())
        assert len(taken(store)) == 1
        store.limit_key(MAIL, "ann", None)
        assert len(taken(store)) == 1
        assert store.recount(NOW) == 0

    def test_a_pause_holds_one_key_back(self, store: Store) -> None:
        """Other keys go on; its numbers hold again after it."""
        store.limit(EACH, Limit(2))
        put(store, 3, lane="ann")
        put(store, 3, lane="bob")
        store.limit_key(MAIL, "ann", KeyLimit(is_paused=True))
        assert lanes_of(taken(store)) == {"bob": 2}
        assert store.recount(NOW) == 0
        assert taken(store) == []
        store.limit_key(MAIL, "ann", None)
        assert lanes_of(taken(store)) == {"ann": 2}

    def test_numbers_that_a_key_does_not_have_are_those_for_each(self, store: Store) -> None:
        """They follow when these change."""
        store.limit(EACH, Limit(1, 20, 10 * SECOND))
        store.limit_key(MAIL, "ann", KeyLimit(2))
        put(store, 9, lane="ann")
        assert len(taken(store)) == 1  # the rate allows one at a time
        store.limit(EACH, Limit(1, 2000, 10 * SECOND))
        assert len(taken(store)) == 1
        store.limit_key(MAIL, "ann", KeyLimit(None, 2000, 10 * SECOND))
        store.limit(EACH, Limit(5))
        assert len(taken(store)) == 3

    def test_a_key_has_its_own_rate(self, store: Store) -> None:
        """It goes on when it allows the next start, and not before."""
        store.limit(EACH, Limit(None, 1, 1000 * SECOND))
        store.limit_key(MAIL, "ann", KeyLimit(None, 1, 10 * SECOND))
        put(store, 3, lane="ann")
        put(store, 3, lane="bob")
        assert lanes_of(taken(store)) == {"ann": 1, "bob": 1}
        assert taken(store, now=NOW + 9 * SECOND) == []
        assert store.recount(NOW + 9 * SECOND) == 0
        assert lanes_of(taken(store, now=NOW + 10 * SECOND)) == {"ann": 1}
        store.limit_key(MAIL, "ann", KeyLimit(None, 1, SECOND))
        assert lanes_of(taken(store, now=NOW + 11 * SECOND)) in ({}, {"ann": 1})
        assert lanes_of(taken(store, now=NOW + 20 * SECOND)) in ({}, {"ann": 1})
        assert store.recount(NOW + 20 * SECOND) == 0

    def test_no_limit_for_each_key_lifts_that_of_one(self, store: Store) -> None:
        """Nor does one that is set anew."""
        store.limit(EACH, Limit(1))
        store.limit_key(MAIL, "ann", KeyLimit(2))
        store.limit(EACH, None)
        put(store, 5, lane="ann")
        put(store, 5, lane="bob")
        jobs = taken(store)
        assert lanes_of(jobs) == {"ann": 2, "bob": 5}
        store.limit(EACH, Limit(1))
        assert store.limits()[EACH][0].without_keys == Limit(1)
        for job in jobs:
            settle(store, job, Returned())
        put(store, 5, lane="bob")
        assert lanes_of(taken(store)) == {"ann": 2, "bob": 1}
        assert store.recount(NOW) == 0

    def test_the_limit_over_all_keys_holds(self, store: Store) -> None:
        """However much one key may start."""
        store.limit(TASK, Limit(3))
        store.limit_key(MAIL, "ann", KeyLimit(100))
        put(store, 9, lane="ann")
        assert len(taken(store)) == 3
        assert store.recount(NOW) == 0

    def test_places_outside_of_jobs_count(self, store: Store) -> None:
        """A place and a job of the key keep each other out."""
        store.limit(EACH, Limit(1))
        store.limit_key(MAIL, "ann", KeyLimit(3))
        put(store, 3, lane="ann")
        for _ in range(2):
            assert store.take_place(new_name(store), ("default", MAIL, "ann"), NOW + LEASE, 1, NOW).is_taken
        assert len(taken(store)) == 1
        assert not store.take_place(new_name(store), ("default", MAIL, "ann"), NOW + LEASE, 1, NOW).is_taken
        assert store.take_place(new_name(store), ("default", MAIL, "bob"), NOW + LEASE, 1, NOW).is_taken
        assert not store.take_place(new_name(store), ("default", MAIL, "bob"), NOW + LEASE, 1, NOW).is_taken
        assert store.recount(NOW) == 0

    def test_a_recount_leaves_full_lanes_closed(self, store: Store) -> None:
        """What a key has of its own says whether its lane has room: more than others, or less."""
        store.limit(EACH, Limit(2))
        store.limit_key(MAIL, "ann", KeyLimit(1))
        store.limit_key(MAIL, "bob", KeyLimit(3))
        for lane in ("ann", "bob", "cid"):
            put(store, 5, lane=lane)
        assert lanes_of(taken(store)) == {"ann": 1, "bob": 3, "cid": 2}
        assert taken(store) == []
        assert store.recount(NOW) == 0
        assert taken(store) == []

    def test_a_recount_opens_a_lane_whose_key_has_more(self, store: Store) -> None:
        """Where the clock was set back, a lane waits for a time that is further ahead than its own rate allows."""
        store.limit(EACH, Limit(None, 1, 1000 * SECOND))
        store.limit_key(MAIL, "ann", KeyLimit(None, 1, SECOND))
        put(store, 3, lane="ann")
        assert len(taken(store, now=NOW + 100 * SECOND)) == 1
        assert taken(store, now=NOW + 100 * SECOND) == []
        assert store.recount(NOW) == 0
        assert len(taken(store)) == 1

    def test_garbage_holds_nothing_up(self, store: Store) -> None:
        """A value that is none says nothing: the limit for each key holds, and jobs go on."""
        store.limit(EACH, Limit(1))
        store.limit_key(MAIL, "ann", KeyLimit(3))
        name = key_limits.value_name(MAIL, "ann")
        for value in (b"", b"x", b"1 2 3", b"9" * 500, b"\xff - - - - -", b"- - - - - -"):
            assert store.kv_cas(name, value, store.kv_get(name))
            assert key_limits.read_key_limit(store, MAIL, "ann") == KeyLimit()
            store.limit(EACH, Limit(1))
            put(store, 2, lane="ann")
            # Of several stores, that of the task has the value that was set.
            jobs = taken(store)
            assert jobs
            for job in jobs:
                settle(store, job, Returned())

    def test_a_value_of_before_there_were_weights_holds(self, store: Store) -> None:
        """As those that have one."""
        store.limit(EACH, Limit(1))
        store.limit_key(MAIL, "ann", KeyLimit(3))
        name = key_limits.value_name(MAIL, "ann")
        for value, own in ((b"2 - 0 1 0 0", KeyLimit(2)), (b"2 - 0 1 0 1", KeyLimit(2, is_paused=True))):
            assert store.kv_cas(name, value, store.kv_get(name))
            assert key_limits.read_key_limit(store, MAIL, "ann") == own
        put(store, 4, lane="ann")
        store.limit(EACH, Limit(4))
        if self.shards == 1:
            # Of several stores, that of the task has the value that was set.
            assert taken(store) == []
            assert store.kv_cas(name, b"2 - 0 1 0 0", store.kv_get(name))
            store.limit(EACH, Limit(5))
            assert len(taken(store)) == 2

    def test_many_change_keys_while_others_claim(self, store: Store) -> None:
        """Everything is worked off, no count is wrong, and nothing is left."""
        store.limit(EACH, Limit(1))
        for number in range(8):
            put(store, 15, lane=f"tenant {number}")

        def change(number: int) -> None:
            for most in (0, 2, None, 1, 3):
                limit = None if most is None else KeyLimit(most)
                store.limit_key(MAIL, f"tenant {number}", limit)
            store.limit_key(MAIL, f"tenant {number}", None)

        with ThreadPoolExecutor(4) as workers:
            done = [workers.submit(worked_off, store, owner) for owner in ("ann", "bob")]
            changed = [workers.submit(change, number) for number in range(8)]
            for one in changed:
                one.result()
        assert sum(one.result() for one in done) + worked_off(store, "sum") == 120
        assert store.recount(NOW) == 0
        assert store.limits()[EACH][0] == Limit(1)

    def test_keys_that_are_changed_at_the_same_time(self, store: Store) -> None:
        """Of one key the last change holds. What one key has is neither lost when another one is reset, nor when the
        limit for each key changes."""
        for most in range(5, 15):
            store.limit(EACH, Limit(most - 1))
            store.limit_key(MAIL, "ann", KeyLimit(1))
            changes: list[Callable[[], None]] = [
                partial(store.limit_key, MAIL, "ann", None),
                partial(store.limit_key, MAIL, "bob", KeyLimit(2)),
                partial(store.limit_key, MAIL, "bob", KeyLimit(2)),
                partial(store.limit, EACH, Limit(most)),
            ]
            with ThreadPoolExecutor(len(changes)) as pool:
                for changed in [pool.submit(change) for change in changes]:
                    changed.result()
            assert key_limits.read_key_limits(store, MAIL) == {"bob": KeyLimit(2)}
            assert store.limits()[EACH][0] == Limit(most, has_key_limits=True)
            put(store, 3, lane="bob")
            jobs = taken(store)
            assert len(jobs) == 2
            for job in jobs + taken(store):
                settle(store, job, Returned())
            for job in taken(store):
                settle(store, job, Returned())
            store.limit_key(MAIL, "bob", None)
