"""The promises of claim, apply and exchange once more, for many jobs at once."""

import threading
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from tarry.model import lifecycle
from tarry.model.duration import HOUR, SECOND
from tarry.model.job import Job, State
from tarry.model.lifecycle import DEFAULT, Rules
from tarry.model.limit import Limit
from tarry.model.outcome import Lost, Outcome, Released, Returned, Snoozed
from tarry.store.conformance.cases.jobs import (
    AGAIN,
    ENDS,
    EVERYTHING,
    FAILED,
    FORGETS,
    LEASE,
    NOW,
    PLENTY,
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
from tarry.store.rules.base import NORMAL, PROMOTED_AT_ONCE, Query, Store, Want

# Stores use other statements for many jobs than for a few, and workers settle jobs by the hundred. Many are more than
# any store takes for a few, also where six shards divide them.
COUNTS = [4, 400]


class Bulk(Promises):
    """Many at once."""

    @pytest.mark.parametrize("count", COUNTS)
    @pytest.mark.parametrize("rules", [DEFAULT, FORGETS])
    def test_late_outcomes_never_win(self, store: Store, count: int, rules: Rules) -> None:
        """All jobs of a worker were taken from it and given to another: its late outcomes change nothing, even when it
        has the jobs again."""
        old = running(store, count)
        assert outcomes(store, old, Lost()) == [True] * count
        new = taken(store, owner="bob")
        assert {(job.id, job.epoch) for job in new} == {(job.id, 2) for job in old}
        for outcome in (*ENDS, *AGAIN):
            assert outcomes(store, old, outcome, rules) == [False] * count, outcome
        assert store.get(ids(new)) == new
        assert outcomes(store, new, Released()) == [True] * count
        own = taken(store)
        assert {(job.id, job.epoch) for job in own} == {(job.id, 3) for job in old}
        for outcome in (*ENDS, *AGAIN):
            assert outcomes(store, old, outcome, rules) == [False] * count, outcome
        assert store.get(ids(own)) == own
        assert outcomes(store, own, Returned()) == [True] * count

    @pytest.mark.parametrize("count", COUNTS)
    @pytest.mark.parametrize("rules", [DEFAULT, FORGETS])
    def test_outcomes_of_another_owner_never_win(self, store: Store, count: int, rules: Rules) -> None:
        """Also if the epoch is the same."""
        # A store that loses a claim, as at a failover, gives the same epoch again.
        jobs = running(store, count, owner="bob")
        others = [replace(job, owner="ann") for job in jobs]
        for outcome in (*ENDS, *AGAIN):
            assert outcomes(store, others, outcome, rules) == [False] * count, outcome
        assert store.get(ids(jobs)) == jobs
        assert outcomes(store, jobs, Returned()) == [True] * count

    @pytest.mark.parametrize("count", COUNTS)
    def test_late_and_good_outcomes_in_one_batch(self, store: Store, count: int) -> None:
        """Each is answered for itself, in the order of the changes."""
        jobs = running(store, count)
        late = jobs[::2]
        outcomes(store, late, Lost())
        taken(store, owner="bob")
        assert outcomes(store, jobs, Returned(b"1")) == [number % 2 == 1 for number in range(count)]
        states = [job.state for job in store.get(ids(jobs)) if job]
        assert states == [State.DONE if number % 2 else State.RUNNING for number in range(count)]

    @pytest.mark.parametrize("count", COUNTS)
    @pytest.mark.parametrize("limited", [False, True])
    def test_each_gets_what_is_its_own(self, store: Store, count: int, limited: bool) -> None:
        """Results, states and times of a batch of different outcomes are not mixed up, under a limit or not."""
        if limited:
            store.limit("queue:default", Limit(10**6))
        jobs = running(store, count)
        kinds: list[Callable[[int], Outcome]] = [
            lambda n: Returned(b"%d" % n),
            lambda n: replace(FAILED, note=b'{"message":"%d"}' % n),
            lambda n: Snoozed((n + 1) * SECOND),
            lambda n: Returned(),
        ]
        ends = [kinds[n % 4](n) for n in range(count)]
        changes = [
            lifecycle.after(job, end, RETRY, NOW + n) for n, (job, end) in enumerate(zip(jobs, ends, strict=True))
        ]
        assert store.apply(changes, NOW + count) == [True] * count
        for change, job in zip(changes, store.get(ids(jobs)), strict=True):
            assert job is not None
            assert (job.state, job.state_since, job.note, job.failures) == (
                change.to,
                change.state_since,
                change.note,
                change.failures,
            )
            assert job.due == (NOW if change.due is None else change.due)

    @pytest.mark.parametrize("count", COUNTS)
    def test_a_repeated_batch_is_stale(self, store: Store, count: int) -> None:
        """A worker sends a batch again after a lost reply. Also if some of its jobs are deleted."""
        jobs = running(store, count)
        half = count // 2
        changes = [lifecycle.after(job, Returned(b"1"), DEFAULT, NOW) for job in jobs[:half]]
        changes += [lifecycle.after(job, Returned(b"1"), FORGETS, NOW) for job in jobs[half:]]
        assert store.apply(changes, NOW) == [True] * count
        before = store.get(ids(jobs))
        assert [job is None for job in before] == [False] * half + [True] * (count - half)
        assert store.apply(changes, NOW) == [False] * count
        assert store.get(ids(jobs)) == before

    # The claim is of more than the thousand that stores read at once.
    @pytest.mark.parametrize("count", [4, 1000])
    def test_what_was_given_back_is_claimed_in_the_same_call(self, store: Store, count: int) -> None:
        """An exchange of many: those that ended stay, those that were given back come again, with new ones."""
        jobs = running(store, count)
        done, back = jobs[: count // 2], jobs[count // 2 :]
        new = put(store, count)
        changes = [lifecycle.after(job, Returned(), DEFAULT, NOW) for job in done]
        changes += [lifecycle.after(job, Released(), DEFAULT, NOW) for job in back]
        answer = store.exchange(changes, EVERYTHING, 10**6, "bob", LEASE, NOW)
        assert answer.valid == [True] * count
        assert {(job.id, job.epoch) for job in answer.jobs} == {
            *((job.id, 2) for job in back),
            *((job.id, 1) for job in new),
        }
        assert store.get(ids(answer.jobs)) == answer.jobs

    @pytest.mark.parametrize("count", COUNTS)
    def test_claimed_by_many(self, store: Store, count: int) -> None:
        """In the order of the line, none left out, none twice; the next claim goes on where this one stopped."""
        start = made(store)[0]
        jobs = [
            replace(start, id=id, due=NOW - n // 3, state_since=NOW - n // 3)
            for n, id in enumerate(self.together(store, count))
        ]
        store.insert(jobs)
        line = [job.id for job in sorted(jobs, key=lambda job: (job.due, job.id))]
        first = taken(store, count // 2 * self.shards)
        assert ids(first) == line[: len(first)]
        assert ids(taken(store)) == line[len(first) :]

    @pytest.mark.parametrize("count", COUNTS)
    def test_finished_ones_come_back(self, store: Store, count: int) -> None:
        """Restarted in one call, they run anew, and a late outcome of their last run changes nothing."""
        old = running(store, count)
        outcomes(store, old, FAILED)
        dead = [job for job in store.get(ids(old)) if job is not None]
        kicks = [lifecycle.run_now(job, NOW) for job in dead]
        assert store.apply(kicks, NOW) == [True] * count
        assert store.apply(kicks, NOW) == [False] * count
        assert outcomes(store, old, Returned()) == [False] * count
        new = taken(store)
        assert {(job.id, job.epoch, job.failures) for job in new} == {(job.id, 2, 0) for job in old}
        assert store.prune(NOW + 9999 * HOUR, PLENTY) == 0

    @pytest.mark.parametrize("count", COUNTS)
    def test_cancelled_while_they_run(self, store: Store, count: int) -> None:
        """All at once; outcomes of their worker are too late then."""
        jobs = running(store, count)
        assert store.apply([lifecycle.cancel(job, DEFAULT, NOW) for job in jobs], NOW) == [True] * count
        assert outcomes(store, jobs, Returned()) == [False] * count
        assert {job.state for job in store.get(ids(jobs)) if job} == {State.CANCELLED}
        assert store.reclaim(NOW + HOUR) == []

    @pytest.mark.parametrize("count", COUNTS)
    def test_keys_are_free_again(self, store: Store, count: int) -> None:
        """When jobs with keys end together, each gives up its own key and no other."""
        jobs = [made(store, key=f"k{n}")[0] for n in range(count)]
        assert store.insert(jobs) == ids(jobs)
        again = [made(store, key=f"k{n}")[0] for n in range(count)]
        assert store.insert(again) == ids(jobs)
        claimed = {job.id: job for job in taken(store)}
        assert outcomes(store, [claimed[job.id] for job in jobs[::2]], Returned()) == [True] * len(jobs[::2])
        expected = [again[n].id if n % 2 == 0 else jobs[n].id for n in range(count)]
        assert store.insert(again) == expected

    def test_due_ones_of_all_priorities_become_ready_in_order(self, store: Store) -> None:
        """If more are due than one claim makes ready, it is the earliest, whatever their priority."""
        start, count = made(store, due=NOW + 1)[0], PROMOTED_AT_ONCE + 200
        drawn = self.together(store, 2 * count)
        jobs = [replace(start, id=id, due=NOW + 1 + n, priority=n % 2 * 5) for n, id in enumerate(drawn)]
        store.insert(jobs)
        assert store.claim([Want("other", NORMAL, 1)], 1, "ann", LEASE, NOW + 10**6) == []
        ready = {job.id for job in store.find(Query(states=(State.READY,), limit=10**6))}
        assert len(ready) == PROMOTED_AT_ONCE
        assert ready == set(ids(jobs[:PROMOTED_AT_ONCE]))

    def test_due_ones_are_claimed_side_by_side(self, store: Store) -> None:
        """If claimers make the same jobs ready at the same moment, each job goes to one of them."""
        rounds, claimers = 25, 4
        jobs = [job for n in range(rounds) for job in put(store, 20, due=NOW + 1 + n)]
        given, start = [list[Job]() for _ in range(claimers)], threading.Barrier(claimers)

        def work(number: int) -> None:
            for n in range(rounds):
                # All begin a round at the same moment: only then do they make the same jobs ready.
                start.wait(60)
                given[number] += taken(store, 20, f"worker {number}", NOW + 1 + n)

        side_by_side(claimers, work)
        # A claim may get fewer than there are while others claim.
        while rest := taken(store, now=NOW + rounds):
            given[0] += rest
        assert sorted(job.id for part in given for job in part) == sorted(ids(jobs))
        assert {job.epoch for part in given for job in part} == {1}
