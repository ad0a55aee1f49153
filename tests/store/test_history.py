"""Records and sums of a history; what stores keep of it is in the conformance suite."""

from collections import Counter

import msgspec
import pytest
from msgspec.structs import replace

from tarry.errors import PartlyUnavailable
from tarry.model import lifecycle
from tarry.model.change import DONE, PUT
from tarry.model.duration import HOUR, SECOND
from tarry.model.history.counting import NO_ATTEMPT, Count
from tarry.model.job import Job, State
from tarry.model.lifecycle import DEFAULT
from tarry.model.outcome import Released, Returned
from tarry.store.memory.store import MemoryStore
from tarry.store.queries.due_horizon import due_horizon
from tarry.store.queries.history_reading import Figures, Period, bring_up_to_date, totals, view
from tarry.store.rules.base import Want
from tarry.store.rules.history.gauges import QueueSample
from tarry.store.rules.history.journal import read_record, record_of_changes, record_of_new, record_of_valid
from tarry.store.rules.history.sums import (
    DAYS,
    HOURS,
    LENGTH,
    MINUTES,
    MOST_NAMES,
    OTHERS,
    TOTALS,
    Place,
    add_up,
    decode,
    merge,
)
from tarry.store.rules.ids import uuid7
from tarry.store.rules.partial_result import reachable_part
from tarry.store.shards.sharded import ShardedStore
from tests.store.switched import Switched

MINUTE = 1_800_000_000
NOW = MINUTE * SECOND
RUNS = Job(b"1" * 16, "mail", b"{}", due=NOW, state=State.RUNNING, epoch=1, owner="ann", state_since=NOW)


def put(task: str = "mail") -> Count:
    return MINUTE, "default", task, PUT, NO_ATTEMPT, NO_ATTEMPT, 0


def new(*tasks: str) -> list[Job]:
    return [Job(bytes(16), task, b"", state_since=NOW) for task in tasks]


def test_a_record_has_all_that_counts() -> None:
    assert read_record(record_of_new(new("a", "b", "a"))).counts == {put("a"): 2, put("b"): 1}


def test_only_those_with_the_digit_1_count() -> None:
    record = b"1001" + record_of_new(new("a", "a", "b", "b"))
    assert read_record(record).counts == {put("a"): 1, put("b"): 1}


def test_only_valid_changes_count() -> None:
    changes = [lifecycle.after(RUNS, outcome, DEFAULT, NOW) for outcome in (Returned(), Returned(), Released())]
    counted = read_record(record_of_valid(changes, [True, False, True])).counts
    assert counted == {(MINUTE, "default", "mail", DONE, 0, 0, 0): 1}


def test_of_what_does_not_count_there_is_no_record() -> None:
    released = lifecycle.after(RUNS, Released(), DEFAULT, NOW)
    assert record_of_changes([released]) == record_of_new([]) == record_of_changes([]) == b""


def test_a_thousand_alike_take_about_a_byte_each() -> None:
    changes = [lifecycle.after(replace(RUNS, due=NOW - n), Returned(), DEFAULT, NOW) for n in range(1000)]
    record = record_of_changes(changes)
    assert read_record(record).counts.total() == 1000
    assert len(record) < 1500


NO_SUCH_COUNT, NOT_A_TEXT = b"\0\x92\x90\x91\x05", b"\0\x92\x91\x97\x01\xa1\xff\xa1a\x01\x02\x03\x00\x91\x01"
TOO_FEW_DIGITS = b"1" + record_of_new(new("a", "b"))


@pytest.mark.parametrize(
    "record", [b"", b"\0", b"\0\xc1", b"\0\x92\x01\x02", NO_SUCH_COUNT, NOT_A_TEXT, TOO_FEW_DIGITS]
)
def test_a_record_that_cannot_be_read_stops_nothing(record: bytes) -> None:
    assert read_record(record) == (Counter(), [])


def test_a_time_before_all_times_is_the_first_one() -> None:
    """No store has a place for such a number."""
    record = b"\0" + msgspec.msgpack.encode(([(-(2**63), "a", "b", 1, -1, -1, 0)], [1]))
    assert {place.start for place in add_up([read_record(record)], NOW)} == {0}


GARBAGE = [
    b"", b"\xc1", b"\x91" * 2000, b"\x01", msgspec.msgpack.encode([{1: -5}]), msgspec.msgpack.encode([{1: 2**64 - 1}]),
    msgspec.msgpack.encode([{}, {}, {}, {}, [1]]), msgspec.msgpack.encode([{}, {}, {}, {}, [1] * 9]),
]  # fmt: skip


@pytest.mark.parametrize("cell", GARBAGE)
def test_a_cell_that_cannot_be_read_stops_nothing(cell: bytes) -> None:
    """Else the journal would grow for ever, and no figure could be seen."""
    store = MemoryStore(lambda: NOW)
    places = [Place(which, MINUTE // LENGTH[which] * LENGTH[which], "default", "a") for which in LENGTH]
    spoilt = [*places, *(place._replace(queue="", task="") for place in places), Place(TOTALS, 0, "default", "a")]
    assert store.history.fold(store.history.take(0), dict.fromkeys(spoilt, cell))
    store.insert(new("a"))
    assert store.history.sum_up(NOW) == 1
    store.history.sample(NOW, store, lambda _: {"default": QueueSample(2, 3)})
    assert view(store.history, Period.last(MINUTES, 1, NOW)).total.put == 1
    assert totals(store.history).total.put == 1


def test_sums_are_added_to_those_that_are_there() -> None:
    place = Place(MINUTES, MINUTE, "default", "a")
    first = merge(add_up([read_record(record_of_new(new("a", "a")))], NOW), {})
    second = merge(add_up([read_record(record_of_new(new("a")))], NOW), first)
    assert decode(second[place]).kinds == {PUT: 3}


def test_only_what_changes_is_written() -> None:
    there = merge(add_up([read_record(record_of_new(new("a", "b")))], NOW), {})
    assert {place.task for place in merge(add_up([read_record(record_of_new(new("b")))], NOW), there)} == {"b"}


def test_names_beyond_a_number_are_summed_up_together() -> None:
    there: dict[Place, bytes] = {}
    for part in range(3):
        tasks = [f"task {number}" for number in range(part * 250, part * 250 + 250)]
        there |= merge(add_up([read_record(record_of_new(new(*tasks)))], NOW), there)
    hours = {place: decode(cell) for place, cell in there.items() if place.resolution == HOURS}
    assert len(hours) == MOST_NAMES + 1
    (others,) = (sums for place, sums in hours.items() if place.task == OTHERS)
    assert others.kinds == {PUT: 750 - MOST_NAMES}


def stored(store: MemoryStore, *jobs: Job) -> None:
    store.insert([replace(job, id=uuid7()) for job in jobs])


def test_a_view_has_each_point_and_each_task() -> None:
    store = MemoryStore()
    stored(store, *new("a", "b", "a"))
    stored(store, *(replace(job, state_since=NOW + 120 * SECOND, queue="slow") for job in new("a")))
    bring_up_to_date(store.history, NOW + HOUR)
    seen = view(store.history, Period(MINUTES, MINUTE - 60, MINUTE + 180))
    assert [(point.start - MINUTE, point.put) for point in seen.points] == [(-60, 0), (0, 3), (60, 0), (120, 1)]
    assert [(one.queue, one.task, one.put) for one in seen.tasks] == [
        ("default", "a", 2),
        ("default", "b", 1),
        ("slow", "a", 1),
    ]
    assert seen.total.put == 4


def test_a_view_may_be_of_some_tasks_only() -> None:
    store = MemoryStore()
    stored(store, *new("a", "b", "a"))
    bring_up_to_date(store.history, NOW)
    seen = view(store.history, Period(HOURS, MINUTE, MINUTE + 3600), lambda queue, task: task == "b")
    assert (seen.total.put, [one.task for one in seen.tasks], [one.put for one in seen.points]) == (1, ["b"], [1])


def test_a_view_has_percentiles_in_seconds() -> None:
    store = MemoryStore()
    store.insert([replace(RUNS, id=uuid7(), state=State.READY, owner="", epoch=0, due=NOW - SECOND)])
    (job,) = store.claim([Want("default", 0, 1)], 1, "ann", HOUR, NOW)
    store.apply([lifecycle.after(job, Returned(), DEFAULT, NOW + 3 * SECOND)], NOW)
    bring_up_to_date(store.history, NOW + HOUR)
    total = view(store.history, Period(HOURS, MINUTE, MINUTE + 3600)).total
    assert total.done == 1
    assert total.waited is not None
    assert total.ran is not None
    assert total.waited.p50 == pytest.approx(1, rel=0.125)
    assert total.ran.p99 == pytest.approx(3, rel=0.125)


def test_totals_are_of_all_time() -> None:
    store = MemoryStore()
    for day in range(3):
        stored(store, *(replace(job, state_since=NOW + 24 * day * HOUR) for job in new("a", "b", "a")))
    bring_up_to_date(store.history, NOW + 1000 * 24 * HOUR)
    store.history.prune(NOW + 1000 * 24 * HOUR)
    found = totals(store.history)
    assert [(one.task, one.put) for one in found.tasks] == [("a", 6), ("b", 3)]
    assert found.total.put == 9
    assert totals(store.history, lambda queue, task: task == "b").total.put == 3


def test_where_nothing_ended_there_are_no_percentiles() -> None:
    total = view(MemoryStore().history, Period(HOURS, MINUTE, MINUTE + 3600)).total
    assert (total, total.waited) == (Figures(), None)


@pytest.mark.parametrize(("resolution", "count"), [(MINUTES, 60), (HOURS, 24), (DAYS, 30)])
def test_the_last_points_end_with_the_one_that_is_not_over(resolution: int, count: int) -> None:
    period = Period.last(resolution, count, NOW + SECOND)
    assert len(period.starts) == count
    assert period.starts[-1] * SECOND <= NOW + SECOND < period.end * SECOND


def test_a_journal_that_is_too_long_is_left_to_the_keeper() -> None:
    """A person who asks for figures must not wait for it."""
    store = MemoryStore()
    for _ in range(25_000):
        store.history.append(record_of_new(new("a")))
    bring_up_to_date(store.history, NOW)
    assert len(store.history.unsummed(10**6)) == 5000


def test_of_the_shards_that_are_there_all_is_shown() -> None:
    away = Switched(MemoryStore(name="b"))
    store = ShardedStore([MemoryStore(name="a"), away])
    for part in store.stores:
        jobs = [replace(job, id=uuid7()) for job in new("a")]
        part.insert(
            [*jobs, *(replace(job, id=uuid7(), state=State.SCHEDULED, due=NOW + 3 * HOUR // 2) for job in new("later"))]
        )
        part.history.sum_up(NOW)
    hour = Period(HOURS, MINUTE, MINUTE + 3600)

    def seen() -> list[int]:
        horizon = reachable_part(lambda: due_horizon(store.waiting, NOW))
        ever, then = reachable_part(lambda: totals(store.history)), reachable_part(lambda: view(store.history, hour))
        return [ever.total.put, then.total.put, horizon.hours[1].count]

    assert seen() == [4, 4, 2]
    away.down()
    assert seen() == [2, 2, 1]
    with pytest.raises(PartlyUnavailable):
        totals(store.history)
    store.close()
