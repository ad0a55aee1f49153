"""Claim: order, bands, time."""

import threading
from collections import Counter
from collections.abc import Sequence

from msgspec.structs import replace

from tarry.model import lifecycle
from tarry.model.duration import HOUR
from tarry.model.job import Job, State
from tarry.model.lifecycle import DEFAULT
from tarry.model.outcome import Released, Returned
from tarry.store.conformance.cases.jobs import (
    LEASE,
    NOW,
    Promises,
    ids,
    in_state,
    made,
    put,
    running,
    seen,
    settle,
    taken,
)
from tarry.store.rules.base import HIGH, LOW, NORMAL, PROMOTED_AT_ONCE, Store, Want


class Claiming(Promises):
    """Claim: order, bands, time."""

    def lined_up(self, store: Store, fields: Sequence[dict[str, int]]) -> list[Job]:
        """Jobs of one shard, inserted from the last to the first."""
        # Backwards, so that the order of a claim cannot come from the order of the inserts.
        at = self.together(store, len(fields))
        jobs = [replace(made(store, **field)[0], id=id) for id, field in zip(at, fields, strict=True)]
        store.insert(jobs[::-1])
        return jobs

    def test_order(self, store: Store) -> None:
        """Of jobs on time: higher priority, then earlier due, then id first, also over several claims."""
        lines = [{"priority": p, "due": NOW - d, "state_since": NOW - d} for p in (7, 1, 0, -1, -9) for d in (5, 0, 0)]
        jobs = self.lined_up(store, lines)
        one, two, three = (taken(store, limit=5) for _ in range(3))
        assert ids(one + two + three) == ids(jobs)

    def test_wants_are_met_in_turn(self, store: Store) -> None:
        """Each want gives up to its count before any gives more."""
        self.lined_up(store, [{"priority": p} for p in (1, 0, -1) for _ in range(10)])
        wants = [Want("default", band, count) for band, count in ((HIGH, 5), (NORMAL, 3), (LOW, 2))]
        got = Counter(job.priority for job in store.claim(wants, 10, "ann", LEASE, NOW))
        assert got == {1: 5, 0: 3, -1: 2}

    def test_what_one_want_leaves_the_others_fill(self, store: Store) -> None:
        """No place stays empty while a want still matches a job; wants fill the rest in turn."""
        self.lined_up(store, [{"priority": p} for p in (1, 0, 0, 0, 0, -1, -1, -1, -1)])
        wants = [Want("default", band, count) for band, count in ((HIGH, 5), (NORMAL, 2), (LOW, 1))]
        assert [job.priority for job in store.claim(wants, 7, "ann", LEASE, NOW)] == [1, 0, 0, 0, 0, -1, -1]

    def test_only_what_is_wanted(self, store: Store) -> None:
        """Neither another queue nor another band is given, however much room there is."""
        (high,) = put(store, priority=3)
        put(store, priority=-3)
        put(store, queue="slow", priority=3)
        assert ids(store.claim([Want("default", HIGH, 10)], 10, "ann", LEASE, NOW)) == [high.id]

    def test_limit(self, store: Store) -> None:
        """Never more than `limit`, whatever the counts sum up to, and never fewer while there are enough."""
        put(store, 5)
        put(store, 5, queue="slow")
        wants = [Want("default", NORMAL, 4), Want("slow", NORMAL, 4), Want("none", NORMAL, 4)]
        assert len(store.claim(wants, 6, "ann", LEASE, NOW)) == 6
        assert len(store.claim(wants, 6, "ann", LEASE, NOW)) == 4

    def test_claimed_is_running_and_not_given_again(self, store: Store) -> None:
        """The answer has the job as it is now: running, with its owner, the next epoch, since now."""
        (job,) = put(store)
        claimed = taken(store, now=NOW + 1)
        assert claimed == [replace(job, state=State.RUNNING, owner="ann", epoch=1, state_since=NOW + 1)]
        assert store.get([job.id]) == claimed
        assert taken(store, owner="bob", now=NOW + 2) == []

    def test_epoch_grows_with_every_claim(self, store: Store) -> None:
        """And nothing else changes it."""
        (job,) = running(store)
        settle(store, job, Released())
        (job,) = taken(store)
        assert job.epoch == 2
        settle(store, job, Returned())
        assert store.apply([lifecycle.run_now(seen(store, job), NOW)], NOW) == [True]
        assert [job.epoch for job in taken(store)] == [3]

    def test_paused(self, store: Store) -> None:
        """A paused queue takes new jobs and gives none, neither ready nor due ones, until it is resumed."""
        store.pause("default", True)
        put(store)
        put(store, due=NOW + 1)
        (slow,) = put(store, queue="slow")
        wants = [Want("default", NORMAL, 5), Want("slow", NORMAL, 5)]
        assert ids(store.claim(wants, 5, "ann", LEASE, NOW + 2)) == [slow.id]
        assert store.queues() == {"default": True}
        store.pause("default", False)
        assert len(store.claim(wants, 5, "ann", LEASE, NOW + 2)) == 2

    def test_a_pause_that_returned_holds_for_claims_that_were_under_way(self, store: Store) -> None:
        """What is put after it is taken by nobody, however busy others claim."""
        stop = threading.Event()

        def claim() -> None:
            while not stop.is_set():
                store.claim([Want("default", NORMAL, 5)], 5, "bob", LEASE, NOW)

        claimers = [threading.Thread(target=claim) for _ in range(2)]
        for claimer in claimers:
            claimer.start()
        try:
            for _ in range(10):
                store.pause("default", True)
                (job,) = put(store)
                assert {seen(store, job).state for _ in range(5)} == {State.READY}
                store.pause("default", False)
        finally:
            stop.set()
            for claimer in claimers:
                claimer.join()

    def test_all_paused(self, store: Store) -> None:
        """Who wants paused queues alone makes no due job ready, also while settling: it stays the next that is due."""
        (job,) = running(store)
        (due,) = put(store, due=NOW + 1)
        store.pause("default", True)
        change = lifecycle.after(job, Returned(), DEFAULT, NOW)
        answer = store.exchange([change], [Want("default", NORMAL, 5)], 5, job.owner, LEASE, NOW + 2)
        assert (answer.valid, answer.jobs, answer.next_due) == ([True], [], NOW + 1)
        assert seen(store, due).state is State.SCHEDULED

    def test_queues(self, store: Store) -> None:
        """A queue is listed while it has ready jobs or is paused; to pause it twice changes nothing."""
        assert store.queues() == {}
        store.pause("empty", True)
        store.pause("empty", True)
        in_state(store, State.DONE)
        running(store)
        put(store, queue="late", due=NOW + HOUR)
        put(store, queue="slow")
        assert store.queues() == {"empty": True, "slow": False}
        store.pause("empty", False)
        store.pause("never", False)
        assert store.queues() == {"slow": False}

    def test_never_early(self, store: Store) -> None:
        """One microsecond before its due time a job is not given; at its due time it is."""
        (job,) = put(store, due=NOW + 1000)
        assert taken(store, now=NOW + 999) == []
        assert seen(store, job).state is State.SCHEDULED
        assert taken(store, now=NOW + 1000) == [
            replace(job, state=State.RUNNING, owner="ann", epoch=1, state_since=NOW + 1000)
        ]

    def test_due_jobs_become_ready(self, store: Store) -> None:
        """A claim makes due jobs of all queues ready, even if it takes none of them; `due` stays."""
        due, later = put(store, due=NOW + 5)[0], put(store, due=NOW + 6)[0]
        assert store.claim([Want("slow", NORMAL, 1)], 1, "ann", LEASE, NOW + 5) == []
        assert store.get([due.id, later.id]) == [replace(due, state=State.READY, state_since=NOW + 5), later]

    def test_due_jobs_keep_their_place_in_line(self, store: Store) -> None:
        """The one that fell due earlier comes first, whether it waited as scheduled or as ready."""
        jobs = self.lined_up(store, [{"due": NOW + at} for at in (2, 3, 4)])
        assert store.apply([lifecycle.move(jobs[1], NOW + 3, due=jobs[1].due)], NOW + 3) == [True]
        assert seen(store, jobs[1]).state is State.READY
        assert ids(taken(store, now=NOW + 9)) == ids(jobs)

    def test_many_due_at_once(self, store: Store) -> None:
        """One claim makes at most so many ready, the earliest first; the next claim the others."""
        scheduled = made(store, PROMOTED_AT_ONCE + 500, due=NOW + 1)
        jobs = [replace(job, due=NOW + 1 + n) for n, job in enumerate(scheduled)]
        store.insert(jobs)
        first = taken(store, now=NOW + 9000)
        assert len(first) <= PROMOTED_AT_ONCE * self.shards
        rest = taken(store, now=NOW + 9000)
        assert ids(first + rest) == ids(jobs)

    def test_many_due_in_another_band_hold_up_nobody(self, store: Store) -> None:
        """More jobs than a claim makes ready fall due before a job of another band: that job gets its turn at once."""
        store.insert(made(store, PROMOTED_AT_ONCE + 200, due=NOW + 1, priority=-1))
        job = replace(made(store)[0], due=NOW + 8, state_since=NOW + 8)
        store.insert([job])
        count = 10 * self.shards
        wants = [Want("default", NORMAL, count), Want("default", LOW, count)]
        first = store.claim(wants, 2 * count, "ann", LEASE, NOW + 9)
        assert job.id in ids(first)
        assert len(first) == 2 * count

    def test_next_due(self, store: Store) -> None:
        """The earliest `due` of a scheduled job; ready and running jobs do not count."""
        assert store.next_due() is None
        for due in (NOW, NOW + 9, NOW + 5):
            put(store, due=due)
        assert store.next_due() == NOW + 5
        taken(store, now=NOW + 5)
        assert store.next_due() == NOW + 9
        taken(store, now=NOW + 9)
        assert store.next_due() is None

    def test_each_job_goes_to_one_claimer(self, store: Store) -> None:
        """Eight threads claim and finish 2,000 jobs: each job is given, and finished, exactly once."""
        self.worked_off(store, put(store, 2000), NOW)

    def test_each_due_job_goes_to_one_claimer(self, store: Store) -> None:
        """Also while all of them make jobs ready whose time has come."""
        jobs = [replace(job, due=NOW + n) for n, job in enumerate(made(store, 2000, due=NOW + 1), 1)]
        store.insert(jobs)
        self.worked_off(store, jobs, NOW + 5000)

    def worked_off(self, store: Store, jobs: Sequence[Job], now: int) -> None:
        """Eight threads claim and finish these."""
        # One list for each thread, so that the threads need no lock.
        given = [list[Job]() for _ in range(8)]
        finished = [list[bool]() for _ in range(8)]

        def work(number: int) -> None:
            while claimed := taken(store, limit=25, owner=f"worker {number}", now=now):
                given[number] += claimed
                changes = [lifecycle.after(job, Returned(), DEFAULT, now) for job in claimed]
                finished[number] += store.apply(changes, now)

        threads = [threading.Thread(target=work, args=[number]) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(job.id for part in given for job in part) == sorted(ids(jobs))
        assert sum(map(sum, finished)) == len(jobs)
