"""Leases, holds, pruning."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

from msgspec.structs import replace

from tarry.model import lifecycle
from tarry.model.duration import DAY, HOUR
from tarry.model.job import Job, State
from tarry.model.lifecycle import DEFAULT
from tarry.model.outcome import Lost, Released, Returned
from tarry.store.conformance.cases.jobs import (
    LEASE,
    NOW,
    PLENTY,
    WAITING,
    Promises,
    ids,
    in_state,
    made,
    running,
    seen,
    settle,
    taken,
)
from tarry.store.rules.base import NORMAL, Query, Store, Want
from tarry.store.rules.ids import uuid7


class Owning(Promises):
    """Leases, holds, pruning."""

    def test_a_lease_runs_out(self, store: Store) -> None:
        """Within half a lease no jobs count as lost; after the lease all do, but they stay as they are."""
        (job,) = running(store)
        assert store.reclaim(NOW + LEASE // 2 - 1) == []
        assert store.reclaim(NOW + LEASE) == [job]
        assert store.get([job.id]) == [job]

    def test_extend_keeps(self, store: Store) -> None:
        """One call prolongs the lease on all jobs of the owner."""
        jobs = running(store, 3)
        later = NOW + LEASE - 1
        assert store.extend("ann", [(job.id, job.epoch) for job in jobs], LEASE, later) == []
        assert store.reclaim(later + LEASE // 2 - 1) == []
        assert sorted(ids(store.reclaim(later + LEASE))) == sorted(ids(jobs))

    def test_a_claim_prolongs_too(self, store: Store) -> None:
        """An owner that still gets jobs keeps those that it has."""
        jobs = [replace(made(store)[0], id=id) for id in self.together(store, 2)]
        store.insert(jobs)
        assert len(taken(store, limit=1)) == 1
        assert len(taken(store, limit=1, now=NOW + LEASE - 1)) == 1
        assert store.reclaim(NOW + LEASE) == []

    def test_extend_tells_what_is_no_longer_owned(self, store: Store) -> None:
        """Jobs that are cancelled, settled, claimed by another owner, claimed again by this one, or unknown."""
        kept, cancelled, settled, stolen, renewed = jobs = running(store, 5)
        assert store.apply([lifecycle.cancel(cancelled, DEFAULT, NOW)], NOW) == [True]
        settle(store, settled, Returned())
        settle(store, stolen, Lost())
        assert ids(taken(store, owner="bob")) == [stolen.id]
        settle(store, renewed, Released())
        assert ids(taken(store)) == [renewed.id]
        unknown = uuid7()
        lost = store.extend("ann", [*((job.id, job.epoch) for job in jobs), (unknown, 1)], LEASE, NOW)
        assert sorted(lost) == sorted([cancelled.id, settled.id, stolen.id, renewed.id, unknown])
        assert store.extend("ann", {(kept.id, kept.epoch), (renewed.id, 2)}, LEASE, NOW) == []

    def test_extend_tells_what_is_anothers(self, store: Store) -> None:
        """Also if the epoch is the same, as after the store lost a claim."""
        mine, others = running(store), running(store, 2, owner="bob")
        held = [(job.id, job.epoch) for job in (*mine, *others)]
        assert sorted(store.extend("ann", held, LEASE, NOW)) == sorted(ids(others))
        assert store.extend("bob", held, LEASE, NOW) == ids(mine)

    def test_reclaim_by_owner(self, store: Store) -> None:
        """All jobs of this owner, whatever its lease says, and no others."""
        # For an owner that is known to be gone: nobody has to wait for its lease.
        gone = running(store, 2, owner="ann")
        kept = running(store, owner="bob")
        assert sorted(store.owners()) == ["ann", "bob"]
        assert sorted(ids(store.reclaim(NOW, of="ann"))) == sorted(ids(gone))
        assert ids(store.reclaim(NOW, of="bob")) == ids(kept)
        assert store.reclaim(NOW, of="nobody") == []
        assert len(store.reclaim(NOW, of="ann", limit=1)) == 1
        assert len(store.reclaim(NOW + LEASE, limit=2)) == 2

    def test_owners_hold_running_jobs(self, store: Store) -> None:
        """An owner without running jobs is not listed."""
        (job,) = running(store)
        settle(store, job, Returned())
        assert store.owners() == []

    def test_of_two_rescuers_one_wins(self, store: Store) -> None:
        """Two keepers see the lost job and both change it: the second change is not valid."""
        running(store)
        (first,), (second,) = store.reclaim(NOW + LEASE), store.reclaim(NOW + LEASE)
        settle(store, first, Lost(), now=NOW + LEASE)
        assert store.apply([lifecycle.after(second, Lost(on=True), DEFAULT, NOW)], NOW) == [False]
        assert (seen(store, first).state, seen(store, first).crashes) == (State.READY, 0)

    def test_a_worker_that_lost_its_lease_cannot_settle(self, store: Store) -> None:
        """Not while the job waits again, nor while another worker runs it, nor when that worker has finished it."""
        (old,) = running(store)
        late = lifecycle.after(old, Returned(b'"late"'), DEFAULT, NOW)
        settle(store, old, Lost())
        assert store.apply([late], NOW) == [False]
        (new,) = taken(store, owner="bob")
        assert store.apply([late], NOW) == [False]
        assert settle(store, new, Returned(b'"good"')).note == b'"good"'
        assert store.apply([late], NOW) == [False]
        assert seen(store, old).note == b'"good"'

    def test_hold(self, store: Store) -> None:
        """A named lease has one holder, which may prolong it or give it back; others wait until it has run out."""
        assert store.hold("chores", "ann", NOW + 10, NOW)
        assert not store.hold("chores", "bob", NOW + 10, NOW + 9)
        assert store.hold("other", "bob", NOW + 10, NOW)
        assert store.hold("chores", "ann", NOW + 20, NOW + 9)
        assert not store.hold("chores", "bob", NOW + 30, NOW + 19)
        assert store.hold("chores", "bob", NOW + 30, NOW + 20)
        assert not store.hold("chores", "ann", NOW + 40, NOW + 20)
        assert store.hold("chores", "bob", NOW + 21, NOW + 21)
        assert store.hold("chores", "ann", NOW + 40, NOW + 21)

    def test_what_was_held_while_a_clock_was_ahead_is_free(self, store: Store) -> None:
        """Nobody waits for a year until its holder, which is gone, holds it no more."""
        year = 365 * DAY
        assert store.hold("chores", "ann", NOW + year + 10, NOW + year)
        assert store.hold("chores", "bob", NOW + 10, NOW)
        assert not store.hold("chores", "ann", NOW + 10, NOW)
        assert store.hold("longest", "ann", NOW + DAY, NOW)
        assert not store.hold("longest", "bob", NOW + 10, NOW)

    def test_one_of_those_who_come_at_once_holds(self, store: Store) -> None:
        """Also where nobody has held that lease before."""
        start = Barrier(3)

        def hold(owner: str, number: int) -> bool:
            start.wait(60)
            return store.hold(f"chores {number}", owner, NOW + 10, NOW)

        with ThreadPoolExecutor(3) as owners:
            for number in range(20):
                held = [owners.submit(hold, owner, number) for owner in ("ann", "bob", "eve")]
                assert sum(one.result() for one in held) == 1

    def test_facts(self, store: Store) -> None:
        """Diagnostics have unique names, and durability is one of them."""
        facts = store.diagnostics()
        names = [fact.name for fact in facts]
        assert len(set(names)) == len(names)
        assert any(name.endswith("durability") for name in names)
        for fact in facts:
            assert fact.number >= 0
            assert all(text.isprintable() for text in (fact.name, fact.value, fact.advice))

    def test_prune_by_time(self, store: Store) -> None:
        """Finished jobs are deleted once their `keep_until` has come, not before; unfinished ones never."""
        old, new = running(store, 2)
        settle(store, old, Returned(), now=NOW)
        settle(store, new, Returned(), now=NOW + 1)
        for state in (State.RUNNING, *WAITING):
            in_state(store, state)
        assert store.prune(NOW + HOUR - 1, PLENTY) == 0
        assert store.prune(NOW + HOUR, PLENTY) == 1
        assert store.get([old.id]) == [None]
        assert store.prune(NOW + 9999 * HOUR, PLENTY) == 1
        assert {job.state for job in store.find(Query())} == {State.RUNNING, *WAITING}

    def test_leaving(self, store: Store) -> None:
        """The finished jobs that may be deleted in a span of time, the earliest first, at most as many as asked for."""
        jobs = [job for queue in ("a", "b") for job in self.finished(store, queue, 30)]
        in_state(store, State.READY)
        start, end = NOW + HOUR + 3, NOW + HOUR + 27
        expected = sorted(
            (job for job in jobs if start <= job.keep_until < end), key=lambda job: (job.keep_until, job.id)
        )
        assert store.expiring(start, end, 1000) == expected
        assert store.expiring(start, end, 5) == expected[:5]
        assert store.expiring(0, NOW + HOUR, 1000) == store.expiring(end, start, 1000) == []
        store.prune(NOW + HOUR + 5, PLENTY)
        assert store.expiring(start, end, 1000) == [job for job in expected if job.keep_until > NOW + HOUR + 5]

    def test_prune_by_bytes(self, store: Store) -> None:
        """If a queue keeps too many bytes, its jobs with the earliest `keep_until` are deleted, no more than needed."""
        jobs = self.finished(store, "default", 6)
        others = self.finished(store, "slow", 3)
        assert store.prune(NOW, 600 * self.shards) == 0
        assert store.prune(NOW, 350 * self.shards) == 3
        assert [job is None for job in store.get(ids(jobs))] == [True] * 3 + [False] * 3
        assert None not in store.get(ids(others))

    def test_prune_by_time_counts_for_the_bytes(self, store: Store) -> None:
        """Jobs that are deleted because of their time no longer count for the bytes: the others fit and stay."""
        jobs = self.finished(store, "default", 6)
        assert store.prune(NOW + HOUR + 2, 300 * self.shards) == 3
        assert [job is None for job in store.get(ids(jobs))] == [True] * 3 + [False] * 3

    def test_prune_by_the_bytes_of_each_queue(self, store: Store) -> None:
        """A queue's own limit counts for it, whether it is higher or lower than that of the others."""
        more, fewer, plain = (self.finished(store, queue, 4) for queue in ("more", "fewer", "plain"))
        said = {"more": 300 * self.shards, "fewer": 100 * self.shards, "none": 0}
        assert store.prune(NOW, 200 * self.shards, by_queue=said) == 1 + 3 + 2
        for jobs, gone in ((more, 1), (fewer, 3), (plain, 2)):
            assert [job is None for job in store.get(ids(jobs))] == [True] * gone + [False] * (4 - gone)

    def test_prune_a_bounded_number(self, store: Store) -> None:
        """At most `limit` jobs in a call, by time and bytes together, the earliest first."""
        jobs = self.finished(store, "default", 6)
        assert store.prune(NOW + HOUR + 1, 0, limit=3) == 3
        assert [job is None for job in store.get(ids(jobs))] == [True] * 3 + [False] * 3
        assert store.prune(NOW + HOUR + 1, 0) == 3

    def finished(self, store: Store, queue: str, count: int) -> list[Job]:
        """Jobs of one shard with 100 bytes each that finished one microsecond after the other."""
        start = made(store, body=b"x" * 90, queue=queue)[0]
        store.insert([replace(start, id=id) for id in self.together(store, count)])
        jobs = store.claim([Want(queue, NORMAL, count)], count, "ann", LEASE, NOW)
        # At different times, so that the order of their deletion is known.
        return [settle(store, job, Returned(b"y" * 10), now=NOW + n) for n, job in enumerate(jobs)]
