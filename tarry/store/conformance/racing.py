"""Changes that several made at once, each from what it saw before the others changed it."""

from collections.abc import Callable
from itertools import permutations
from typing import Any

import pytest
from msgspec.structs import replace

from tarry.model import lifecycle
from tarry.model.change import Change
from tarry.model.duration import HOUR
from tarry.model.job import Job, State
from tarry.store.conformance.cases.jobs import (
    ALONE,
    FINISHED,
    NOW,
    WAITING,
    Promises,
    in_state,
    put,
    running,
    seen,
    side_by_side,
)
from tarry.store.rules.base import Store

DecideRace = Callable[[Job], Change]


def postponing(due: int, expires: int = 0) -> DecideRace:
    return lambda job: lifecycle.postpone(job, replace(job, due=due, expires=expires), NOW)


def decide(store: Store, first: Job, decision: DecideRace) -> Job:
    """Makes a change as a client does: from what it saw, and if that is not so any more, from a new look."""
    job = first
    for _ in range(9):
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
