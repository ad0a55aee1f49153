"""Jobs that cost more than one start of a rate."""

import msgspec
import pytest
from msgspec.structs import replace

from tarry.model.duration import SECOND
from tarry.model.job import Job
from tarry.model.limit import KeyLimit, Level, Limit
from tarry.model.outcome import Returned
from tarry.model.overrides import COST
from tarry.store.conformance.cases.jobs import EVERYTHING, LEASE, NOW, Promises, made, outcomes, put, taken
from tarry.store.conformance.limits.spending import EACH, FAST, LEVELS, QUEUE, SLOW, TASK, level
from tarry.store.rules.base import Store

TEN = Limit(None, 200, 200 * SECOND)
"""Ten starts at once."""


def cost_headers(cost: int | str) -> bytes:
    """The headers of a job with this cost."""
    return msgspec.json.encode({"trace": "1", COST: str(cost)})


def waits(store: Store, cost: int | str, count: int = 1, lane: str = "ann") -> list[Job]:
    """New jobs of that key."""
    return put(store, count, lane=lane, headers=cost_headers(cost))


class Costing(Promises):
    """A start counts for a rate what the job costs."""

    @pytest.mark.parametrize("name", LEVELS)
    def test_a_start_counts_what_the_job_costs(self, store: Store, name: str) -> None:
        """Beside others that cost one."""
        store.limit(name, FAST)
        put(store, 3, lane="ann")
        waits(store, 4, 2)
        jobs = taken(store)
        assert len(jobs) == 5
        assert level(store, name) == Level(5, NOW + 11 * FAST.spacing)
        outcomes(store, jobs, Returned())
        assert level(store, name) == Level(0, NOW + 11 * FAST.spacing)

    @pytest.mark.parametrize("name", LEVELS)
    def test_all_but_the_last_of_a_claim_fit_into_what_is_left(self, store: Store, name: str) -> None:
        """However many jobs are claimed at once; the next starts once all is paid for."""
        store.limit(name, TEN)
        waits(store, 4, 9)
        assert len(taken(store)) == 3
        assert level(store, name) == Level(3, NOW + 12 * TEN.spacing)
        again = NOW + 3 * TEN.spacing
        answer = store.exchange((), EVERYTHING, 1000, "ann", LEASE, NOW)
        assert (answer.jobs, answer.next_due) == ([], again)
        assert taken(store, now=again - 1) == []
        assert len(taken(store, now=again)) == 1

    @pytest.mark.parametrize("name", LEVELS)
    def test_one_that_costs_more_than_the_rate_allows_starts(self, store: Store, name: str) -> None:
        """As where the limit was made smaller since it was enqueued. It holds the others back for as long."""
        store.limit(name, SLOW)
        waits(store, 50, 2)
        assert len(taken(store)) == 1
        assert taken(store, now=NOW + 50 * SLOW.spacing - 1) == []
        assert len(taken(store, now=NOW + 50 * SLOW.spacing)) == 1

    @pytest.mark.parametrize("name", LEVELS)
    def test_a_key_keeps_its_order(self, store: Store, name: str) -> None:
        """Cheap jobs do not pass by a dear one."""
        store.limit(name, TEN)
        jobs = [*waits(store, 2), *waits(store, 30), *put(store, 5, lane="ann")]
        assert [job.id for job in taken(store)] == [job.id for job in jobs[:2]]
        assert taken(store, now=NOW + 22 * TEN.spacing) == []
        assert len(taken(store, now=NOW + 32 * TEN.spacing)) == 5

    def test_what_one_key_has_used_is_not_the_others_concern(self, store: Store) -> None:
        """Where each has a rate of its own; one that all share counts all."""
        store.limit(EACH, TEN)
        store.limit_key("mail", "cid", KeyLimit(None, SLOW.count, SLOW.period))
        store.limit(TASK, FAST)
        waits(store, 10, 3)
        put(store, 10, lane="bob")
        waits(store, 7, 2, lane="cid")
        lanes = sorted(job.lane or "" for job in taken(store))
        assert lanes == ["ann", *["bob"] * 10, "cid"]
        assert level(store, TASK) == Level(12, NOW + 27 * FAST.spacing)

    def test_a_queue_counts_the_cost_of_jobs_without_a_lane(self, store: Store) -> None:
        """Of several stores, each counts its share."""
        store.limit(QUEUE, Limit(None, 400, 400 * SECOND))
        jobs = made(store, 40, headers=cost_headers(5))
        store.insert([replace(job, id=id) for job, id in zip(jobs, self.together(store, 40), strict=True)])
        assert 0 < len(taken(store)) <= 4
        assert taken(store) == []
        assert len(taken(store, now=NOW + 100 * SECOND)) > 0

    def test_how_many_run_at_once_is_not_a_matter_of_cost(self, store: Store) -> None:
        """A job takes one place."""
        store.limit(TASK, Limit(3))
        waits(store, 1000, 5)
        assert len(taken(store)) == 3
        assert store.recount(NOW) == 0

    @pytest.mark.parametrize("cost", ["", "x", "0", "-3", "1.5", "2147483649", "99999999999", "9" * 400, "\u00b2"])
    def test_what_is_no_cost_counts_as_one(self, store: Store, cost: str) -> None:
        """Another program may have written it."""
        store.limit(TASK, FAST)
        waits(store, cost, 2)
        put(store, 1, lane="ann", headers=b'["tarry-cost":"7"')
        put(store, 1, lane="ann", body=b'{"tarry-cost":"7"}')
        assert len(taken(store)) == 4
        assert level(store, TASK) == Level(4, NOW + 4 * FAST.spacing)
