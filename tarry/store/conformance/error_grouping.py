"""Errors in groups: each failed attempt counts once, in the group of its kind."""

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from tarry.model import lifecycle
from tarry.model.duration import DAY, HOUR, SECOND
from tarry.model.lifecycle import DEFAULT
from tarry.model.outcome import Cancelled, Lost, Outcome, Raised, Returned, TimedOut, outcome_note
from tarry.store.conformance.cases.flows import FlowCase, run, stored, tend_all
from tarry.store.conformance.cases.jobs import (
    EVERYTHING,
    LEASE,
    NOW,
    RETRY,
    Promises,
    outcomes,
    put,
    running,
    seen,
    settle,
    side_by_side,
)
from tarry.store.conformance.counting import sum_up
from tarry.store.rules.base import Store
from tarry.store.rules.history.error_groups import (
    ErrorGroup,
    decode_group,
    encode_group,
    sum_groups,
)
from tarry.store.rules.history.error_sums import KEPT_FOR, MOST_GROUPS
from tarry.store.rules.history.journal import MOST_KINDS
from tarry.store.rules.history.sums import ERRORS, Place

TRACEBACK = 'Traceback (most recent call last):\n  File "/srv/7/shop/mail.py", line 3, in send\n    1 / 0\n'


def failure(message: str, kind: str = "ValueError") -> Raised:
    """As a task raises it."""
    return Raised(outcome_note(kind, message, TRACEBACK), (kind, "Exception"))


def groups(store: Store) -> dict[tuple[str, str], ErrorGroup]:
    """All groups that are kept, by queue and message; sums up first."""
    sum_up(store)
    return groups_kept(store)


def groups_kept(store: Store) -> dict[tuple[str, str], ErrorGroup]:
    """The same of what is summed up by now."""
    cells = store.history.read(ERRORS, 0, 1)
    found = [(place.queue, decode_group(cell)) for place, cell in cells.items()]
    return {(queue, group.message): group for queue, group in found}


def counts(store: Store) -> dict[tuple[str, str], int]:
    """How many errors each group has."""
    return {name: group.count for name, group in groups(store).items()}


def sum_up_often(store: Store) -> None:
    """In small parts."""
    for _ in range(20):
        store.history.sum_up(NOW, 3)


class ErrorGrouping(Promises):
    def test_what_differs_in_numbers_is_one_group(self, store: Store) -> None:
        """Of attempts after which the job comes again, and of last ones."""
        jobs = running(store, 5, owner="ann")
        for number, job in enumerate(jobs):
            settle(
                store, job, failure(f"no room for {number}"), RETRY if number % 2 else DEFAULT, NOW + number * SECOND
            )
        (found,) = groups(store).values()
        assert (found.type, found.message, found.place) == ("ValueError", "no room for …", "shop/mail.py:send")
        assert (found.count, found.tasks, found.began) == (5, {"mail": 5}, "ann")
        assert (found.first, found.last) == (NOW, NOW + 4 * SECOND)
        assert found.job in {job.id for job in jobs}
        assert (sum(found.hours.values()), sum(found.days.values())) == (5, 5)

    def test_queues_are_apart_and_tasks_are_told(self, store: Store) -> None:
        """Who may see one queue sees the errors there."""
        fast = running(store)
        outcomes(store, [*fast, *running(store, task="fetch")], failure("no"))
        slow = put(store, 2, queue="slow")
        want = [replace(each, queue="slow") for each in EVERYTHING]
        outcomes(store, store.claim(want, 9, "ann", LEASE, NOW), failure("no"))
        assert counts(store) == {("default", "no"): 2, ("slow", "no"): len(slow)}
        assert groups_kept(store)["default", "no"].tasks == {"mail": 1, "fetch": 1}

    @pytest.mark.parametrize("outcome", [Returned(), Cancelled("no"), Lost()])
    def test_what_is_no_failure_is_in_no_group(self, store: Store, outcome: Outcome) -> None:
        """As an attempt that is interrupted."""
        outcomes(store, running(store), outcome)
        assert groups(store) == {}

    @pytest.mark.parametrize("outcome", [TimedOut(outcome_note("TimeLimit", "took 3 s")), Lost(on=True, why="killed")])
    def test_a_timeout_and_the_end_of_a_worker_are_errors(self, store: Store, outcome: Outcome) -> None:
        """The task could not say so itself."""
        outcomes(store, running(store), outcome)
        assert [group.count for group in groups(store).values()] == [1]

    def test_only_attempts_whose_end_is_valid_count(self, store: Store) -> None:
        """Of a batch in which some are stale, and of one that is sent twice."""
        jobs = running(store, 6)
        ends = [lifecycle.after(job, failure(f"{job.attempt} no"), DEFAULT, NOW) for job in jobs]
        assert store.apply(ends[:2], NOW) == [True] * 2
        assert store.apply(ends, NOW) == [False] * 2 + [True] * 4
        assert store.apply(ends, NOW) == [False] * 6
        assert counts(store) == {("default", "… no"): 6}

    def test_an_exchange_counts_errors_beside_successes(self, store: Store) -> None:
        """One call has both."""
        jobs = running(store, 9)
        ended = [(job, failure("no") if number % 3 else Returned()) for number, job in enumerate(jobs)]
        changes = [lifecycle.after(job, outcome, DEFAULT, NOW) for job, outcome in ended]
        store.exchange(changes, EVERYTHING, 1, "ann", LEASE, NOW)
        assert counts(store) == {("default", "no"): 6}

    def test_a_call_with_many_kinds_counts_each(self, store: Store) -> None:
        """By the hundred, as a busy worker settles."""
        words = ["red", "green", "blue"]
        jobs = running(store, 99)
        store.apply([lifecycle.after(job, failure(words[n % 3]), RETRY, NOW) for n, job in enumerate(jobs)], NOW)
        assert counts(store) == {("default", word): 33 for word in words}

    def test_groups_live_longer_than_their_jobs(self, store: Store) -> None:
        """The job that is named may be gone."""
        (job,) = running(store)
        settle(store, job, failure("no"))
        store.apply([lifecycle.forget(seen(store, job))], NOW)
        assert counts(store) == {("default", "no"): 1}

    def test_several_who_sum_up_count_each_error_once(self, store: Store) -> None:
        """As keepers do in the moment when one takes over from another."""
        jobs = running(store, 40)
        for job in jobs:
            settle(store, job, failure("no"))
        side_by_side(4, lambda _: sum_up_often(store))
        assert counts(store) == {("default", "no"): 40}

    def test_a_group_can_be_mute_and_be_deleted(self, store: Store) -> None:
        """What comes after that is counted: a muted one stays muted, a deleted one is new."""
        jobs = running(store, 4)
        settle(store, jobs[0], failure("no"))
        sum_up(store)

        assert store.history.change_errors(_mute)
        settle(store, jobs[1], failure("no"))
        assert [(group.count, group.is_muted) for group in groups(store).values()] == [(2, True)]
        assert store.history.change_errors(lambda there: dict.fromkeys(there, b""))
        assert groups(store) == {}
        settle(store, jobs[2], failure("no"))
        assert [(group.count, group.is_muted) for group in groups(store).values()] == [(1, False)]

    def test_a_group_goes_a_month_after_its_last_error(self, store: Store) -> None:
        """Others stay."""
        old, new = running(store, 2)
        settle(store, old, failure("old"))
        settle(store, new, failure("new"), now=NOW + 2 * DAY)
        sum_up(store, now=NOW + 2 * DAY)
        store.history.prune(NOW + KEPT_FOR * SECOND + HOUR)
        assert [message for _, message in groups_kept(store)] == ["new"]

    def test_the_number_of_groups_is_bounded(self, store: Store) -> None:
        """A task whose messages are all different drives out its own groups; no error is lost from the sum."""
        jobs = running(store, MOST_GROUPS + 50, task="noisy")
        (other,) = running(store)
        settle(store, other, failure("other"))
        changes = [lifecycle.after(job, failure(_word(n)), DEFAULT, NOW + n) for n, job in enumerate(jobs)]
        for start in range(0, len(changes), MOST_KINDS):
            store.apply(changes[start : start + MOST_KINDS], NOW)
        found = groups(store)
        assert len(found) > MOST_GROUPS
        assert found["default", "other"].count == 1
        assert len(found) <= self.shards * (MOST_GROUPS + 1)
        assert sum_groups(found.values()).count == MOST_GROUPS + 51


class ErrorGroupingOfFlows(FlowCase):
    def test_a_node_that_fails_counts_once_and_its_flow_not(self, store: Store) -> None:
        """Nor do the nodes that never run for it."""
        run(store, stored(store, [[], [1]]), 1, outcome=failure("no"))
        tend_all(store)
        assert counts(store) == {("default", "no"): 1}


def _mute(there: Mapping[Place, bytes]) -> dict[Place, bytes]:
    groups = {place: decode_group(cell) for place, cell in there.items()}
    return {place: encode_group(replace(group, is_muted=True)) for place, group in groups.items()}


def _word(number: int) -> str:
    return "".join("ghijklmnop"[int(digit)] for digit in str(number))
