"""Records and sums of a history; what stores keep of it is in the conformance suite."""

from collections import Counter

import pytest
from msgspec.structs import replace

from tarry.model import lifecycle
from tarry.model.change import DONE, PUT
from tarry.model.duration import SECOND
from tarry.model.history.counting import NO_ATTEMPT, Count
from tarry.model.job import Job, State
from tarry.model.lifecycle import DEFAULT
from tarry.model.outcome import Released, Returned
from tarry.store.history.journal import read_record, record_of_changes, record_of_new, record_of_valid
from tarry.store.history.sums import HOURS, MINUTES, MOST_NAMES, OTHERS, Place, add_up, decode, merge

MINUTE = 1_800_000_000
NOW = MINUTE * SECOND
RUNS = Job(b"1" * 16, "mail", b"{}", due=NOW, state=State.RUNNING, epoch=1, owner="ann", state_since=NOW)


def put(task: str = "mail") -> Count:
    return MINUTE, "default", task, PUT, NO_ATTEMPT, NO_ATTEMPT, 0


def new(*tasks: str) -> list[Job]:
    return [Job(bytes(16), task, b"", state_since=NOW) for task in tasks]


def test_a_record_has_all_that_counts() -> None:
    assert read_record(record_of_new(new("a", "b", "a"))) == {put("a"): 2, put("b"): 1}


def test_only_those_with_the_digit_1_count() -> None:
    record = b"1001" + record_of_new(new("a", "a", "b", "b"))
    assert read_record(record) == {put("a"): 1, put("b"): 1}


def test_only_valid_changes_count() -> None:
    changes = [lifecycle.after(RUNS, outcome, DEFAULT, NOW) for outcome in (Returned(), Returned(), Released())]
    assert read_record(record_of_valid(changes, [True, False, True])) == {(MINUTE, "default", "mail", DONE, 0, 0, 0): 1}


def test_of_what_does_not_count_there_is_no_record() -> None:
    released = lifecycle.after(RUNS, Released(), DEFAULT, NOW)
    assert record_of_changes([released]) == record_of_new([]) == record_of_changes([]) == b""


def test_a_thousand_alike_take_about_a_byte_each() -> None:
    changes = [lifecycle.after(replace(RUNS, due=NOW - n), Returned(), DEFAULT, NOW) for n in range(1000)]
    record = record_of_changes(changes)
    assert sum(read_record(record).values()) == 1000
    assert len(record) < 1500


@pytest.mark.parametrize("record", [b"", b"\0", b"\0\xc1", b"\0\x92\x01\x02"])
def test_a_record_that_cannot_be_read_stops_nothing(record: bytes) -> None:
    assert read_record(record) == Counter()


def test_sums_are_added_to_those_that_are_there() -> None:
    place = Place(MINUTES, MINUTE, "default", "a")
    first = merge(add_up([record_of_new(new("a", "a"))], NOW), {})
    second = merge(add_up([record_of_new(new("a"))], NOW), first)
    assert decode(second[place]).kinds == {PUT: 3}


def test_only_what_changes_is_written() -> None:
    there = merge(add_up([record_of_new(new("a", "b"))], NOW), {})
    assert {place.task for place in merge(add_up([record_of_new(new("b"))], NOW), there)} == {"b"}


def test_names_beyond_a_number_are_summed_up_together() -> None:
    there: dict[Place, bytes] = {}
    for part in range(3):
        tasks = [f"task {number}" for number in range(part * 250, part * 250 + 250)]
        there |= merge(add_up([record_of_new(new(*tasks))], NOW), there)
    hours = {place: decode(cell) for place, cell in there.items() if place.resolution == HOURS}
    assert len(hours) == MOST_NAMES + 1
    (others,) = (sums for place, sums in hours.items() if place.task == OTHERS)
    assert others.kinds == {PUT: 750 - MOST_NAMES}
