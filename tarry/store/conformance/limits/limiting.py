"""Promise 8: limits hold across all claimers, and do not delay other jobs."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from msgspec.structs import replace

from tarry.model import lifecycle
from tarry.model.duration import SECOND
from tarry.model.job import HELD, Job
from tarry.model.job import WAITING as ONLY_WHILE_WAITING
from tarry.model.lifecycle import DEFAULT
from tarry.model.limit import Level, Limit
from tarry.model.outcome import Lost, Outcome, Released, Returned, Snoozed
from tarry.store.conformance.cases.jobs import (
    EVERYTHING,
    FAILED,
    LEASE,
    NOW,
    RETRY,
    Promises,
    made,
    put,
    seen,
    settle,
    taken,
)
from tarry.store.rules.base import Exchange, Store, Want

QUEUE, TASK, EACH = "queue:default", "task:mail", "each:mail"
NAMES = [QUEUE, TASK, EACH]


def worked_off(store: Store, owner: str, left: int = 2000) -> int:
    """Claims a few jobs and settles them with the next claim, until it gets none for a while; returns how many it
    settled."""
    done, jobs, vain = 0, list[Job](), 0
    while vain < 20 and left > 0:
        ended = [lifecycle.after(job, Returned(), DEFAULT, NOW) for job in jobs]
        answer = store.exchange(ended, EVERYTHING, 10, owner, LEASE, NOW)
        done, jobs, left = done + sum(answer.valid), answer.jobs, left - 1
        # One empty answer is not the end: other workers may hold the places of a limit just now.
        vain = 0 if jobs or ended else vain + 1
    return done


def started(store: Store, count: int, now: int = NOW) -> list[Job]:
    """Claims until it has `count` jobs, or `next_due` is not before `now` any more."""
    # A claim may stop before it has examined all lanes. But the number of calls must be bounded.
    jobs: list[Job] = []
    for _ in range(150):
        answer = store.exchange((), EVERYTHING, count - len(jobs), "ann", LEASE, now)
        jobs += answer.jobs
        if len(jobs) >= count or (not answer.jobs and (answer.next_due is None or answer.next_due > now)):
            return jobs
    raise AssertionError(f"{len(jobs)} of {count}, and told to come again 150 times")


def exchanged(store: Store, now: int = NOW) -> Exchange:
    """Claims all jobs that may start."""
    return store.exchange((), EVERYTHING, 1000, "ann", LEASE, now)


class Limiting(Promises):
    """How many jobs run at once and start in a period, and which key is next."""

    @pytest.mark.parametrize("name", NAMES)
    def test_no_more_run_at_once_than_the_limit_says(self, store: Store, name: str) -> None:
        """However many jobs wait, and however many claims there are."""
        store.limit(name, Limit(4))
        put(store, 10, lane="")
        assert 0 < len(taken(store)) + len(taken(store, owner="bob")) <= 4

    @pytest.mark.parametrize("name", NAMES)
    def test_a_rate_goes_on_after_the_clock_was_set_back(self, store: Store, name: str) -> None:
        """Then the rate counts as if nothing had started yet: jobs do not wait until the old time comes again. The rate
        of a key goes on at the next recount at the latest."""
        store.limit(name, Limit(None, 2, SECOND))
        put(store, 20, lane="")
        now = NOW - 3600 * SECOND
        assert taken(store)
        assert taken(store) == []
        if name == EACH:
            store.recount(now)
        assert taken(store, now=now)
        assert taken(store, now=now + SECOND // 100) == []
        assert taken(store, now=now + 30 * SECOND)

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

    @pytest.mark.parametrize("count", [1, 6])
    @pytest.mark.parametrize("outcome", [Returned(), FAILED, Snoozed(SECOND), Released(), Lost(True)])
    def test_what_ends_makes_room_in_its_queue(self, store: Store, outcome: Outcome, count: int) -> None:
        """Also for jobs without a lane, and if many end in one call: as many more may start."""
        store.limit(QUEUE, Limit(36))
        jobs = [replace(job, id=id) for job, id in zip(made(store, 60), self.together(store, 60), strict=True)]
        store.insert(jobs)
        ended = taken(store)[:count]
        assert len(ended) == count
        assert taken(store) == []
        changes = [lifecycle.after(job, outcome, RETRY, NOW) for job in ended]
        assert store.apply(changes, NOW) == [True] * count
        assert len(taken(store)) == count

    def test_the_same_end_makes_room_once(self, store: Store) -> None:
        """A late or repeated change gives back nothing twice."""
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
        """A finished job that starts anew is limited, although its task had no limit before."""
        # Fewer than 20 and not just one: each shard of a store has a lane of that name.
        put(store, 20)
        ended = [settle(store, job, Returned()) for job in taken(store)]
        store.limit(name, Limit(1))
        assert store.apply([lifecycle.run_now(job, NOW) for job in ended], NOW) == [True] * 20
        assert {seen(store, job).lane for job in ended} == {""}
        assert 0 < len(taken(store)) < 20

    def test_a_change_that_is_not_valid_makes_no_room(self, store: Store) -> None:
        """Such as one that would let two jobs hold a key."""
        store.limit(TASK, Limit(1))
        put(store, key="k", key_ttl=ONLY_WHILE_WAITING, lane="")
        (first,) = taken(store)
        put(store, key="k", key_ttl=ONLY_WHILE_WAITING, lane="")
        assert store.apply([replace(lifecycle.after(first, Released(), DEFAULT, NOW), key_held_until=HELD)], NOW) == [
            False
        ]
        assert taken(store) == []
        assert store.limits()[TASK][1].running == 1

    def test_a_limited_task_holds_up_no_other(self, store: Store) -> None:
        """Not in the same queue either, behind any number of its jobs."""
        store.limit(TASK, Limit(1))
        put(store, 50, lane="")
        others = put(store, 3, task="other", due=NOW)
        assert {job.id for job in taken(store)} > {job.id for job in others}

    def test_full_lanes_hold_up_no_other(self, store: Store) -> None:
        """However many full lanes there are, a job behind them starts soon. Once nothing can start, no claimer is
        told to come again. The end of an attempt in the same call makes room at once."""
        # More lanes than one claim examines.
        store.limit(EACH, Limit(1))
        store.insert([job for number in range(1100) for job in made(store, 2, lane=f"{number:04}")])
        first = started(store, 1100)
        assert len({job.lane for job in first}) == 1100
        (behind,) = put(store, lane="9999")
        assert [job.id for job in started(store, 1)] == [behind.id]
        assert started(store, 1) == []
        ended = first[1050]
        change = lifecycle.after(ended, Returned(), DEFAULT, NOW)
        answer = store.exchange([change], EVERYTHING, 1000, "ann", LEASE, NOW)
        assert (answer.valid, [job.lane for job in answer.jobs]) == ([True], [ended.lane])
        assert store.recount(NOW) == 0

    def test_a_lane_that_was_full_gives_on_after_its_limit_changes(self, store: Store) -> None:
        """After the limit is raised, lowered, or lifted, its jobs start again, in all queues and bands."""
        store.limit(EACH, Limit(1))
        put(store, 3, lane="a")
        put(store, 2, lane="a", priority=5)
        put(store, 2, lane="a", queue="other")
        assert len(started(store, 1)) == 1
        assert started(store, 1) == []
        store.limit(EACH, Limit(2))
        assert len(started(store, 2)) == 1
        store.limit(EACH, Limit(0))
        assert started(store, 1) == []
        store.limit(EACH, Limit(3))
        assert [job.queue for job in store.claim([Want("other", 0, 9)], 9, "bob", LEASE, NOW)] == ["other"]
        store.limit(EACH, None)
        assert len(started(store, 9)) == 3

    @pytest.mark.parametrize("beside", [0, 40])
    @pytest.mark.parametrize("way", ["insert", "promote", "retry", "move", "lift"])
    def test_a_full_lane_takes_jobs_and_gives_them_later(self, store: Store, way: str, beside: int) -> None:
        """However a job comes into the lane while none of its jobs may start, beside so many other full ones."""
        store.limit(EACH, Limit(1))
        store.insert([job for number in range(beside) for job in made(store, 2, lane=f"{number:04}")])
        assert len(started(store, beside)) == beside
        assert started(store, 1) == []
        first, second = put(store, lane="a"), put(store, lane="a", due=NOW + 1, state_since=NOW)
        (running,) = started(store, 1)
        assert started(store, 1) == []
        ending = lifecycle.after(running, Returned(), DEFAULT, NOW)
        match way:
            case "insert":
                put(store, lane="a")
            case "retry":
                ending = lifecycle.after(running, Released(), DEFAULT, NOW)
            case "move":
                (other,) = put(store, queue="elsewhere", lane="a")
                assert store.apply([replace(lifecycle.run_now(other, NOW), queue="default")], NOW) == [True]
            case "lift":
                put(store, lane="a")
                store.limit(EACH, None)
                store.limit(EACH, Limit(1))
        assert started(store, 1) == []
        assert store.apply([ending], NOW) == [True]
        ids = [job.id for job in started(store, 1, NOW + 1)]
        assert len(ids) == 1
        assert (ids == [second[0].id]) is (way == "promote")
        assert (ids == [first[0].id]) is (way == "retry")

    def test_a_lane_that_a_rate_holds_back_gives_on_in_time(self, store: Store) -> None:
        """The answer says when; each lane goes on by itself, and not too early."""
        store.limit(EACH, Limit(None, 1, 10 * SECOND))
        for lane in ("a", "b"):
            put(store, 2, lane=lane)
        assert [job.lane for job in started(store, 1)] == ["a"]
        assert [job.lane for job in started(store, 1, NOW + SECOND)] == ["b"]
        times = []
        for now in (NOW + SECOND, NOW + 10 * SECOND, NOW + 11 * SECOND):
            answer = exchanged(store, now)
            times.append(answer.next_due)
            assert [job.lane for job in answer.jobs] == (
                [] if now == NOW + SECOND else ["b"] if len(times) > 2 else ["a"]
            )
        assert times[0] == NOW + 10 * SECOND

    def test_a_limited_queue_holds_up_no_other(self, store: Store) -> None:
        """Only the jobs of the limited queue wait."""
        store.limit("queue:slow", Limit(0))
        put(store, 5, queue="slow")
        (other,) = put(store)
        assert [job.id for job in taken(store)] == [other.id]

    def test_each_key_has_a_limit_of_its_own(self, store: Store) -> None:
        """Two of every key, however many jobs one key has."""
        store.limit(EACH, Limit(2))
        for lane, count in (("a", 30), ("b", 3), ("c", 1)):
            put(store, count, lane=lane)
        assert sorted(job.lane or "" for job in taken(store)) == ["a", "a", "b", "b", "c"]

    def test_what_ends_beside_a_claim_makes_room(self, store: Store) -> None:
        """Among workers that claim and settle at the same time, no place under a limit is lost or given twice."""
        store.limit(EACH, Limit(1))
        for number in range(20):
            put(store, 10, lane=f"tenant {number}")
        with ThreadPoolExecutor(3) as workers:
            done = list(workers.map(lambda owner: worked_off(store, owner), ("ann", "bob", "eve")))
        assert sum(done) + worked_off(store, "sum") == 200

    def test_what_comes_beside_a_claim_is_found(self, store: Store) -> None:
        """A job is found even if it comes into a lane that a claim finds empty or full at that moment."""
        store.limit(EACH, Limit(1))

        def enqueue() -> None:
            for number in range(150):
                put(store, lane=f"tenant {number % 7}", priority=number % 2)

        with ThreadPoolExecutor(3) as workers:
            done = [workers.submit(worked_off, store, owner) for owner in ("ann", "bob")]
            workers.submit(enqueue).result()
        assert sum(one.result() for one in done) + worked_off(store, "sum") == 150

    def test_keys_take_turns(self, store: Store) -> None:
        """A key with many jobs, all of them older, does not delay the others."""
        put(store, 100, lane="a", due=NOW - 5 * SECOND)
        put(store, 2, lane="b")
        put(store, 2, lane="c")
        first = [job.lane for job in taken(store, 3)]
        assert sorted(map(str, first)) == ["a", "b", "c"]
        turns = [taken(store, 1)[0].lane for _ in range(4)]
        assert sorted(map(str, turns[:3])) == ["a", "b", "c"]
        assert turns[3] == "a"

    def test_the_keys_share_a_limit_of_the_task(self, store: Store) -> None:
        """Both limits hold: that of the task, and that of each key."""
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
        """In no period, wherever it begins; and all that may start do start."""
        # More than one at a moment, as from 40 on; and more than two periods.
        store.limit(name, Limit(None, 40, 10 * SECOND))
        put(store, 150, lane="")
        starts: list[int] = []
        now = NOW
        while len(starts) < 90:
            answer = exchanged(store, now)
            starts += [now] * len(answer.jobs)
            if not answer.jobs:
                assert answer.next_due is not None
                assert answer.next_due > now
                now = answer.next_due
        # A period may begin at any start, so each of them is checked.
        assert max(sum(at <= other < at + 10 * SECOND for other in starts) for at in starts) <= 40
        assert now <= NOW + 25 * SECOND

    def test_the_limits_are_told_with_their_use(self, store: Store) -> None:
        """By name, with their levels."""
        store.limit(TASK, Limit(3))
        put(store, 5, lane="")
        taken(store, 2)
        assert store.limits() == {TASK: (Limit(3), Level(2))}
