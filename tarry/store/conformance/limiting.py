"""Promise 8: limits hold, over all who claim, and hold up nobody else."""

import pytest
from msgspec.structs import replace

from tarry.model import lifecycle
from tarry.model.duration import SECOND
from tarry.model.job import State
from tarry.model.lifecycle import DEFAULT
from tarry.model.limit import Level, Limit
from tarry.model.outcome import Lost, Outcome, Released, Returned, Snoozed
from tarry.store.base import Exchange, Store
from tarry.store.conformance.cases import (
    EVERYTHING,
    FAILED,
    LEASE,
    NOW,
    RETRY,
    Promises,
    in_state,
    made,
    put,
    seen,
    settle,
    taken,
)

QUEUE, TASK, EACH = "queue:default", "task:mail", "each:mail"
NAMES = [QUEUE, TASK, EACH]


def exchanged(store: Store, now: int = NOW) -> Exchange:
    """Claims whatever there is."""
    return store.exchange((), EVERYTHING, 1000, "ann", LEASE, now)


class Limiting(Promises):
    """What runs at once, what starts in a period, and whose turn it is."""

    @pytest.mark.parametrize("name", NAMES)
    def test_no_more_run_at_once_than_the_limit_says(self, store: Store, name: str) -> None:
        """However many wait, and however often it is asked."""
        store.limit(name, Limit(4))
        put(store, 10, lane="")
        assert 0 < len(taken(store)) + len(taken(store, owner="bob")) <= 4

    @pytest.mark.parametrize("name", [TASK, EACH])
    @pytest.mark.parametrize("outcome", [Returned(), FAILED, Snoozed(SECOND), Released(), Lost(True)])
    def test_what_ends_makes_room(self, store: Store, name: str, outcome: Outcome) -> None:
        """However an attempt ends, one more may start, and one only."""
        store.limit(name, Limit(2))
        put(store, 5, lane="")
        first, _ = taken(store)
        assert taken(store) == []
        settle(store, first, outcome, RETRY)
        assert len(taken(store)) == 1

    def test_a_cancelled_job_makes_room(self, store: Store) -> None:
        """Whoever cancels it."""
        store.limit(TASK, Limit(1))
        put(store, 2, lane="")
        (first,) = taken(store)
        assert store.apply([lifecycle.cancelled(first, DEFAULT, NOW)], NOW) == [True]
        assert len(taken(store)) == 1

    def test_the_same_end_makes_room_once(self, store: Store) -> None:
        """A late or repeated change gives nothing back that was given back before."""
        store.limit(TASK, Limit(1))
        put(store, 3, lane="")
        (first,) = taken(store)
        change = lifecycle.after(first, Returned(), DEFAULT, NOW)
        assert store.apply([change], NOW) == [True]
        assert store.apply([change], NOW) == [False]
        assert len(taken(store)) == 1
        assert store.limits()[TASK][1].running == 1

    @pytest.mark.parametrize("name", [TASK, EACH])
    def test_who_comes_back_from_its_end_waits_like_a_new_one(self, store: Store, name: str) -> None:
        """Although its task had no limit before. Those put before it may lie in several parts of a store, which
        have a lane of that name each."""
        put(store, 20)
        ended = [settle(store, job, Returned()) for job in taken(store)]
        store.limit(name, Limit(1))
        assert store.apply([lifecycle.kicked(job, NOW) for job in ended], NOW) == [True] * 20
        assert {seen(store, job).lane for job in ended} == {""}
        assert 0 < len(taken(store)) < 20

    def test_a_limited_task_holds_up_no_other(self, store: Store) -> None:
        """In the same queue, behind any number of its jobs."""
        store.limit(TASK, Limit(1))
        put(store, 50, lane="")
        others = put(store, 3, task="other", due=NOW)
        assert {job.id for job in taken(store)} > {job.id for job in others}

    def test_a_limited_queue_holds_up_no_other(self, store: Store) -> None:
        """Only its own jobs wait."""
        store.limit("queue:slow", Limit(0))
        put(store, 5, queue="slow")
        (other,) = put(store)
        assert [job.id for job in taken(store)] == [other.id]

    def test_each_key_has_a_limit_of_its_own(self, store: Store) -> None:
        """Two of every key, however many of one there are."""
        store.limit(EACH, Limit(2))
        for lane, count in (("a", 30), ("b", 3), ("c", 1)):
            put(store, count, lane=lane)
        assert sorted(job.lane or "" for job in taken(store)) == ["a", "a", "b", "b", "c"]

    def test_keys_take_turns(self, store: Store) -> None:
        """One with many jobs, all of them older, does not keep the others waiting."""
        put(store, 100, lane="a", due=NOW - 5 * SECOND)
        put(store, 2, lane="b")
        put(store, 2, lane="c")
        first = [job.lane for job in taken(store, 3)]
        assert sorted(map(str, first)) == ["a", "b", "c"]
        turns = [taken(store, 1)[0].lane for _ in range(4)]
        assert sorted(map(str, turns[:3])) == ["a", "b", "c"]
        assert turns[3] == "a"

    def test_the_keys_share_a_limit_of_the_task(self, store: Store) -> None:
        """At most so many of the task, of which at most so many of each key."""
        store.limit(TASK, Limit(5))
        store.limit(EACH, Limit(3))
        for lane in "abc":
            put(store, 10, lane=lane)
        got = [job.lane for job in taken(store)]
        assert len(got) == 5
        assert max(got.count(lane) for lane in "abc") <= 3

    def test_within_a_key_the_order_is_the_same(self, store: Store) -> None:
        """Higher priority first, then earlier due."""
        put(store, lane="a", due=NOW - 1)
        put(store, lane="a", due=NOW - 2)
        put(store, lane="a", priority=7)
        got = [taken(store, 1)[0] for _ in range(3)]
        assert [(job.priority, job.due) for job in got] == [(7, NOW), (0, NOW - 2), (0, NOW - 1)]

    @pytest.mark.parametrize("name", [TASK, EACH])
    def test_no_more_start_in_a_period_than_the_rate_says(self, store: Store, name: str) -> None:
        """In no period, wherever it begins; and those that may, do."""
        store.limit(name, Limit(None, 40, 10 * SECOND))
        put(store, 200, lane="")
        starts: list[int] = []
        now = NOW
        while len(starts) < 130:
            answer = exchanged(store, now)
            starts += [now] * len(answer.jobs)
            if not answer.jobs:
                assert answer.next_due is not None
                assert answer.next_due > now
                now = answer.next_due
        assert max(sum(at <= other < at + 10 * SECOND for other in starts) for at in starts) <= 40
        assert now <= NOW + 36 * SECOND

    def test_a_limit_counts_what_runs_already(self, store: Store) -> None:
        """Set while jobs run, also such as were not limited when they came."""
        store.insert([replace(job, id=store.mint("mail", None, "")) for job in made(store, 5)])
        first = taken(store, 2)
        for name in NAMES[1:]:
            store.limit(name, Limit(2))
        assert taken(store) == []
        settle(store, first[0], Returned())
        assert len(taken(store)) == 1

    @pytest.mark.parametrize("name", NAMES)
    def test_a_limit_can_be_changed_and_lifted(self, store: Store, name: str) -> None:
        """At once, for all who claim."""
        store.limit(name, Limit(0))
        put(store, 4, lane="")
        assert taken(store) == []
        store.limit(name, Limit(100))
        assert store.limits()[name][0].most == 100
        first = taken(store, 2)
        assert len(first) == 2
        store.limit(name, None)
        assert store.limits() == {}
        assert len(taken(store)) == 2

    @pytest.mark.parametrize("name", [TASK, EACH])
    def test_a_limit_that_changes_keeps_the_count(self, store: Store, name: str) -> None:
        """What ran before it was changed, however often, counts to its end, and no longer."""
        store.limit(name, Limit(3))
        put(store, 10, lane="")
        first = taken(store)
        assert len(first) == 3
        store.limit(name, Limit(0))
        settle(store, first[0], Returned())
        assert taken(store) == []
        store.limit(name, Limit(2))
        assert taken(store) == []
        store.limit(name, Limit(4))
        assert len(taken(store)) == 2
        settle(store, first[1], FAILED, RETRY)
        store.limit(name, Limit(5))
        assert len(taken(store)) == 2

    def test_a_rate_that_changes_remembers_the_last_starts(self, store: Store) -> None:
        """A limit that is set anew, or given another number at once, lets nothing start sooner."""
        store.limit(TASK, Limit(None, 20, 10 * SECOND))
        put(store, 50, lane="")
        assert len(taken(store)) == 1
        for most in (None, 8):
            store.limit(TASK, Limit(most, 20, 10 * SECOND))
            assert taken(store) == []
        assert len(taken(store, now=NOW + SECOND)) == 1

    @pytest.mark.parametrize("name", [QUEUE, TASK])
    def test_a_limit_changes_for_jobs_that_came_before_it(self, store: Store, name: str) -> None:
        """Those that wait without a lane, however often it changes."""
        store.insert([replace(job, id=store.mint("mail", None, "")) for job in made(store, 5)])
        for most in (0, 1, 0):
            store.limit(name, Limit(most))
        assert taken(store) == []
        store.limit(name, Limit(100))
        assert len(taken(store)) == 5

    def test_a_job_that_says_no_lane_is_limited_all_the_same(self, store: Store) -> None:
        """It may come from a program that does not know of the limit yet."""
        store.limit(TASK, Limit(1))
        store.insert([replace(job, id=store.mint("mail", None, "")) for job in made(store, 3)])
        assert len(taken(store)) == 1

    def test_the_limits_are_told_with_their_use(self, store: Store) -> None:
        """By name."""
        store.limit(TASK, Limit(3))
        put(store, 5, lane="")
        taken(store, 2)
        assert store.limits() == {TASK: (Limit(3), Level(2))}

    @pytest.mark.parametrize("state", [State.SCHEDULED, State.READY, State.RUNNING])
    def test_lanes_survive(self, store: Store, state: State) -> None:
        """With the job."""
        job = in_state(store, state, lane="käse")
        assert seen(store, job).lane == "käse"
