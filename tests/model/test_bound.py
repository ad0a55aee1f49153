"""The arithmetic of bounds and rooms."""

import pytest

from tarry.model.bound import Bound, Room

SECOND = 1_000_000


@pytest.mark.parametrize("most", [0, 1, 2, 7, 100_000])
@pytest.mark.parametrize("among", [1, 2, 3])
def test_a_bound_is_shared_out(most: int, among: int) -> None:
    shares = [Bound(most, "drop_oldest").share(number, among) for number in range(among)]
    assert {share.when_full for share in shares} == {"drop_oldest"}
    # Each gets at least one, or no bound at all where there is none.
    assert sum(share.most for share in shares) == (max(most, among) if most else 0)
    assert max(share.most for share in shares) - min(share.most for share in shares) <= 1


def test_a_hundredth_is_dropped_at_once() -> None:
    assert [Bound(most).dropped_at_once for most in (1, 99, 250, 100_000)] == [1, 1, 2, 1000]


def test_a_count_is_true_for_a_second_at_least() -> None:
    room = Room(10, 4, 5 * SECOND, 100)
    assert room.is_true(10, 6 * SECOND)
    assert not room.is_true(10, 6 * SECOND + 1)
    assert not room.is_true(11, 5 * SECOND), "of another bound"
    assert not room.is_true(10, 5 * SECOND - 1), "the clock was set back"


def test_dear_counts_are_rare() -> None:
    room = Room(10, 0, 0, 50_000)
    assert room.countable_at() == SECOND, "a twentieth of the time"
    assert room.is_true(10, 5 * SECOND), "a hundredth of the time"
    slow = Room(10, 0, 0, 60 * SECOND)
    assert slow.countable_at() == 10 * SECOND
    assert not slow.is_true(10, 10 * SECOND + 1)
