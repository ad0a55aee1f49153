"""Turns by weight, as arithmetic: lanes that always have jobs."""

from collections import Counter
from itertools import islice, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarry.model.limit import MOST_WEIGHT
from tarry.store.rules.weights.weighted_task import WeightedTask
from tarry.store.rules.weights.weighted_turns import TurnState, decode_turn

WEIGHTS = st.dictionaries(st.text(max_size=4), st.integers(1, MOST_WEIGHT), min_size=1, max_size=8)
MANY = 10**6


def starts(weights: dict[str, int], others: list[str], each: int, batches: list[int], count: int) -> list[str]:
    """The lanes of that many starts, claimed in batches of these sizes, over and over."""
    turn, found = None, list[str]()
    while len(found) < count:
        for batch in batches:
            turns = WeightedTask(weights, each, turn)
            order = sorted(others, key=lambda lane: (turns.state.lane is not None and lane <= turns.state.lane, lane))
            lines = {lane: [lane] * batch for lane in [*weights, *order]}
            chosen = turns.merge(lines, len(others), batch)
            assert len(chosen) == batch
            for lane in chosen:
                turn = turns.start(lane)
            found += chosen
    return found[:count]


@settings(max_examples=60, deadline=None)
@given(WEIGHTS, st.integers(0, 12), st.sampled_from([1, 3, 50]), st.lists(st.integers(1, 300), min_size=1, max_size=3))
def test_any_thousand_starts_are_shared_by_weight(
    weights: dict[str, int], count: int, each: int, batches: list[int]
) -> None:
    """Within 5 % and one start, wherever they begin."""
    others = [f"plain {number}" for number in range(count)]
    lanes = starts(weights, others, each, batches, 3000)
    whole = sum(weights.values()) + count * each
    for first in range(0, 2001, 250):
        found = Counter(lanes[first : first + 1000])
        for lane, weight in (weights | dict.fromkeys(others, each)).items():
            fair = 1000 * weight / whole
            assert abs(found[lane] - fair) <= 0.05 * fair + 1


@pytest.mark.parametrize("batch", [1, 10, 1001])
def test_the_smallest_weight_beside_the_largest(batch: int) -> None:
    """Never waits for more than 1,000 starts of the other."""
    lanes = starts({"whale": 1000, "minnow": 1}, [], 1, [batch], 5005)
    at = [number for number, lane in enumerate(lanes) if lane == "minnow"]
    assert len(at) == 5
    assert {after - before for before, after in pairwise(at)} == {1001}


def test_a_million_lanes_without_a_weight_beside_one_with() -> None:
    turns = WeightedTask({"whale": 1000}, 1, None)
    found = Counter(islice(turns.in_turn({"whale": MANY, None: MANY}, MANY), 10_010))
    assert found == {None: 10_000, "whale": 10}


@given(st.text(max_size=5) | st.sampled_from(["", "1 2 3 4", "1 2 3 4\x1f", "9 9 9 9\x1fann", "\x1f"]))
def test_what_a_store_keeps_of_a_task_is_read(text: str) -> None:
    """Also where it is no more than the name of a lane, as for tasks without weights; and what it writes."""
    state = decode_turn(text)
    assert decode_turn(state.encode()) == state
    assert decode_turn(None) == TurnState()
