"""Apply and exchange: the fence."""

from itertools import product
from typing import Any

import pytest
from msgspec.structs import replace

from tarry.model import lifecycle
from tarry.model.change import Change
from tarry.model.duration import HOUR, SECOND
from tarry.model.job import Job, State
from tarry.model.lifecycle import DEFAULT, Rules
from tarry.model.outcome import Released, Returned, Snoozed
from tarry.store.conformance.cases.jobs import (
    ALONE,
    EVERYTHING,
    FAILED,
    FINISHED,
    LEASE,
    NOW,
    RETRY,
    WAITING,
    Promises,
    ids,
    in_state,
    put,
    running,
    seen,
    settle,
)
from tarry.store.rules.base import HIGH, LOW, Query, Store, Want
from tarry.store.rules.ids import uuid7


def fresh(job: Job, to: State | None, **other: Any) -> Change:
    """A valid change of the job, except for the fields in `other`."""
    change = Change(job.id, job.state, job.epoch, to, NOW, NOW + 1, 3, 2, NOW + HOUR, b"changed", owner=job.owner)
    return replace(change, **other)


class Changing(Promises):
    """Apply and exchange: the fence."""

    @pytest.mark.parametrize("state", ALONE)
    def test_stale_never_wins(self, store: Store, state: State) -> None:
        """A change that expects another state or another epoch is not made, whatever it wants."""
        job = in_state(store, state)
        for was, step, to in product(ALONE, (-1, 0, 1), (*FINISHED, *WAITING, None)):
            if (was, step) != (state, 0):
                # Neither a later nor an earlier epoch is right, and not even for a change that deletes.
                stale = fresh(job, to, was=was, epoch=job.epoch + step)
                assert store.apply([stale], NOW) == [False], stale
        assert seen(store, job) == job

    @pytest.mark.parametrize("to", [*FINISHED, *WAITING, None])
    def test_another_owner_never_wins(self, store: Store, to: State | None) -> None:
        """A worker changes nothing in another's attempt, also if the epoch is the same; nor does a change with an
        empty owner, or with a part of a name."""
        # A store that lost a claim, as at a failover, gives the job again with the same epoch.
        (job,) = running(store, owner="bob")
        for owner in ("ann", "", "bo", "bobby", "Bob", "bob "):
            assert store.apply([fresh(job, to, owner=owner)], NOW) == [False], owner
            assert store.apply([fresh(job, to, owner=owner, due=None)], NOW) == [False], owner
        assert seen(store, job) == job
        assert store.apply([fresh(job, to)], NOW) == [True]

    def test_a_taker_gives_back_and_buries_with_another_priority(self, store: Store) -> None:
        """The end of an attempt may change the priority; the job is then claimed by the new one."""
        back, aside = running(store, 2, priority=7)
        changes = [lifecycle.give_back(back, NOW, priority=-5), lifecycle.bury(aside, DEFAULT, NOW, priority=-9)]
        assert store.apply(changes, NOW) == [True, True]
        assert (seen(store, back).priority, seen(store, aside).priority) == (-5, -9)
        assert store.claim([Want("default", HIGH, 9)], 9, "ann", LEASE, NOW) == []
        (again,) = store.claim([Want("default", LOW, 9)], 9, "ann", LEASE, NOW)
        assert (again.id, again.epoch) == (back.id, 2)
        assert store.apply([lifecycle.run_now(seen(store, aside), NOW)], NOW) == [True]
        assert ids(store.claim([Want("default", LOW, 9)], 9, "ann", LEASE, NOW)) == [aside.id]

    @pytest.mark.parametrize("state", ALONE)
    @pytest.mark.parametrize("to", [*FINISHED, *WAITING])
    def test_fresh_is_made(self, store: Store, state: State, to: State) -> None:
        """A change that finds the job as expected is made; the job then has no owner."""
        job = in_state(store, state)
        change = fresh(job, to)
        assert store.apply([change], NOW) == [True]
        after = seen(store, job)
        assert (after.state, after.due, after.failures, after.crashes) == (to, NOW + 1, 3, 2)
        assert (after.note, after.owner, after.epoch) == (b"changed", "", job.epoch)

    def test_a_batch_is_answered_change_by_change(self, store: Store) -> None:
        """A stale change does not spoil the others; the second of two equal ones is stale."""
        one, two, three, four = running(store, 4)
        settle(store, two, Returned())
        ends = [lifecycle.after(job, Returned(), DEFAULT, NOW) for job in (one, two, three, one)]
        unknown = replace(ends[0], id=uuid7())
        forgets = fresh(four, None)
        valid = store.apply([*ends, unknown, forgets, forgets], NOW)
        assert valid == [True, False, True, False, False, True, False]

    def test_applied_again_after_a_lost_reply(self, store: Store) -> None:
        """In the same batch sent again no change is valid, and the jobs stay as the first batch made them."""
        jobs = running(store, 10)
        changes = [lifecycle.after(job, Returned(b"1"), DEFAULT, NOW) for job in jobs]
        assert store.apply(changes, NOW) == [True] * 10
        before = store.get(ids(jobs))
        assert store.apply(changes, NOW) == [False] * 10
        assert store.get(ids(jobs)) == before

    def test_every_field_of_a_change_is_made(self, store: Store) -> None:
        """Finished: kept until its time. Retried: scheduled, with its failure. Moved: another queue, another rank."""
        failed, done = running(store, 2)
        after = settle(store, failed, FAILED, RETRY, NOW + 5)
        assert (after.state, after.due, after.failures) == (State.SCHEDULED, NOW + 5 + 10 * SECOND, 1)
        assert (after.state_since, after.owner, after.note) == (NOW + 5, "", FAILED.note)
        done = settle(store, done, Returned(b"7"), now=NOW + 6)
        assert (done.state, done.state_since, done.keep_until, done.note) == (State.DONE, NOW + 6, NOW + 6 + HOUR, b"7")
        assert done.due == NOW
        moved = lifecycle.move(after, NOW + 7, due=NOW + 6, queue="slow", priority=4)
        assert store.apply([moved], NOW + 7) == [True]
        (job,) = store.claim([Want("slow", HIGH, 1)], 1, "ann", LEASE, NOW + 7)
        assert (job.id, job.queue, job.priority, job.due) == (failed.id, "slow", 4, NOW + 6)

    def test_a_retried_job_keeps_its_line(self, store: Store) -> None:
        """A change that names no queue and no priority leaves both."""
        put(store, queue="slow", priority=3)
        (job,) = store.claim([Want("slow", HIGH, 1)], 1, "ann", LEASE, NOW)
        after = settle(store, job, Snoozed(5 * SECOND))
        assert (after.queue, after.priority, after.due) == ("slow", 3, NOW + 5 * SECOND)

    def test_forgotten(self, store: Store) -> None:
        """A deleted job is gone for every verb."""
        job = in_state(store, State.DEAD)
        assert store.apply([lifecycle.forget(job)], NOW) == [True]
        assert (store.get([job.id]), store.find(Query()), store.counts()) == ([None], [], [])

    def test_not_kept_is_forgotten_at_once(self, store: Store) -> None:
        """A rule that keeps nothing deletes a job that is done."""
        (job,) = running(store)
        assert store.apply([lifecycle.after(job, Returned(), Rules(keep_done=0), NOW)], NOW) == [True]
        assert store.get([job.id]) == [None]

    def test_exchange_is_apply_then_claim(self, store: Store) -> None:
        """A job that is given back is claimed in the same call; the answer says what was valid and what is due next."""
        one, two = running(store, 2)
        (late,) = put(store, due=NOW + HOUR)
        changes = [lifecycle.after(one, Released(), DEFAULT, NOW), lifecycle.after(two, Returned(), DEFAULT, NOW)]
        answer = store.exchange([*changes, changes[0]], EVERYTHING, 5, "bob", LEASE, NOW)
        assert answer.valid == [True, True, False]
        assert [(job.id, job.epoch, job.owner) for job in answer.jobs] == [(one.id, 2, "bob")]
        assert answer.next_due == late.due
        assert store.get([one.id]) == answer.jobs

    def test_exchange_without_room_only_applies(self, store: Store) -> None:
        """A limit of 0 claims nothing; no changes and no wants are fine."""
        (job,) = running(store)
        put(store)
        answer = store.exchange([lifecycle.after(job, Returned(), DEFAULT, NOW)], EVERYTHING, 0, "ann", LEASE, NOW)
        assert (answer.valid, answer.jobs, answer.next_due) == ([True], [], None)
        assert store.exchange([], [], 5, "ann", LEASE, NOW).jobs == []

    @pytest.mark.parametrize("run", [False, True])
    @pytest.mark.parametrize("state", [*WAITING, State.DEAD, State.CANCELLED])
    def test_of_two_edits_the_second_is_refused(self, store: Store, state: State, run: bool) -> None:
        """Each was made of the same job as it was seen. The first is made whole: arguments, bytes, and nothing else."""
        job = in_state(store, state)
        first, second = (lifecycle.edit(job, b'["other %d"]' % number, NOW, run=run) for number in (1, 2))
        assert store.apply([first, second], NOW) == [True, False]
        edited = seen(store, job)
        assert edited.body == b'["other 1"]'
        assert sum(tally.bytes for tally in store.counts()) == edited.size
        if run:
            assert (edited.state, edited.failures if state is State.DEAD else 0) == (State.READY, 0)
        else:
            same = replace(edited, body=job.body, due=job.due)
            assert (same, edited.due - job.due) == (job, 1)

    def test_an_edit_of_a_job_that_was_claimed_or_moved_meanwhile_is_refused(self, store: Store) -> None:
        """Whoever edits has seen another job."""
        job, other = put(store, 2)
        edits = [lifecycle.edit(one, b"[7]", NOW) for one in (job, other)]
        assert store.apply([lifecycle.move(other, NOW, due=NOW + HOUR)], NOW) == [True]
        (claimed,) = store.claim([Want("default", 0, 1)], 1, "somebody", LEASE, NOW)
        assert store.apply(edits, NOW) == [False, False]
        assert (claimed.id, claimed.body) == (job.id, job.body)
