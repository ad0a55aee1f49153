"""The numbers of jobs: unique, growing, and as good as an id."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.client.clock import elapsed
from tarry.door.beanstalk import numbers
from tarry.door.beanstalk.numbers import MAX_NUMBER, JobNumbers, id_of, number_of
from tarry.errors import StoreUnavailable
from tarry.store.ids import uuid7
from tarry.store.memory import MemoryStore


@given(st.integers(1, MAX_NUMBER))
def test_a_number_and_its_id_say_the_same(number: int) -> None:
    id = id_of(number)
    assert id is not None
    assert number_of(id) == number
    assert (id[6] >> 4, id[8] >> 6) == (7, 0b10)


def test_no_other_id_has_a_number() -> None:
    assert all(number_of(uuid7()) is None for _ in range(1000))
    assert all(id_of(number) is None for number in (0, -1, 2**63, 2**64 - 1))


def test_processes_make_different_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    # At the same moment, and also where the clock was set back.
    store, now = MemoryStore(), [1_800_000_000_000_000_000]
    monkeypatch.setattr("time.time_ns", lambda: now[0])
    processes = [JobNumbers(store) for _ in range(5)]
    for process in processes:
        process.take_slot()
    made: list[int] = []
    for _ in range(3):
        for process in processes:
            mine = [process.new() for _ in range(5000)]
            assert mine == sorted(mine)
            made += mine
        now[0] -= 10**9
    assert len(set(made)) == len(made)


def test_without_a_slot_there_is_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    made = JobNumbers(MemoryStore())
    with pytest.raises(StoreUnavailable):
        made.new()
    made.take_slot()
    assert made.is_ready
    assert not made.is_due
    before = elapsed()
    monkeypatch.setattr(numbers, "elapsed", lambda: before + numbers.SLOT_LASTS * 3 // 4)
    assert made.is_ready
    assert made.is_due
    monkeypatch.setattr(numbers, "elapsed", lambda: before + numbers.SLOT_LASTS * 2)
    assert not made.is_ready


def test_a_job_of_another_program_has_a_number_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbers, "ALIASES", 3)
    made = JobNumbers(MemoryStore())
    made.take_slot()
    ids = [uuid7() for _ in range(5)]
    alias = [made.number(id) for id in ids]
    assert made.number(ids[4]) == alias[4]
    assert [made.id(number) for number in alias[2:]] == ids[2:]
    assert made.id(alias[0]) != ids[0]
