"""Changes that several made at once, each from what it saw before the others changed it; and a newer job that takes the
key of another, which may have changed meanwhile."""

from collections.abc import Callable
from itertools import permutations
from typing import Any

import pytest
from msgspec.structs import replace

from tarry.model import lifecycle
from tarry.model.change import CANCELLED, PUT, Change
from tarry.model.duration import HOUR
from tarry.model.job import HELD, Job, State
from tarry.model.lifecycle import DEFAULT
from tarry.model.limit import Limit
from tarry.model.outcome import Released, Returned
from tarry.model.overrides import with_followed
from tarry.store.conformance.cases.jobs import (
    ALONE,
    FINISHED,
    FORGETS,
    LEASE,
    NOW,
    WAITING,
    Promises,
    in_state,
    made,
    put,
    running,
    seen,
    settle,
    side_by_side,
    taken,
)
from tarry.store.conformance.counting import kinds
from tarry.store.rules import kept_places
from tarry.store.rules.base import Query, Store

DecideRace = Callable[[Job], Change]


def postponing(due: int, expires: int = 0) -> DecideRace:
    return lambda job: lifecycle.postpone(job, replace(job, due=due, expires=expires), NOW)


def decide(store: Store, first: Job, decision: DecideRace) -> Job:
    """Makes a change as a client does: from what it saw, and if that is not so any more, from a new look."""
    job = first
    for _ in range(50):
        if store.apply([decision(job)], NOW) == [True]:
            return seen(store, job)
        job = seen(store, job)
    raise AssertionError("changed all the time")


class Racing(Promises):
    """Several changes from one look at a job."""

    @pytest.mark.parametrize("state", ALONE)
    @pytest.mark.parametrize("to", [*FINISHED, *WAITING, None])
    def test_a_change_that_names_times_needs_them(self, store: Store, state: State, to: State | None) -> None:
        """It is made if, and only if, due time and expiry are as they were seen."""
        job = in_state(store, state, expires=NOW + 9 * HOUR)
        change = Change(job.id, job.state, job.epoch, to, NOW, None, owner=job.owner)
        for times in ((job.due + 1, job.expires), (job.due, job.expires + 1), (job.due, 0), (0, job.expires)):
            assert store.apply([replace(change, seen_times=times)], NOW) == [False], times
        assert seen(store, job) == job
        assert store.apply([replace(change, seen_times=(job.due, job.expires))], NOW) == [True]
        assert [job.state for job in store.get([job.id]) if job] == ([] if to is None else [to])

    @pytest.mark.parametrize("mixed", [False, True])
    def test_among_many_only_those_with_other_times_fail(self, store: Store, mixed: bool) -> None:
        """Also beside changes that name no times, and those of attempts."""
        jobs = put(store, 12, due=NOW + HOUR)
        if mixed:
            jobs += running(store, 5)
        for job in jobs[::3]:
            if job.state is State.SCHEDULED:
                assert store.apply([lifecycle.move(job, NOW, due=NOW + 3 * HOUR)], NOW) == [True]
        stale = [job.due != seen(store, job).due for job in jobs]
        changes = [
            Change(job.id, job.state, job.epoch, State.DEAD, NOW, keep_until=NOW, owner=job.owner) for job in jobs
        ]
        changes = [replace(c, seen_times=(job.due, 0)) for c, job in zip(changes, jobs, strict=True)]
        changes = [c if n % 4 or not mixed else replace(c, seen_times=None) for n, c in enumerate(changes)]
        made = [not old or c.seen_times is None for old, c in zip(stale, changes, strict=True)]
        assert store.apply(changes, NOW) == made
        assert [seen(store, job).state is State.DEAD for job in jobs] == made

    @pytest.mark.parametrize("state", WAITING)
    @pytest.mark.parametrize("expires", [0, NOW + HOUR])
    def test_the_latest_postponement_counts(self, store: Store, state: State, expires: int) -> None:
        """In whatever order those that saw the same job come, and where one comes again."""
        calls = [(NOW + 2 * HOUR, NOW + 9 * HOUR), (NOW + 5 * HOUR, NOW + 7 * HOUR), (NOW - HOUR, NOW + 8 * HOUR)]
        for order in permutations(calls):
            job = in_state(store, state, expires=expires)
            for call in (*order, order[0]):
                decide(store, job, postponing(*call))
            last = seen(store, job)
            assert (last.due, last.expires) == (NOW + 5 * HOUR, expires and NOW + 9 * HOUR)
            assert last.state is State.SCHEDULED

    def test_the_second_of_one_call_sees_what_the_first_made(self, store: Store) -> None:
        """Changes of one job are made in their order."""
        job = in_state(store, State.SCHEDULED)
        late, early = postponing(NOW + 5 * HOUR)(job), postponing(NOW + 2 * HOUR)(job)
        assert store.apply([late, early, late], NOW) == [True, False, False]
        assert seen(store, job).due == NOW + 5 * HOUR
        again = replace(late, due=NOW + 6 * HOUR, seen_times=(NOW + 5 * HOUR, 0))
        assert store.apply([replace(again, seen_times=None), replace(again, due=0)], NOW) == [True, False]

    @pytest.mark.parametrize("state", WAITING)
    def test_a_move_leaves_what_it_does_not_name(self, store: Store, state: State) -> None:
        """Also what somebody else has changed since it looked: of two moves, both are made."""
        moves: list[dict[str, Any]] = [{"queue": "slow"}, {"priority": 7}, {"due": NOW + 5 * HOUR}]
        for order in permutations(moves):
            job = in_state(store, state)
            for move in order:
                assert lifecycle.move(job, NOW, **move).seen_times is None
                decide(store, job, lambda job, move=move: lifecycle.move(job, NOW, **move))  # type: ignore[misc]
            last = seen(store, job)
            assert (last.queue, last.priority, last.due, last.state) == ("slow", 7, NOW + 5 * HOUR, State.SCHEDULED)

    def test_of_two_calls_in_its_place_the_last_one_stands_whole(self, store: Store) -> None:
        """And of one call and a postponement from before it, the call's time, if that is later."""
        job = in_state(store, State.SCHEDULED, expires=NOW + 2 * HOUR)
        calls = [replace(job, body=b"[%d]" % n, due=NOW + n * HOUR, queue=f"q{n}", expires=0) for n in (5, 3)]
        for call in calls:
            last = decide(store, job, lambda job, call=call: lifecycle.replace_call(job, call, NOW))  # type: ignore[misc]
            assert (last.body, last.due, last.queue, last.expires) == (call.body, call.due, call.queue, 0)
        last = decide(store, job, postponing(NOW + 2 * HOUR))
        assert (last.body, last.due) == (b"[3]", NOW + 3 * HOUR)

    def test_postponed_at_once(self, store: Store) -> None:
        """By several threads."""
        job = in_state(store, State.SCHEDULED)
        count, each = 4, 5

        def work(number: int) -> None:
            for step in range(each):
                decide(store, job, postponing(NOW + HOUR + (step * count + number) * (1 if number % 2 else -1)))

        side_by_side(count, work)
        assert seen(store, job).due == NOW + HOUR + each * count - 1


STALE: dict[str, Callable[[Store, Job], Job]] = {
    "of another attempt": lambda store, job: replace(job, epoch=job.epoch + 1),
    "of another owner": lambda store, job: replace(job, owner="bob"),
    "done by now": lambda store, job: (settle(store, job, Returned()), job)[1],
    "given back by now": lambda store, job: (settle(store, job, Released()), job)[1],
    "cancelled by now": lambda store, job: (store.apply([lifecycle.cancel(job, DEFAULT, NOW)], NOW), job)[1],
    "deleted by now": lambda store, job: (store.apply([lifecycle.cancel(job, FORGETS, NOW)], NOW), job)[1],
}
"""What was seen of a job that runs, and is not so any more."""


def late_end(job: Job) -> Change:
    """The outcome of an attempt, as its worker knows the job."""
    return lifecycle.after(job, Returned(), DEFAULT, NOW)


def make_way(job: Job) -> Change:
    """The change by which a running job leaves its key to a newer one."""
    return lifecycle.make_way(job, DEFAULT, NOW)


class Superseding(Promises):
    """A new job takes the key of another one, which is cancelled, in one step."""

    def newer(self, store: Store, after: Change | None = None, **fields: Any) -> Job:
        """A new job of the same key, not inserted. after: it is to follow the attempt that this ends."""
        headers = b"" if after is None else with_followed(b"", [kept_places.name_for(after)])
        (job,) = made(store, key="doc", body=b"[2]", headers=headers, **fields)
        return job

    @pytest.mark.parametrize("delay", [0, 1])
    def test_a_newer_job_takes_the_key_of_one_that_runs(self, store: Store, delay: int) -> None:
        """At once; the newer job waits as any other."""
        (old,) = running(store, key="doc")
        new = self.newer(store, due=NOW + delay)
        assert store.supersede(make_way(old), new, NOW)
        assert seen(store, new) == new
        was = seen(store, old)
        assert (was.state, was.owner, was.key_held_until, was.epoch) == (State.CANCELLED, "", 0, 1)
        assert store.insert([self.newer(store)]) == [new.id], "the key is held"
        assert [job.id for job in taken(store, now=NOW + delay)] == [new.id]

    @pytest.mark.parametrize("state", [State.READY, State.SCHEDULED])
    def test_a_newer_job_takes_the_key_of_one_that_waits(self, store: Store, state: State) -> None:
        """It has no attempt that could go on, so the newer one follows none."""
        old = in_state(store, state, key="doc")
        change, new = make_way(old), self.newer(store)
        assert kept_places.places_to_follow(store, old, change, NOW) == []
        assert store.supersede(change, new, NOW)
        assert (seen(store, old).state, seen(store, old).key_held_until, seen(store, new)) == (State.CANCELLED, 0, new)
        assert store.kv_list(kept_places.PREFIX) == {}
        assert [job.id for job in taken(store, now=NOW + HOUR)] == [new.id]

    def test_both_count(self, store: Store) -> None:
        """One job more was put, and one was cancelled; a call that is sent again counts nothing."""
        (old,) = running(store, key="doc")
        new = self.newer(store)
        assert store.supersede(make_way(old), new, NOW)
        assert not store.supersede(make_way(old), new, NOW)
        assert store.insert([new]) == [new.id]
        assert kinds(store) == {PUT: 2, CANCELLED: 1}

    def test_a_job_that_is_not_kept_is_gone(self, store: Store) -> None:
        """As any that is cancelled and not kept."""
        (old,) = running(store, key="doc")
        new = self.newer(store)
        assert store.supersede(lifecycle.make_way(old, FORGETS, NOW), new, NOW)
        assert store.get([old.id, new.id]) == [None, new]

    @pytest.mark.parametrize("stale", STALE)
    def test_nothing_is_done_if_the_job_is_not_as_it_was_seen(self, store: Store, stale: str) -> None:
        """It may have ended by itself at this moment: then the caller inserts its job."""
        (old,) = running(store, key="doc")
        change = make_way(STALE[stale](store, old))
        was, new = store.get([old.id]), self.newer(store)
        assert not store.supersede(change, new, NOW)
        assert store.get([old.id, new.id]) == [*was, None]
        assert store.kv_list(kept_places.PREFIX) == {}

    def test_nothing_is_done_if_another_job_holds_the_key(self, store: Store) -> None:
        """The one that runs has lost it already: it is in nobody's way."""
        (old,) = running(store, key="doc", key_held_until=0)
        (holder,) = put(store, key="doc")
        new = self.newer(store)
        assert not store.supersede(make_way(old), new, NOW)
        assert store.get([old.id, holder.id, new.id]) == [old, holder, None]
        assert store.kv_list(kept_places.PREFIX) == {}
        assert store.apply([late_end(old)], NOW) == [True]

    def test_a_holder_whose_time_is_over_loses_the_key(self, store: Store) -> None:
        """As by an insert."""
        (old,) = running(store, key="doc", key_held_until=0)
        (holder,) = put(store, key="doc", key_held_until=NOW + 1)
        new = self.newer(store, state_since=NOW + 1)
        assert store.supersede(make_way(old), new, NOW + 1)
        assert (seen(store, holder).key_held_until, seen(store, new).key_held_until) == (0, HELD)

    @pytest.mark.parametrize("name", [None, "queue:default", "task:mail", "each:mail", "task:other"])
    def test_it_is_held_back_while_the_attempt_goes_on(self, store: Store, name: str | None) -> None:
        """Whether a limit counts the attempt or not; until its worker says that it is over."""
        lane = None if name is None else ""
        if name is not None:
            store.limit(name, Limit(2))
        (old,) = running(store, key="doc", lane=lane)
        change = make_way(old)
        new = self.newer(store, change, lane=lane)
        assert store.supersede(change, new, NOW)
        assert kept_places.held_back(store, [old, new], NOW) == {new.id}
        assert store.recount(NOW) == 0
        assert store.apply([replace(late_end(old), owner="bob")], NOW) == [False]
        assert kept_places.held_back(store, [new], NOW) == {new.id}
        assert store.apply([late_end(old)], NOW) == [False]
        assert kept_places.held_back(store, [new], NOW) == set()
        assert (store.recount(NOW), store.kv_list(kept_places.PREFIX)) == (0, {})
        assert [job.id for job in taken(store)] == [new.id]

    def test_one_that_supersedes_one_that_is_held_back_waits_for_the_same(self, store: Store) -> None:
        """It may be claimed for a moment only to be held back: its own end says nothing of the attempt before it."""
        (old,) = running(store, key="doc")
        change = make_way(old)
        second = self.newer(store, change)
        assert store.supersede(change, second, NOW)
        (claimed,) = taken(store)
        change = make_way(claimed)
        followed = kept_places.places_to_follow(store, claimed, change, NOW)
        third = replace(self.newer(store), headers=with_followed(b'{"trace":"7"}', followed))
        assert store.supersede(change, third, NOW)
        assert store.apply([late_end(claimed)], NOW) == [False]
        assert kept_places.held_back(store, [third], NOW) == {third.id}
        assert store.apply([late_end(old)], NOW) == [False]
        assert kept_places.held_back(store, [third], NOW) == set()
        (claimed,) = taken(store)
        assert kept_places.places_to_follow(store, claimed, make_way(claimed), NOW) == [
            kept_places.name_for(make_way(claimed))
        ]

    def test_it_is_held_back_no_longer_than_the_lease(self, store: Store) -> None:
        """Nor than the owner lives. A worker that goes on prolongs it."""
        (old,) = running(store, key="doc")
        change = make_way(old)
        new = self.newer(store, change)
        assert store.supersede(change, new, NOW)
        assert kept_places.held_back(store, [new], NOW + LEASE // 2 - 1) == {new.id}
        kept_places.prolong(store, "ann", [(old.id, old.epoch)], LEASE, NOW + LEASE - 1)
        assert kept_places.held_back(store, [new], NOW + LEASE) == {new.id}
        assert kept_places.held_back(store, [new], NOW + 2 * LEASE) == set()
        assert kept_places.free_over(store, NOW, lambda name: name == "ann") == 1
        assert kept_places.held_back(store, [new], NOW) == set()

    def test_a_limit_holds_it_back_too(self, store: Store) -> None:
        """The newer job takes no place that the attempt has."""
        store.limit("task:mail", Limit(1))
        (old,) = running(store, key="doc", lane="")
        new = self.newer(store, lane="")
        assert store.supersede(make_way(old), new, NOW)
        assert taken(store) == []
        assert store.apply([late_end(old)], NOW) == [False]
        assert [job.id for job in taken(store)] == [new.id]

    def test_of_many_at_once_one_takes_the_key(self, store: Store) -> None:
        """The others find the job changed, and are stored as little as the outcome of the attempt counts."""
        (old,) = running(store, key="doc")
        newer = [self.newer(store) for _ in range(6)]
        done: list[bytes] = []

        def work(number: int) -> None:
            if store.supersede(make_way(old), newer[number], NOW):
                done.append(newer[number].id)

        side_by_side(6, work)
        assert len(done) == 1
        assert [job.id for job in store.find(Query(states=(State.READY,)))] == done
        assert store.apply([late_end(old)], NOW) == [False]
