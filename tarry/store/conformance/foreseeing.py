"""How many jobs wait: by the time at which they come due, by band, and before a job."""

from msgspec.structs import replace

from tarry.model.duration import HOUR, SECOND
from tarry.model.job import Job
from tarry.model.limit import Limit
from tarry.store.conformance.cases.jobs import LEASE, NOW, Promises, made, put, seen
from tarry.store.rules.base import HIGH, LOW, NORMAL, Store, Want
from tarry.store.rules.waiting import CappedCount, WaitingLane

PLENTY = 1000


def exact(*counts: int) -> list[CappedCount]:
    return [CappedCount(count) for count in counts]


def place_of(store: Store, job: Job, most: int = PLENTY) -> int:
    found = store.waiting.before(seen(store, job), most)
    assert not found.at_least
    return found.count


def make_ready(store: Store) -> None:
    """Makes scheduled jobs ready that are due two seconds from now on, late, and claims none of the default queue."""
    store.claim([Want("none", NORMAL, 1)], 1, "ann", LEASE, NOW + 2 * SECOND)


class Foreseeing(Promises):
    def test_what_comes_due_is_counted_by_time(self, store: Store) -> None:
        """Before the first time, from each to before the next, and from the last on."""
        for due, count in ((SECOND, 2), (HOUR, 3), (2 * HOUR - 1, 1), (2 * HOUR, 4), (900 * HOUR, 5)):
            put(store, count, due=NOW + due)
        put(store, 7)
        bounds = [NOW + HOUR, NOW + 2 * HOUR, NOW + 3 * HOUR]
        assert store.waiting.due(bounds, None, PLENTY) == exact(2, 4, 4, 5)
        assert store.waiting.due([], None, PLENTY) == exact(15)

    def test_what_comes_due_is_counted_by_queue(self, store: Store) -> None:
        """Of some queues only."""
        for queue, count in (("default", 2), ("mail", 3), ("slow", 4)):
            put(store, count, due=NOW + HOUR, queue=queue)
        bounds = [NOW + HOUR]
        assert store.waiting.due(bounds, ["mail"], PLENTY) == exact(0, 3)
        assert store.waiting.due(bounds, ["mail", "slow", "none"], PLENTY) == exact(0, 7)
        assert store.waiting.due(bounds, [], PLENTY) == exact(0, 0)

    def test_due_times_are_counted_up_to_a_bound(self, store: Store) -> None:
        """In each part by itself; then there may be more."""
        put(store, 20 * self.shards, due=NOW + HOUR)
        put(store, due=NOW + 2 * HOUR)
        first, last = store.waiting.due([NOW + 2 * HOUR], None, 7)
        assert (first, last) == (CappedCount(7, at_least=True), CappedCount(1))
        (other,) = store.waiting.due([], ["mail"], 7)
        assert other == CappedCount(0, at_least=True)

    def test_a_hundred_times_at_once(self, store: Store) -> None:
        """A day by the quarter of an hour."""
        jobs = [job for number in range(100) for job in made(store, due=NOW + number * HOUR + 1)]
        store.insert(jobs)
        counts = store.waiting.due([NOW + number * HOUR for number in range(100)], ["default"], PLENTY)
        assert counts == exact(0, *[1] * 100)

    def test_ready_jobs_are_counted_by_band(self, store: Store) -> None:
        """On time, late and in lanes; of this queue only."""
        for priority, count in ((5, 2), (1, 1), (0, 4), (-3, 3)):
            put(store, count, priority=priority)
        put(store, 2, priority=9, queue="mail")
        put(store, 2, priority=0, lane="x")
        put(store, 3, due=NOW + HOUR)
        put(store, 2, due=NOW + SECOND)
        make_ready(store)
        assert store.waiting.bands("default", PLENTY) == {
            HIGH: CappedCount(3),
            NORMAL: CappedCount(8),
            LOW: CappedCount(3),
        }
        assert store.waiting.bands("none", PLENTY) == dict.fromkeys((HIGH, NORMAL, LOW), CappedCount(0))

    def test_bands_are_counted_up_to_a_bound(self, store: Store) -> None:
        """Then there may be more."""
        put(store, 20 * self.shards, priority=1)
        put(store, 2)
        assert store.waiting.bands("default", 5) == {
            HIGH: CappedCount(5, at_least=True),
            NORMAL: CappedCount(2),
            LOW: CappedCount(0),
        }

    def test_how_many_run_before_a_job(self, store: Store) -> None:
        """Those of a higher priority, then those due earlier, then those with a smaller id."""
        (low,) = put(store, priority=-1)
        (lower,) = put(store, priority=-2)
        first, second = put(store, 2)
        (earlier,) = put(store, due=NOW - HOUR, state_since=NOW - HOUR)
        (high,) = put(store, priority=2)
        (highest,) = put(store, priority=3)
        put(store, priority=9, queue="mail")
        order = [highest, high, earlier, first, second, low, lower]
        assert [place_of(store, job) for job in order] == list(range(7))

    def test_late_jobs_take_turns_with_those_on_time(self, store: Store) -> None:
        """A job has as many of the other kind before it as of its own, or all there are."""
        ids = self.together(store, 9)
        jobs = [*made(store, 6), *made(store, 3, due=NOW + SECOND)]
        jobs = [replace(job, id=id) for job, id in zip(jobs, ids, strict=True)]
        store.insert(jobs)
        make_ready(store)
        assert [place_of(store, job) for job in jobs] == [0, 2, 4, 6, 7, 8, 0, 2, 4]

    def test_jobs_in_lanes_count_by_priority_and_due(self, store: Store) -> None:
        """Whatever limit holds them back."""
        store.limit("each:fetch", Limit(1))
        for lane, due in (("x", 1), ("y", 2), ("x", 5)):
            put(store, task="fetch", lane=lane, due=NOW - 10 + due)
        (open_,) = put(store, due=NOW - 7)
        (laned,) = put(store, task="fetch", lane="z", due=NOW - 6)
        assert place_of(store, open_) == 2
        assert place_of(store, laned) == 3

    def test_the_jobs_of_a_lane_are_counted(self, store: Store) -> None:
        """Of all priorities, in one queue; and since when the first of them waits."""
        put(store, 3, lane="ann", due=NOW - 5)
        for priority in (-2, 0, 7):
            put(store, 2, lane="ann", due=NOW - abs(priority), priority=priority)
        put(store, 4, lane="bob")
        put(store, 4, lane="ann", task="bill")
        put(store, 4, lane="ann", queue="slow")
        put(store, 4, lane="ann", due=NOW + HOUR)
        assert store.waiting.lane("default", "mail", "ann", PLENTY) == WaitingLane(CappedCount(9), NOW - 7)
        assert store.waiting.lane("slow", "mail", "ann", 4) == WaitingLane(CappedCount(4, at_least=True), NOW)
        assert store.waiting.lane("default", "mail", "cid", PLENTY) == WaitingLane()
        assert store.waiting.lane("default", "mail", "", PLENTY) == WaitingLane()

    def test_the_limited_tasks_of_which_jobs_are_ready(self, store: Store) -> None:
        """Of whatever lane and band, also if a limit lets none start; not those that are due later."""
        store.limit("task:mail", Limit(0))
        put(store, lane="", priority=-1)
        put(store, lane="ann", queue="slow")
        put(store, lane="", due=NOW + HOUR, queue="later")
        put(store, queue="open", task="free")
        put(store, lane="bob", task="bill", priority=1)
        found = [store.waiting.tasks(queue, "", 10) for queue in ("default", "slow", "later", "open", "none")]
        assert found == [["bill", "mail"], ["mail"], [], [], []]
        assert [store.waiting.tasks("default", after, 1) for after in ("", "bill", "mail")] == [["bill"], ["mail"], []]

    def test_how_many_run_before_is_counted_up_to_a_bound(self, store: Store) -> None:
        """Then there may be more."""
        put(store, 20 * self.shards)
        (job,) = put(store, priority=-1)
        assert store.waiting.before(seen(store, job), 8) == CappedCount(8, at_least=True)
        assert place_of(store, job) == 20 * self.shards
