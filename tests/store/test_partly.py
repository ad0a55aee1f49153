"""The answer of those of several stores that are there."""

import pytest

from tarry.errors import PartlyUnavailable, StoreUnavailable
from tarry.store.rules.partial_result import made_of, partial_result, reachable_part

AWAY = PartlyUnavailable("one is away", [1])


def in_part() -> list[int]:
    """Answers for some."""
    raise AWAY


def away() -> list[int]:
    """Nobody answers."""
    raise StoreUnavailable("away")


def test_all_of_it() -> None:
    assert partial_result(lambda: [1, 2]) == ([1, 2], None)
    assert reachable_part(lambda: [1, 2]) == [1, 2]


def test_some_of_it_and_why_no_more() -> None:
    assert partial_result(in_part) == ([1], AWAY)
    assert reachable_part(in_part) == [1]


def test_where_nobody_answers_there_is_none() -> None:
    with pytest.raises(StoreUnavailable, match="away"):
        reachable_part(away)


def total(numbers: list[int]) -> int:
    """Converts an answer."""
    return sum(numbers)


def test_a_part_is_converted_and_stays_a_part() -> None:
    assert made_of(lambda: [1, 2], total) == 3
    with pytest.raises(PartlyUnavailable, match="one is away") as raised:
        made_of(in_part, total)
    assert raised.value.answer == 1
    with pytest.raises(StoreUnavailable, match="away"):
        made_of(away, total)
