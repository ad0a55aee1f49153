"""A producer's pace is that of the clock, and not of the machine."""

import random
from collections.abc import Callable

import pytest

from tests.system.pace import MOST_BEHIND, Pace


class Clock:
    """A time that passes only while somebody sleeps or works."""

    def __init__(self) -> None:
        self.time = 1000.0

    def now(self) -> float:
        return self.time

    def pass_by(self, seconds: float) -> None:
        self.time += seconds


def acts(seconds: float, gap: Callable[[], float], work: Callable[[float], float]) -> list[float]:
    """When a producer acted within so many seconds. work: how long an act takes that begins then."""
    clock = Clock()
    pace, began, moments = Pace(gap, clock.now, clock.pass_by), clock.time, list[float]()
    while True:
        pace.wait()
        if clock.time - began >= seconds:
            return moments
        moments.append(clock.time - began)
        clock.pass_by(work(moments[-1]))


@pytest.mark.parametrize("takes", [0.0, 0.1, 0.19])
def test_how_long_an_act_takes_does_not_change_the_pace(takes: float) -> None:
    moments = acts(100, lambda: 0.2, lambda at: takes)
    assert moments == pytest.approx([0.2 * (number + 1) for number in range(len(moments))])
    assert len(moments) in (499, 500)


def test_drawn_gaps_give_the_same_moments_on_a_busy_machine() -> None:
    quiet, busy = (
        acts(100, lambda dice=dice: dice.uniform(0.1, 0.3), lambda at, takes=takes: takes)  # type: ignore[misc]
        for dice, takes in ((random.Random(7), 0.0), (random.Random(7), 0.09))
    )
    assert busy == pytest.approx(quiet)


def test_a_short_stall_is_made_up_for() -> None:
    moments = acts(100, lambda: 0.2, lambda at: MOST_BEHIND if 50 <= at < 50.2 else 0.0)
    assert len(moments) in (499, 500)


def test_after_a_long_stall_it_goes_on_at_the_pace() -> None:
    moments = acts(100, lambda: 0.2, lambda at: 20.0 if 50 <= at < 50.2 else 0.0)
    assert len(moments) <= 400 + MOST_BEHIND / 0.2 + 1
    assert len([at for at in moments if 60 < at < 71]) <= (MOST_BEHIND + 1) / 0.2 + 1
    assert moments[-100:] == pytest.approx([moments[-100] + 0.2 * number for number in range(100)])
