"""The numbers of jobs: unique, growing, and as good as an id."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tarry.client.clock import elapsed
from tarry.errors import StoreUnavailable
from tarry.server.beanstalk import numbers, slots
from tarry.server.beanstalk.numbers import (
    FIRST_SLOTS,
    MAX_NUMBER,
    MAX_OLD_NUMBER,
    MOST_SLOTS,
    JobNumbers,
    id_of,
    number_of,
)
from tarry.server.beanstalk.slots import NumberSlots
from tarry.store.memory.store import MemoryStore
from tarry.store.rules.ids import uuid7


@given(st.integers(1, MAX_NUMBER) | st.integers(MAX_NUMBER + 1, MAX_OLD_NUMBER))
@example(MAX_NUMBER)
@example(MAX_NUMBER + 1)
def test_a_number_and_its_id_say_the_same(number: int) -> None:
    id = id_of(number)
    assert id is not None
    assert number_of(id) == number
    assert (id[6] >> 4, id[8] >> 6) == (7, 0b10)


def test_no_other_id_has_a_number() -> None:
    assert all(number_of(uuid7()) is None for _ in range(1000))
    assert all(id_of(number) is None for number in (0, -1, 2**63, 2**64 - 1))


def test_a_number_of_an_earlier_version_is_found() -> None:
    # As tarry 0.1.0 made them before: the number and the id of one job.
    assert id_of(905052190343102464) == bytes.fromhex("01a19bf7981270009707a77bea57a1c5")
    assert number_of(bytes.fromhex("01a19bf7981270009707a77bea57a1c5")) == 905052190343102464


def test_javascript_has_each_number_that_is_made_for_thirty_years(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time_ns", lambda: 2_860_000_000_000_000_000)  # in 2060
    made = JobNumbers(MemoryStore())
    made.take_slots()
    number = made.new()
    assert 2**52 < number < 2**53
    assert int(float(number)) == number


def test_processes_make_different_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    # At the same moment, also where the clock was set back, and while they take more slots.
    store, now = MemoryStore(), [1_800_000_000_000_000_000]
    monkeypatch.setattr("time.time_ns", lambda: now[0])
    processes = [JobNumbers(store) for _ in range(5)]
    for process in processes:
        process.take_slots()
    made: list[int] = []
    for _ in range(3):
        for process in processes:
            mine = [process.new() for _ in range(5000)]
            process.take_slots()
            mine += [process.new() for _ in range(100)]
            assert mine == sorted(mine)
            assert [id_of(number) for number in mine] == sorted(map(id_of, mine))  # type: ignore[type-var]
            made += mine
        now[0] -= 10**9
    assert len(set(made)) == len(made)


def test_who_makes_many_takes_more_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time_ns", lambda: 1_800_000_000_000_000_000)
    store = MemoryStore()
    made = JobNumbers(store)
    made.take_slots()
    assert len(made._slots.taken) == FIRST_SLOTS
    for _ in range(5000):
        made.new()
    monkeypatch.setattr(numbers, "elapsed", lambda: elapsed() + 2_000_000)
    assert made.is_short
    made.take_slots()
    assert not made.is_short
    assert len(made._slots.taken) == MOST_SLOTS


def test_slots_are_taken_until_none_is_left_and_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    now = [store.time()]
    monkeypatch.setattr(store, "time", lambda: now[0])
    monkeypatch.setattr(slots, "SLOTS", 8)
    processes = [NumberSlots(store) for _ in range(6)]
    for process in processes[:5]:
        process.take(4)
    # The last ones go one by one.
    assert [len(process.taken) for process in processes[:5]] == [4, 1, 1, 1, 1]
    assert sorted(slot for process in processes[:5] for slot in process.taken) == list(range(8))
    with pytest.raises(StoreUnavailable, match="8 slots"):
        processes[5].take()
    now[0] += slots.LASTS
    processes[0].take(4)
    with pytest.raises(StoreUnavailable):
        processes[5].take()
    now[0] += slots.LASTS
    # Those of the processes that are gone.
    processes[5].take(4)
    assert len(processes[5].taken) == 1
    assert not {*processes[5].taken} & {*processes[0].taken}


def test_without_a_slot_there_is_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    made = JobNumbers(MemoryStore())
    with pytest.raises(StoreUnavailable):
        made.new()
    made.take_slots()
    assert made.is_ready
    assert not made.is_due
    before = elapsed()
    monkeypatch.setattr(slots, "elapsed", lambda: before + slots.LASTS * 3 // 4)
    assert made.is_ready
    assert made.is_due
    monkeypatch.setattr(slots, "elapsed", lambda: before + slots.LASTS * 2)
    assert not made.is_ready


def test_a_cell_that_nobody_can_read_is_written_anew() -> None:
    store = MemoryStore()
    store.kv_cas(slots.CELL, b"[]", None)
    made = NumberSlots(store)
    made.take(2)
    assert made.taken == (0, 1)


def test_a_job_of_another_program_has_a_number_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbers, "ALIASES", 3)
    made = JobNumbers(MemoryStore())
    made.take_slots()
    ids = [uuid7() for _ in range(5)]
    alias = [made.number(id) for id in ids]
    assert made.number(ids[4]) == alias[4]
    assert [made.id(number) for number in alias[2:]] == ids[2:]
    assert made.id(alias[0]) != ids[0]
