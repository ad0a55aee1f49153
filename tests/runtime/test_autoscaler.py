"""What a pool that follows its backlog wants, on a clock that the test moves."""

from collections.abc import Callable

import pytest

from tarry.runtime.autoscaler import MANUAL_HOLD, Autoscaler, PoolLoad, Range

WIDE = Range(1, 8, 30.0)


def pool_load(ready: int, *, load: float, waiting: int = 0, oldest: float = 5.0, held: int = 0) -> PoolLoad:
    return PoolLoad(ready, min(1.0, load / ready), load, held or ready, waiting, oldest if waiting else 0.0)


class Days:
    """A pool over time: each second it is looked at, and what is wanted is there at once."""

    def __init__(self, count: int, range: Range = WIDE) -> None:
        self.count, self.range = count, range
        self.now = 1000.0
        self.demand = Autoscaler()
        self.was: list[int] = []

    def go(self, seconds: int, seen: Callable[[int], PoolLoad]) -> list[int]:
        """The counts after each look."""
        for _ in range(seconds):
            self.now += 1.0
            self.count = self.demand.decide(self.now, self.count, self.range, seen(self.count))
            self.was.append(self.count)
        return self.was[-seconds:]


def busy(waiting: int) -> Callable[[int], PoolLoad]:
    return lambda count: pool_load(count, load=count, waiting=waiting)


def idle(count: int) -> PoolLoad:
    return pool_load(count, load=0.0)


def test_a_backlog_doubles_it_up_to_its_max() -> None:
    assert Days(1).go(5, busy(1000)) == [2, 4, 8, 8, 8]


def test_no_more_than_the_backlog_needs() -> None:
    assert Days(4).go(1, busy(3)) == [7]
    assert Days(4).go(1, lambda count: pool_load(count, load=count, waiting=100, held=400)) == [5]
    assert Days(1, Range(1, 100)).go(3, busy(1)) == [2, 3, 4]


@pytest.mark.parametrize(
    "seen",
    [
        pool_load(2, load=2.0, waiting=0),
        pool_load(2, load=2.0, waiting=9, oldest=0.1),
        pool_load(2, load=1.0, waiting=9),
        pool_load(1, load=1.0, waiting=9),
    ],
    ids=["nothing waits", "not for long", "they have room, so a limit holds them back", "one is not there yet"],
)
def test_no_reason_to_grow(seen: PoolLoad) -> None:
    assert Days(2).go(20, lambda count: seen) == [2] * 20


def test_after_a_rush_it_shrinks_one_at_a_time() -> None:
    days = Days(1)
    days.go(10, busy(1000))
    assert days.go(28, idle) == [8] * 28
    after = days.go(50, idle)
    assert after == sorted(after, reverse=True)
    assert [after.count(count) for count in (7, 6, 5, 4, 3, 2)] == [5] * 6
    assert after[-1] == 1


def test_what_is_used_stays_with_some_room() -> None:
    days = Days(8)
    days.go(120, lambda count: pool_load(count, load=3.0))
    assert days.count == 4


def test_a_rush_every_now_and_then_keeps_what_it_needs() -> None:
    days = Days(8)
    for _ in range(10):
        days.go(3, busy(100))
        days.go(20, idle)
    assert days.was == [8] * 230


def test_never_below_its_min() -> None:
    days = Days(3, Range(2, 8))
    days.go(200, idle)
    assert days.count == 2


def test_other_bounds_hold_at_once() -> None:
    days = Days(8)
    days.range = Range(1, 5)
    assert days.go(1, busy(10)) == [5]
    days.range = Range(6, 9)
    assert days.go(1, idle) == [6]


def test_while_nothing_is_known_nothing_changes_and_the_time_begins_anew() -> None:
    days = Days(4)
    days.go(29, idle)
    days.now += 600
    assert days.go(30, idle) == [4] * 30
    assert days.go(1, idle) == [3]


def test_a_number_set_by_hand_stands_for_a_moment_and_then_it_follows_again() -> None:
    days = Days(4)
    days.go(29, idle)
    days.demand.hold(days.now)
    assert days.go(int(MANUAL_HOLD) - 1, busy(50)) == [4, 4]
    assert days.go(2, busy(50))[-1] == 8


def test_a_number_set_by_hand_is_kept_for_the_whole_time() -> None:
    days = Days(2)
    days.go(60, idle)
    days.count = 6
    days.demand.hold(days.now)
    assert days.go(29, idle) == [6] * 29
    assert days.go(2, idle)[-1] == 5
