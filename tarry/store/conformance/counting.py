"""The history: what is counted, once and only once."""

from collections import Counter
from collections.abc import Callable
from functools import partial

import pytest
from msgspec.structs import replace

from tarry.errors import StoreUnavailable
from tarry.model import lifecycle, moving
from tarry.model.bound import Bound
from tarry.model.change import CANCELLED, DEAD, DONE, EXPIRED, FAILED, PUT
from tarry.model.duration import HOUR, SECOND
from tarry.model.history.buckets import bucket_of
from tarry.model.lifecycle import DEFAULT
from tarry.model.limit import Limit
from tarry.model.outcome import Cancelled, Expired, Lost, Outcome, Released, Returned, Snoozed, Unknown
from tarry.store.conformance.cases.jobs import (
    EVERYTHING,
    FORGETS,
    LEASE,
    NOW,
    RETRY,
    Promises,
    made,
    outcomes,
    put,
    running,
    settle,
    side_by_side,
    taken,
)
from tarry.store.conformance.cases.jobs import (
    FAILED as FAILS,
)
from tarry.store.flaky import FlakyStore
from tarry.store.rules.base import Store
from tarry.store.rules.history.gauges import Gauge, QueueSample, gauge_of
from tarry.store.rules.history.history import JournalHistory
from tarry.store.rules.history.journal import read_record
from tarry.store.rules.history.sums import DAYS, HOURS, KEPT, LENGTH, MINUTES, TOTALS, Place, decode

START = NOW // SECOND
"""NOW is the start of a minute and an hour; it is 08:00 UTC."""
KINDS: list[tuple[Outcome, int]] = [
    (Returned(), DONE),
    (FAILS, DEAD),
    (Cancelled("no"), CANCELLED),
    (Expired(), EXPIRED),
]


def sum_up(store: Store, limit: int = 1000, now: int = NOW + HOUR) -> int:
    """Sums up the whole journal; returns how many records there were."""
    count = 0
    for _ in range(10_000):
        done = store.history.sum_up(now, limit)
        if not done:
            return count
        count += done
    raise AssertionError("the journal has no end")


def kinds(store: Store, resolution: int = DAYS) -> dict[int, int]:
    """How often each kind was counted, over all queues and tasks; sums up first."""
    sum_up(store)
    return kinds_kept(store, resolution)


def kinds_kept(store: Store, resolution: int = DAYS) -> dict[int, int]:
    """The same of what is summed up by now."""
    total = Counter[int]()
    for cell in store.history.read(resolution, 0, 2**40).values():
        total.update(decode(cell).kinds)
    return dict(total)


def sample(store: Store, second: int, **samples: QueueSample) -> None:
    """Samples what one store of several has, too."""
    first = getattr(store, "stores", (store,))[0]
    store.history.sample(NOW + second * SECOND, store, lambda sampled: samples if sampled is first else {})


def gauges(store: Store, resolution: int, queue: str) -> list[Gauge]:
    """What was sampled of the queue, by time."""
    cells = store.history.read(resolution, 0, 2**40)
    found = (gauge_of(decode(cell)) for place, cell in cells.items() if (place.queue, place.task) == (queue, ""))
    return [gauge for gauge in found if gauge is not None]


class Counting(Promises):
    def test_a_new_job_counts_once(self, store: Store) -> None:
        """Not if it is sent again, alone or with others, nor if its key is held."""
        jobs = put(store, 5)
        put(store, queue="slow", task="fetch")
        store.insert(jobs)
        store.insert(jobs[:1])
        store.insert([*jobs, *made(store, 1)])
        put(store, key="one")
        store.insert(made(store, 1, key="one"))
        store.insert([*made(store, 1, key="one"), *made(store, 1, key="two")])
        assert kinds(store) == {PUT: 9}
        cells = store.history.read(MINUTES, START, START + 60)
        assert {place: decode(cell).kinds for place, cell in cells.items()} == {
            Place(MINUTES, START, "default", "mail"): {PUT: 8},
            Place(MINUTES, START, "slow", "fetch"): {PUT: 1},
        }

    def test_an_insert_counts_a_job_that_is_twice_in_it_once(self, store: Store) -> None:
        """As it stores it once."""
        jobs = made(store, 3)
        store.insert([*jobs, jobs[0]])
        assert kinds(store) == {PUT: 3}

    def test_a_bounded_insert_counts_what_there_is_room_for(self, store: Store) -> None:
        """The refused jobs do not count."""
        jobs, bounds = made(store, 20 * self.shards), {"default": Bound(3 * self.shards)}
        answers = store.insert_bounded(jobs, bounds, NOW)
        store.insert_bounded(jobs[:1], bounds, NOW)
        stored = sum(isinstance(answer, bytes) for answer in answers)
        assert 0 < stored < len(jobs)
        assert kinds(store) == {PUT: sum(job is not None for job in store.get([job.id for job in jobs]))}

    def test_a_job_that_comes_from_another_store_does_not_count(self, store: Store) -> None:
        """It counted where it was put."""
        (job,) = put(store)
        assert store.apply([moving.park(job)], NOW) == [True]
        (parked,) = store.get([job.id])
        assert parked is not None
        store.apply([moving.forget(parked)], NOW)
        store.insert([parked])
        assert store.apply([moving.restore(parked)], NOW) == [True]
        assert kinds(store) == {PUT: 1}

    @pytest.mark.parametrize("rules", [DEFAULT, FORGETS])
    @pytest.mark.parametrize("many", [1, 7])
    def test_each_end_counts(self, store: Store, rules: lifecycle.Rules, many: int) -> None:
        """Also of a job that is forgotten at once."""
        for outcome, _ in KINDS:
            assert outcomes(store, running(store, many), outcome, rules) == [True] * many
        assert kinds(store) == {PUT: 4 * many} | {kind: many for _, kind in KINDS}

    def test_an_attempt_that_fails_counts(self, store: Store) -> None:
        """As failed if the job comes again, as dead if it was the last one."""
        (job,) = running(store)
        settle(store, job, FAILS, RETRY)
        (job,) = running(store)
        settle(store, job, Lost(on=True), RETRY)
        assert kinds(store) == {PUT: 2, FAILED: 2}

    @pytest.mark.parametrize("outcome", [Released(), Lost(), Snoozed(SECOND), Unknown()])
    def test_an_attempt_that_is_not_counted_is_nothing(self, store: Store, outcome: Outcome) -> None:
        """It is as if it had not been."""
        (job,) = running(store)
        settle(store, job, outcome)
        assert kinds(store) == {PUT: 1}

    def test_what_people_do_counts_as_what_it_is(self, store: Store) -> None:
        """A cancel counts; to run a job now, to move it or to delete it does not."""
        jobs = put(store, 3)
        store.apply([lifecycle.cancel(jobs[0], DEFAULT, NOW), lifecycle.move(jobs[1], NOW, queue="slow")], NOW)
        cancelled, _, _ = store.get([job.id for job in jobs])
        assert cancelled is not None
        store.apply([lifecycle.run_now(cancelled, NOW), lifecycle.forget(jobs[2])], NOW)
        assert kinds(store) == {PUT: 3, CANCELLED: 1}

    def test_only_changes_that_are_made_count(self, store: Store) -> None:
        """Of a batch in which some are stale, and of a change that is sent twice."""
        jobs = running(store, 9)
        done = [lifecycle.after(job, Returned(), DEFAULT, NOW) for job in jobs]
        assert store.apply(done[:4], NOW) == [True] * 4
        assert store.apply(done, NOW) == [False] * 4 + [True] * 5
        assert store.apply(done, NOW) == [False] * 9
        (other,) = running(store)
        end = lifecycle.after(other, FAILS, RETRY, NOW)
        assert store.apply([end, end], NOW) == [True, False]
        assert kinds(store) == {PUT: 10, DONE: 9, FAILED: 1}

    def test_an_exchange_counts_as_an_apply_does(self, store: Store) -> None:
        """While it claims."""
        jobs = running(store, 4)
        put(store, 4)
        stale = lifecycle.after(jobs[0], Returned(), DEFAULT, NOW)
        assert store.apply([stale], NOW) == [True]
        changes = [lifecycle.after(job, Returned(), DEFAULT, NOW) for job in jobs]
        answer = store.exchange(changes, EVERYTHING, 10, "ann", LEASE, NOW)
        assert (answer.valid, len(answer.jobs)) == ([False, True, True, True], 4)
        assert kinds(store) == {PUT: 8, DONE: 4}

    def test_jobs_of_limits_and_lanes_count(self, store: Store) -> None:
        """Whatever way a store has for them."""
        store.limit("task:mail", Limit(most=5))
        store.limit("each:fetch", Limit(most=2))
        put(store, 3)
        put(store, 4, task="fetch", lane="x")
        claimed = taken(store)
        assert outcomes(store, claimed, Returned()) == [True] * len(claimed)
        assert kinds(store) == {PUT: 7, DONE: len(claimed)}

    def test_many_at_once_count(self, store: Store) -> None:
        """More than a store takes in one step."""
        jobs = put(store, 1200)
        claimed = taken(store)
        store.insert(jobs[:700] + made(store, 100))
        outcomes(store, claimed, Returned())
        assert kinds(store) == {PUT: 1300, DONE: 1200}

    def test_times_are_counted_in_buckets(self, store: Store) -> None:
        """How long jobs waited from their due time on, and how long their attempt ran."""
        put(store, 2, due=NOW, task="mail")
        claimed = taken(store, now=NOW + 10 * SECOND)
        assert outcomes(store, claimed, Returned(), now=NOW + 12 * SECOND) == [True, True]
        sum_up(store)
        (cell,) = store.history.read(HOURS, START, START + 3600).values()
        sums = decode(cell)
        assert sums.waited == {bucket_of(10 * SECOND): 2}
        assert sums.ran == {bucket_of(2 * SECOND): 2}

    def test_each_resolution_has_the_same_sums(self, store: Store) -> None:
        """In minutes, hours and days, each by its start."""
        for minute in (0, 1, 70):
            jobs = made(store, 2)
            store.insert([replace(job, state_since=NOW + minute * 60 * SECOND) for job in jobs])
        sum_up(store, now=NOW + 2 * HOUR)
        starts = {
            resolution: [place.start - START for place in store.history.read(resolution, 0, 2**40)]
            for resolution in (MINUTES, HOURS, DAYS, TOTALS)
        }
        assert starts == {MINUTES: [0, 60, 4200], HOURS: [0, 3600], DAYS: [-8 * 3600], TOTALS: [-START]}
        assert kinds(store, MINUTES) == kinds(store, HOURS) == kinds(store, DAYS) == {PUT: 6}

    def test_a_time_in_the_future_counts_as_now(self, store: Store) -> None:
        """The clock of a process may be wrong."""
        store.insert([replace(job, state_since=NOW + 1000 * HOUR) for job in made(store)])
        sum_up(store, now=NOW)
        assert [place.start for place in store.history.read(MINUTES, 0, 2**40)] == [START]

    def test_sums_that_were_kept_long_enough_are_dropped(self, store: Store) -> None:
        """Minutes after a day, hours after a month, days after two years, those of all time never."""
        put(store, 2)
        sum_up(store)
        for resolution, left in [(MINUTES, [HOURS, DAYS]), (HOURS, [DAYS]), (DAYS, [])]:
            start = START // LENGTH[resolution] * LENGTH[resolution]
            store.history.prune((start + KEPT[resolution]) * SECOND)
            assert kinds_kept(store, resolution) == {PUT: 2}
            store.history.prune((start + KEPT[resolution] + 1) * SECOND)
            assert [r for r in (MINUTES, HOURS, DAYS) if kinds_kept(store, r)] == left
        assert kinds_kept(store, TOTALS) == {PUT: 2}
        put(store)
        assert kinds(store, TOTALS) == {PUT: 3}

    def test_what_is_not_summed_up_yet_can_be_read(self, store: Store) -> None:
        """Up to a number of records."""
        for _ in range(4):
            put(store, 2)
        records = store.history.unsummed(100)
        assert sum((read_record(record).counts for record in records), Counter()).total() == 8
        assert len(store.history.unsummed(3)) == 3
        sum_up(store, limit=3)
        assert store.history.unsummed(100) == []
        assert kinds_kept(store) == {PUT: 8}

    def test_many_who_sum_up_at_once_count_all_once(self, store: Store) -> None:
        """While others put and settle jobs."""

        def work(number: int) -> None:
            for _ in range(20):
                if number % 2:
                    store.history.sum_up(NOW, 7)
                else:
                    store.insert(made(store, 2))

        side_by_side(6, work)
        assert kinds(store) == {PUT: 120}

    def test_of_two_who_took_the_same_records_one_sums_them_up(self, store: Store) -> None:
        """The other changes nothing, whatever came between."""
        history = store.history
        if not isinstance(history, JournalHistory):
            return
        put(store, 2)
        first, second = history.take(10), history.take(10)
        put(store, 1)
        place = Place(MINUTES, START, "default", "mail")
        assert history.fold(first, {place: b"first"})
        assert not history.fold(second, {place: b"second"})
        assert history.read(MINUTES, START, START + 60) == {place: b"first"}
        assert len(history.take(10).records) == 1

    @pytest.mark.parametrize("after", [False, True])
    def test_whichever_call_fails_all_is_counted_once(self, store: Store, after: bool) -> None:
        """Whether it was done before it failed or not: whoever calls sends it again."""
        done = 0
        for number in range(1, 40):
            flaky = FlakyStore(store, number, after)
            jobs = made(store, 2)
            _again(partial(flaky.insert, jobs))
            claimed = taken(store)
            changes = [lifecycle.after(job, Returned(), DEFAULT, NOW) for job in claimed]
            _again(partial(flaky.apply, changes, NOW))
            _again(partial(sum_up, flaky, 1))
            done += 2
            assert kinds_kept(store) == {PUT: done, DONE: done}, f"call {number} failed"
            if flaky.calls < number:
                return
        raise AssertionError("no history needs so many calls")

    def test_a_sample_is_kept_once_a_minute(self, store: Store) -> None:
        """The first one. An hour has the last, and the highest."""
        for second, ready, oldest in ((0, 5, 70), (59, 9, 90), (60, 7, 20), (120, 2, 30)):
            sample(store, second, mail=QueueSample(ready, oldest))
        minutes = gauges(store, MINUTES, "mail")
        assert minutes == [Gauge(5, 70, 5, 70), Gauge(7, 20, 7, 20), Gauge(2, 30, 2, 30)]
        assert gauges(store, HOURS, "mail") == gauges(store, DAYS, "mail") == [Gauge(2, 30, 7, 70)]
        sample(store, 180)
        assert gauges(store, HOURS, "mail") == [Gauge(0, 0, 7, 70)]
        assert gauges(store, MINUTES, "mail") == minutes
        assert gauges(store, MINUTES, "")[-1] == Gauge(0, 0, 0, 0)

    def test_samples_and_counts_leave_each_other_alone(self, store: Store) -> None:
        """Also those of all queues, which share a place."""
        put(store, 2)
        sum_up(store)
        sample(store, 0, default=QueueSample(2, 9), mail=QueueSample(3, 4))
        put(store, 3)
        assert kinds(store, MINUTES) == kinds(store, TOTALS) == {PUT: 5}
        assert gauges(store, MINUTES, "") == [Gauge(5, 9, 5, 9)]
        assert gauges(store, MINUTES, "default") == [Gauge(2, 9, 2, 9)]
        assert gauges(store, TOTALS, "") == []

    def test_many_who_sample_at_once_keep_one(self, store: Store) -> None:
        """While others put jobs and sum up."""

        def work(number: int) -> None:
            for minute in range(5):
                store.insert(made(store))
                store.history.sum_up(NOW, 7)
                sample(store, 60 * minute, mail=QueueSample(number + 1, 0))

        side_by_side(4, work)
        assert all(1 <= gauge.ready <= 4 * self.shards for gauge in gauges(store, MINUTES, "mail"))
        assert kinds(store) == {PUT: 20}

    def test_sums_outlive_the_store_that_made_them(self, store: Store) -> None:
        """As jobs do; and so does the journal."""
        put(store, 2)
        sum_up(store)
        put(store, 1)
        again = self.reopen(store)
        if again is not None:
            assert kinds(again) == {PUT: 3}
            again.close()


def _again(call: Callable[[], object]) -> None:
    for _ in range(2):
        try:
            call()
        except StoreUnavailable:
            continue
        return
    raise AssertionError("it failed twice")
