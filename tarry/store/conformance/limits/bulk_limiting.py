"""The limits once more, for many jobs at once and for jobs without a lane."""

import threading
import time

import pytest
from msgspec.structs import replace

from tarry.model import lifecycle
from tarry.model.job import Job
from tarry.model.lifecycle import DEFAULT, Rules
from tarry.model.limit import Limit
from tarry.model.outcome import Lost, Outcome, Released, Returned
from tarry.store.conformance.cases.jobs import (
    AGAIN,
    ENDS,
    EVERYTHING,
    FAILED,
    FORGETS,
    LEASE,
    NOW,
    RETRY,
    Promises,
    ids,
    made,
    outcomes,
    put,
    running,
    side_by_side,
    taken,
)
from tarry.store.rules.base import Store, Want

QUEUE = "queue:default"
# A hundred times what they need: a test that hangs must end, but a slow machine must not fail it.
WITHIN = 60.0
"""Seconds that claimers side by side may take."""
WAYS = [(outcome, DEFAULT) for outcome in (*ENDS, *AGAIN)] + [(outcome, FORGETS) for outcome in ENDS[1:]]


class BulkLimiting(Promises):
    """A queue's limit, many at once; most jobs under it have no lane."""

    @pytest.mark.parametrize(("outcome", "rules"), WAYS)
    def test_an_end_gives_its_place_back(self, store: Store, outcome: Outcome, rules: Rules) -> None:
        """However a job without a lane ends, alone, one more of its queue may start, and one only."""
        store.limit(QUEUE, Limit(4 * self.shards))
        put(store, 100 * self.shards)
        first = taken(store)
        assert len(first) == 4 * self.shards
        assert taken(store) == []
        for job in first[:3]:
            assert outcomes(store, [job], outcome, rules) == [True]
            assert len(taken(store)) == 1
            assert taken(store) == []
        assert store.limits()[QUEUE][1].running == 4 * self.shards

    @pytest.mark.parametrize("name", [QUEUE, "task:mail"])
    def test_what_shares_leave_is_claimed_in_the_same_call(self, store: Store, name: str) -> None:
        """Each band gets its share, then both have the rest: no job is claimed or counted twice."""
        store.limit(name, Limit(100 * self.shards))
        for number in range(20):
            put(store, lane="ab"[number // 2 % 2], priority=number % 2)
        wants = [Want("default", 1, 2), Want("default", 0, 3)]
        jobs = store.claim(wants, 15, "ann", LEASE, NOW)
        assert len(jobs) > 5
        for _ in range(8):
            assert len({job.id for job in jobs}) == len(jobs) == store.limits()[name][1].running
            jobs += store.claim(wants, 15, "ann", LEASE, NOW)
        assert len(jobs) == 20

    @pytest.mark.parametrize("count", [4, 200])
    @pytest.mark.parametrize(("outcome", "rules"), WAYS)
    def test_many_ends_give_their_places_back(self, store: Store, count: int, outcome: Outcome, rules: Rules) -> None:
        """As many as ended may start, and no more; late and repeated outcomes give nothing back."""
        most = count * self.shards
        store.limit(QUEUE, Limit(most))
        # Shards get jobs by chance: with so many more, six standard deviations, none of them has too few.
        put(store, 2 * most + 120 * self.shards)
        first = taken(store)
        assert len(first) == most
        assert outcomes(store, [replace(job, owner="bob") for job in first], outcome, rules) == [False] * most
        assert store.limits()[QUEUE][1].running == most
        assert outcomes(store, first, outcome, rules) == [True] * most
        assert store.limits()[QUEUE][1].running == 0
        assert outcomes(store, first, outcome, rules) == [False] * most
        assert outcomes(store, [replace(job, owner="bob") for job in first], Lost()) == [False] * most
        assert store.limits()[QUEUE][1].running == 0
        assert len(taken(store, owner="bob")) == most
        assert taken(store) == []
        assert outcomes(store, first, Returned()) == [False] * most
        assert store.limits()[QUEUE][1].running == most

    def test_lanes_and_the_open_line_are_one(self, store: Store) -> None:
        """Of jobs with and without a lane the one that is due earlier comes first."""
        if self.shards > 1:
            pytest.skip("a lane is on the shard of its key: the order between shards is not promised")
        start = made(store)[0]
        dues = list(zip(self.together(store, 12), [3, 9, 1, 7, 5, 11, 2, 8, 4, 10, 6, 12], strict=True))
        jobs = [
            replace(start, id=id, due=NOW - due, task="fair" if n % 3 else "mail", lane="a" if n % 3 else None)
            for n, (id, due) in enumerate(dues)
        ]
        store.insert(jobs)
        got = [job.due for _ in range(12) for job in taken(store, 1)]
        assert got == sorted(job.due for job in jobs)

    def test_ends_with_and_without_a_lane(self, store: Store) -> None:
        """A batch of both gives back what each took: of the queue, the task and the key."""
        names = [QUEUE, "task:mail", "each:mail"]
        for name in names:
            store.limit(name, Limit(80 * self.shards))
        put(store, 20, lane="a")
        put(store, 20, lane="b")
        put(store, 20, task="other")
        jobs = taken(store)
        assert len(jobs) == 60
        told = store.limits()
        assert [told[name][1].running for name in names[:2]] == [60, 40]
        assert outcomes(store, jobs[::2], Returned()) == [True] * 30
        assert outcomes(store, jobs, FAILED, RETRY) == [n % 2 == 1 for n in range(60)]
        told = store.limits()
        assert [told[name][1].running for name in names[:2]] == [0, 0]

    def test_ends_and_starts_in_one_call(self, store: Store) -> None:
        """What ends in an exchange makes room for what it claims, to the full limit and not beyond."""
        most = 50 * self.shards
        store.limit(QUEUE, Limit(most))
        put(store, 12 * most)
        jobs = taken(store)
        for _ in range(4):
            assert len(jobs) == most
            changes = [lifecycle.after(job, Returned(), DEFAULT, NOW) for job in jobs]
            answer = store.exchange(changes, EVERYTHING, 10**6, "ann", LEASE, NOW)
            assert answer.valid == [True] * most
            jobs = answer.jobs
        assert store.limits()[QUEUE][1].running == most

    @pytest.mark.parametrize("limited", [False, True])
    def test_claimers_side_by_side(self, store: Store, limited: bool) -> None:
        """Four workers end and claim jobs in batches: each job is given and ended once, never more run at once than the
        limit allows, and in the end the limit is unused."""
        total, most = 1500, 24 * self.shards
        if limited:
            store.limit(QUEUE, Limit(most))
        jobs = put(store, total)
        lock, on, given, ended, highest = threading.Lock(), set[bytes](), list[bytes](), list[bytes](), [0]
        over = threading.Event()

        def work(number: int) -> None:
            held: list[Job] = []
            end = time.monotonic() + WITHIN
            while not over.is_set():
                assert time.monotonic() < end, f"{len(ended)} of {total} ended"
                changes = [lifecycle.after(job, Returned(), DEFAULT, NOW) for job in held]
                with lock:
                    # Before the call: once a job has ended in the store, another worker may start the next one.
                    on.difference_update(ids(held))
                room = 3 + 11 * number
                answer = store.exchange(changes, EVERYTHING, room, f"worker {number}", LEASE, NOW)
                assert answer.valid == [True] * len(changes)
                with lock:
                    ended.extend(ids(held))
                    given.extend(ids(answer.jobs))
                    on.update(ids(answer.jobs))
                    highest[0] = max(highest[0], len(on))
                    if len(ended) >= total:
                        over.set()
                held = answer.jobs
                if not held:
                    # Without a pause, a worker that gets nothing would take processor time from the others.
                    over.wait(0.002)

        side_by_side(4, work, over)
        assert sorted(given) == sorted(ended) == sorted(ids(jobs))
        if limited:
            assert highest[0] <= most
            assert store.limits()[QUEUE][1].running == 0

    @pytest.mark.parametrize("limited", [False, True])
    def test_one_batch_sent_by_many(self, store: Store, limited: bool) -> None:
        """If workers settle the same jobs at the same moment, as two keepers do, one of them wins each job."""
        if limited:
            store.limit(QUEUE, Limit(1000 * self.shards))
        jobs = running(store, 400)
        answers: dict[int, list[bool]] = {}

        def work(number: int) -> None:
            answers[number] = outcomes(store, jobs, Released() if number % 2 else FAILED, RETRY)

        side_by_side(6, work)
        assert [sum(made) for made in zip(*answers.values(), strict=True)] == [1] * 400
        if limited:
            assert store.limits()[QUEUE][1].running == 0
