"""Attempts that go on after others have ended their job keep their places under limits."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from tarry.model import lifecycle
from tarry.model.change import Change
from tarry.model.flow_rules import FLOW_CANCELLED
from tarry.model.job import Job
from tarry.model.lifecycle import DEFAULT
from tarry.model.limit import Limit
from tarry.model.outcome import Cancelled, Expired, Lost, Released, Returned, Snoozed
from tarry.store.conformance.cases.jobs import FAILED, LEASE, NOW, RETRY, Promises, put, seen, side_by_side, taken
from tarry.store.rules import kept_places
from tarry.store.rules.base import Query, Store

QUEUE, TASK, EACH = "queue:default", "task:mail", "each:mail"
NAMES = [QUEUE, TASK, EACH]
FORGETFUL = replace(DEFAULT, keep_done=0)
DecideChange = Callable[[Job], Change]
ENDS: dict[str, tuple[bool, DecideChange]] = {
    "returned": (False, lambda job: lifecycle.after(job, Returned(), DEFAULT, NOW)),
    "failed": (False, lambda job: lifecycle.after(job, FAILED, RETRY, NOW)),
    "snoozed": (False, lambda job: lifecycle.after(job, Snoozed(1), DEFAULT, NOW)),
    "released": (False, lambda job: lifecycle.after(job, Released(), DEFAULT, NOW)),
    "cancelled by itself": (False, lambda job: lifecycle.after(job, Cancelled(), DEFAULT, NOW)),
    "expired": (False, lambda job: lifecycle.after(job, Expired(), DEFAULT, NOW)),
    "lost": (False, lambda job: lifecycle.after(job, Lost(), DEFAULT, NOW)),
    "given back": (False, lambda job: lifecycle.give_back(job, NOW, delay=1)),
    "buried": (False, lambda job: lifecycle.bury(job, DEFAULT, NOW)),
    "discarded": (False, lambda job: lifecycle.discard(job, DEFAULT, NOW)),
    "unusable": (False, lambda job: lifecycle.unusable(job, DEFAULT, NOW, ValueError())),
    "cancelled": (True, lambda job: lifecycle.cancel(job, DEFAULT, NOW)),
    "cancelled and forgotten": (True, lambda job: lifecycle.cancel(job, FORGETFUL, NOW)),
    "cancelled with its flow": (True, lambda job: lifecycle.cancel(job, DEFAULT, NOW, "", FLOW_CANCELLED)),
}
"""All that ends an attempt, and whether the attempt goes on then: the worker has not said that it is over."""


def late(job: Job) -> Change:
    """The outcome of an attempt, as its worker knows the job."""
    return lifecycle.after(job, Returned(), DEFAULT, NOW)


def dies(name: str) -> bool:
    """No owner is known to be dead."""
    return False


class PlaceKeeping(Promises):
    """What limits count while an attempt goes on though its job has ended."""

    def one_runs(self, store: Store, name: str = TASK) -> Job:
        """The one of two jobs that may run, under a limit of one."""
        store.limit(name, Limit(1))
        put(store, 2, lane="")
        (job,) = taken(store)
        return job

    def is_free(self, store: Store, now: int = NOW) -> bool:
        """Whether one more may start, and levels say the same as a count."""
        assert store.recount(now) == 0
        return len(taken(store, now=now)) == 1

    @pytest.mark.parametrize("end", ENDS)
    def test_a_place_is_free_once_the_attempt_is_over(self, store: Store, end: str) -> None:
        """At once if the worker said so; if others ended the job, once the worker says so. In any queue."""
        goes_on, rule = ENDS[end]
        job = self.one_runs(store)
        put(store, 1, lane="")
        assert store.apply([rule(job)], NOW) == [True]
        assert self.is_free(store) is not goes_on
        if goes_on:
            assert store.apply([late(job)], NOW) == [False]
            assert self.is_free(store)
            assert store.kv_list(kept_places.PREFIX) == {}

    @pytest.mark.parametrize("name", NAMES)
    def test_every_limit_counts_it(self, store: Store, name: str) -> None:
        """Those of queues, tasks and keys; also in one call with others, and with the outcome in the same call."""
        store.limit(name, Limit(36))
        put(store, 80, lane="")
        jobs = taken(store)
        count = len(jobs)
        assert store.apply([lifecycle.cancel(job, DEFAULT, NOW) for job in jobs], NOW) == [True] * count
        assert not self.is_free(store)
        lates = [late(job) for job in jobs]
        assert store.apply(lates[:2], NOW) == [False] * 2
        assert len(taken(store)) == 2
        assert store.apply(lates, NOW) == [False] * count
        assert store.recount(NOW) == 0
        again = taken(store)
        assert len(again) == count - 2
        both = [change for job in again for change in (lifecycle.cancel(job, DEFAULT, NOW), late(job))]
        assert store.apply(both, NOW) == [True, False] * len(again)
        assert store.recount(NOW) == 0
        assert store.kv_list(kept_places.PREFIX) == {}

    def test_a_second_cancel_frees_nothing(self, store: Store) -> None:
        """Nor does the outcome of another attempt, or of another owner."""
        job = self.one_runs(store)
        cancel = lifecycle.cancel(job, DEFAULT, NOW)
        assert store.apply([cancel], NOW) == [True]
        others = [replace(late(job), epoch=job.epoch + 1), replace(late(job), owner="bob")]
        assert store.apply([cancel, *others], NOW) == [False] * 3
        assert not self.is_free(store)
        assert store.apply([late(job), late(job)], NOW) == [False] * 2
        assert self.is_free(store)
        assert store.apply([late(job)], NOW) == [False], "nor is one freed twice"
        assert store.recount(NOW) == 0

    def test_who_is_retried_takes_another_place(self, store: Store) -> None:
        """The new attempt waits until the cancelled one is over; a deletion of the record changes nothing."""
        job = self.one_runs(store)
        (other,) = [one for one in store.find(Query()) if one.id != job.id]
        store.apply([lifecycle.cancel(job, DEFAULT, NOW), lifecycle.cancel(other, DEFAULT, NOW)], NOW)
        assert store.apply([lifecycle.run_now(seen(store, job), NOW)], NOW) == [True]
        assert not self.is_free(store)
        assert store.apply([late(job)], NOW) == [False]
        (again,) = taken(store)
        assert (again.id, again.epoch) == (job.id, job.epoch + 1)
        assert store.apply([lifecycle.cancel(again, DEFAULT, NOW)], NOW) == [True]
        assert store.apply([lifecycle.forget(seen(store, again))], NOW) == [True]
        put(store, 1, lane="")
        assert not self.is_free(store)
        assert store.apply([late(again)], NOW) == [False]
        assert self.is_free(store)

    def test_a_place_ends_with_its_lease(self, store: Store) -> None:
        """The worker prolongs it while the attempt goes on. Then, or once the owner is dead, a keeper frees it."""
        job = self.one_runs(store)
        assert store.apply([lifecycle.cancel(job, DEFAULT, NOW)], NOW) == [True]
        assert kept_places.free_over(store, NOW + LEASE // 2 - 1, dies) == 0
        kept_places.prolong(store, "ann", [(job.id, job.epoch)], LEASE, NOW + LEASE - 1)
        assert kept_places.free_over(store, NOW + LEASE, dies) == 0
        assert not self.is_free(store, NOW + LEASE)
        assert kept_places.free_over(store, NOW + 2 * LEASE, dies) == 1
        assert self.is_free(store, NOW + 2 * LEASE)

    def test_a_place_ends_with_its_owner(self, store: Store) -> None:
        """Before its lease has ended."""
        job = self.one_runs(store, EACH)
        assert store.apply([lifecycle.cancel(job, DEFAULT, NOW)], NOW) == [True]
        assert kept_places.free_over(store, NOW, lambda name: name == "bob") == 0
        assert kept_places.free_over(store, NOW, lambda name: name == "ann") == 1
        assert self.is_free(store)

    def test_a_limit_that_comes_later_counts_it(self, store: Store) -> None:
        """If any limit counted it when its job was ended."""
        job = self.one_runs(store)
        assert store.apply([lifecycle.cancel(job, DEFAULT, NOW)], NOW) == [True]
        store.limit(QUEUE, Limit(1))
        store.limit(TASK, None)
        assert not self.is_free(store)
        assert store.apply([late(job)], NOW) == [False]
        assert self.is_free(store)

    def test_no_place_is_lost_among_workers_that_are_cancelled(self, store: Store) -> None:
        """Claims, cancels and outcomes of several workers at the same time; in the end every level is 0."""
        store.limit(QUEUE, Limit(8))
        store.limit(EACH, Limit(1))
        for number in range(12):
            put(store, 5, lane=f"tenant {number}")

        def work(number: int) -> None:
            vain = 0
            while vain < 5:
                jobs = taken(store, 3, owner=f"w{number}")
                store.apply([lifecycle.cancel(job, DEFAULT, NOW) for job in jobs[:2]], NOW)
                assert not any(store.apply([late(job) for job in jobs[:2]], NOW))
                assert all(store.apply([late(job) for job in jobs[2:]], NOW))
                vain = 0 if jobs else vain + 1

        side_by_side(3, work)
        assert store.recount(NOW) == 0
        assert store.limits()[QUEUE][1].running == 0
        assert store.kv_list(kept_places.PREFIX) == {}

    def test_nothing_is_kept_where_nothing_is_limited(self, store: Store) -> None:
        """No limit counts the job, so there is nothing to free."""
        store.limit("task:other", Limit(1))
        put(store, 1, lane="")
        (job,) = taken(store)
        assert store.apply([lifecycle.cancel(job, DEFAULT, NOW)], NOW) == [True]
        assert store.kv_list(kept_places.PREFIX) == {}
