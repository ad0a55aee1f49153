"""What attempts have used of rates, where that is only known at their end."""

import pytest
from msgspec.structs import replace

from tarry.model import lifecycle
from tarry.model.change import Change, with_correction
from tarry.model.duration import HOUR, SECOND
from tarry.model.job import Job
from tarry.model.lifecycle import DEFAULT, Rules
from tarry.model.limit import LONGEST_DEBT, KeyLimit, Level, Limit
from tarry.model.outcome import Outcome, Returned, Snoozed
from tarry.store.conformance.cases.jobs import (
    EVERYTHING,
    FAILED,
    FORGETS,
    LEASE,
    NOW,
    RETRY,
    Promises,
    made,
    put,
    side_by_side,
    taken,
)
from tarry.store.rules import kept_places
from tarry.store.rules.base import Store
from tarry.store.rules.lanes import lane_level

QUEUE, TASK, EACH = "queue:default", "task:mail", "each:mail"
ANN = lane_level("mail", "ann")
LEVELS = {TASK: TASK, EACH: ANN}
SLOW = Limit(None, 20, 20 * SECOND)
"""One start at a time."""
FAST = Limit(None, 1_000_000, HOUR)


def spent(job: Job, by: int, outcome: Outcome | None = None, rules: Rules = DEFAULT, now: int = NOW) -> Change:
    """The end of an attempt that has used so many starts more than one."""
    return with_correction(lifecycle.after(job, outcome or Returned(), rules, now), by)


def level(store: Store, name: str) -> Level:
    """The level of jobs with the key ann that this limit counts."""
    return store.levels([LEVELS[name]])[0]


class Spending(Promises):
    """The end of an attempt corrects what the rates of its job have counted."""

    def one_spends(self, store: Store, name: str, limit: Limit = SLOW) -> Job:
        """One of two jobs with the key ann, under a rate."""
        store.limit(name, limit)
        put(store, 2, lane="ann")
        (job,) = taken(store, 1)
        return job

    @pytest.mark.parametrize("by", [9, 1, -1])
    @pytest.mark.parametrize("name", LEVELS)
    def test_a_rate_counts_what_was_used(self, store: Store, name: str, by: int) -> None:
        """More than at the start, or less: the next start waits for that long, and no longer."""
        job = self.one_spends(store, name)
        assert taken(store) == []
        assert store.apply([spent(job, by)], NOW) == [True]
        at = NOW + (1 + by) * SLOW.spacing
        assert (level(store, name).running, max(level(store, name).next, NOW)) == (0, at)
        answer = store.exchange((), EVERYTHING, 1000, "ann", LEASE, NOW)
        assert (len(answer.jobs), answer.next_due) == ((1, None) if by < 0 else (0, at))
        assert by < 0 or taken(store, now=at - 1) == []
        assert by < 0 or len(taken(store, now=at)) == 1

    @pytest.mark.parametrize(
        ("outcome", "rules"), [(FAILED, DEFAULT), (FAILED, RETRY), (Snoozed(SECOND), DEFAULT), (Returned(), FORGETS)]
    )
    @pytest.mark.parametrize("name", LEVELS)
    def test_whatever_becomes_of_the_job(self, store: Store, name: str, outcome: Outcome, rules: Rules) -> None:
        """Also if it comes back, or is forgotten."""
        job = self.one_spends(store, name)
        assert store.apply([spent(job, 4, outcome, rules)], NOW) == [True]
        assert level(store, name).next == NOW + 5 * SLOW.spacing
        assert taken(store, now=NOW + 5 * SLOW.spacing - 1) == []

    @pytest.mark.parametrize("name", LEVELS)
    def test_a_correction_is_made_once(self, store: Store, name: str) -> None:
        """Also if it is sent again, as after a lost answer."""
        change = spent(self.one_spends(store, name, FAST), 4)
        assert store.apply([change, change], NOW) == [True, False]
        assert store.apply([change], NOW) == [False]
        assert level(store, name) == Level(0, NOW + 5 * FAST.spacing)

    @pytest.mark.parametrize("name", LEVELS)
    def test_an_attempt_that_others_have_ended_is_corrected_at_its_own_end(self, store: Store, name: str) -> None:
        """It has used what it has used."""
        job = self.one_spends(store, name, FAST)
        assert store.apply([lifecycle.cancel(job, DEFAULT, NOW)], NOW) == [True]
        assert level(store, name) == Level(1, NOW + FAST.spacing)
        for _ in range(2):
            assert store.apply([spent(job, 4)], NOW) == [False]
            assert level(store, name) == Level(0, NOW + 5 * FAST.spacing)
        assert store.kv_list(kept_places.PREFIX) == {}

    @pytest.mark.parametrize("name", LEVELS)
    @pytest.mark.parametrize("first", [0, 1, 2])
    def test_of_changes_of_one_attempt_in_a_call_the_first_is_made(self, store: Store, name: str, first: int) -> None:
        """Two ends that differ, and a cancel: whichever comes first."""
        job = self.one_spends(store, name, FAST)
        changes = [spent(job, 2), spent(job, 4), lifecycle.cancel(job, DEFAULT, NOW)]
        assert store.apply([*changes[first:], *changes[:first]], NOW) == [True, False, False]
        # After a cancel the attempt goes on until its own end, and that came, too.
        used = (2, 4, 2)[first]
        assert level(store, name) == Level(0, NOW + (1 + used) * FAST.spacing)
        assert store.kv_list(kept_places.PREFIX) == {}

    def test_a_key_has_its_own_rate(self, store: Store) -> None:
        """Others go on, and so does the rate of the task."""
        store.limit(TASK, FAST)
        store.limit(EACH, replace(SLOW, count=200))
        store.limit_key("mail", "ann", KeyLimit(None, SLOW.count, SLOW.period))
        job = self.one_spends(store, TASK, FAST)
        put(store, 1, lane="bob")
        assert store.apply([spent(job, 4)], NOW) == [True]
        assert level(store, TASK).next == NOW + 5 * FAST.spacing
        assert level(store, EACH).next == NOW + 5 * SLOW.spacing
        assert [job.lane for job in taken(store)] == ["bob"]
        assert [job.lane for job in taken(store, now=NOW + 5 * SLOW.spacing)] == ["ann"]

    def test_a_queue_counts_jobs_without_a_lane(self, store: Store) -> None:
        """Of several stores, the one that has the job."""
        store.limit(QUEUE, Limit(None, 360, HOUR))
        store.insert([replace(job, id=id) for job, id in zip(made(store, 60), self.together(store, 60), strict=True)])
        jobs = taken(store)
        assert len(taken(store, now=NOW + HOUR)) > 0
        assert store.apply([spent(jobs[0], 720)], NOW + HOUR) == [True]
        assert taken(store, now=NOW + 2 * HOUR) == []
        assert len(taken(store, now=NOW + (LONGEST_DEBT + 2) * HOUR)) > 0

    @pytest.mark.parametrize("name", LEVELS)
    def test_corrections_of_one_call_add_up(self, store: Store, name: str) -> None:
        """Beside ends that correct nothing."""
        store.limit(name, FAST)
        put(store, 6, lane="ann")
        jobs = taken(store)
        changes = [spent(job, by) for job, by in zip(jobs, [40, 0, -1, -1, 7, 0], strict=True)]
        assert store.apply(changes, NOW) == [True] * 6
        assert level(store, name) == Level(0, NOW + (6 + 45) * FAST.spacing)

    @pytest.mark.parametrize("name", LEVELS)
    def test_a_debt_is_bounded(self, store: Store, name: str) -> None:
        """It holds starts back for ten periods, however much was used; and not until an old time comes again, if the
        clock is set back."""
        job = self.one_spends(store, name)
        assert store.apply([spent(job, 2**31 - 1)], NOW) == [True]
        assert taken(store, now=NOW + LONGEST_DEBT * SLOW.period) == []
        back = NOW - LONGEST_DEBT * SLOW.period - 1
        if name == EACH:
            store.recount(back)
        assert len(taken(store, 1, now=back)) == 1

    @pytest.mark.parametrize("name", LEVELS)
    def test_a_debt_ends(self, store: Store, name: str) -> None:
        """And a recount before leaves it."""
        job = self.one_spends(store, name)
        assert store.apply([spent(job, 2**31 - 1)], NOW) == [True]
        assert store.recount(NOW) == 0
        assert taken(store) == []
        assert len(taken(store, now=NOW + LONGEST_DEBT * SLOW.period + SLOW.spacing)) == 1

    def test_without_a_limit_nothing_is_corrected(self, store: Store) -> None:
        """The end is made all the same."""
        put(store, 1)
        (job,) = taken(store)
        assert store.apply([spent(job, 4)], NOW) == [True]
        assert store.levels([QUEUE, TASK]) == [Level(), Level()]

    def test_no_correction_is_lost_among_many(self, store: Store) -> None:
        """While others claim and settle jobs of the same task."""
        store.limit(TASK, FAST)
        store.limit(EACH, FAST)
        put(store, 80, lane="ann")
        used: list[int] = []

        def work(number: int) -> None:
            by = (3, -1)[number % 2]
            for job in (job for _ in range(20) for job in taken(store, 1, owner=f"w{number}")):
                assert store.apply([spent(job, by)], NOW) == [True]
                used.append(1 + by)

        side_by_side(4, work)
        expected = Level(0, NOW + sum(used) * FAST.spacing)
        assert (level(store, TASK), level(store, EACH)) == (expected, expected)
        assert sum(used) > 0
