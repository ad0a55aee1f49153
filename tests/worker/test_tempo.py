"""How long a busy pump lets ends gather."""

import pytest

from tarry.model.duration import SECOND
from tarry.worker import tempo
from tarry.worker.tempo import Tempo
from tests.worker.bed import Bed, Make


def at(rate: float) -> Tempo:
    """So many a second, for long."""
    one, steps = Tempo(), 20
    for step in range(steps):
        one.ended(round(rate / steps), 100 + step / steps)
    return one


def test_until_a_quarter_of_what_is_held_has_ended() -> None:
    assert at(4000).pause(200, 10) == pytest.approx(0.01, rel=0.1)


def test_never_for_long() -> None:
    assert at(2000).pause(1000, 0) == tempo.MOST


def test_not_where_few_would_come() -> None:
    assert at(200).pause(1000, 0) == 0.0
    assert at(4000).pause(8, 0) == 0.0


def test_not_where_enough_have_come() -> None:
    assert at(4000).pause(200, 50) == 0.0
    assert at(4000).pause(200, 60) == 0.0


def test_nothing_is_known_at_first() -> None:
    assert Tempo().pause(1000, 0) == 0.0


class Steady(Tempo):
    """4,000 a second, whatever comes."""

    def __init__(self) -> None:
        super().__init__()
        self._rate = 4000.0

    def ended(self, count: int, now: float) -> None: ...


def full(make: Make, jobs: int) -> Bed:
    """Its pump has just claimed as many of these as it can run."""
    bed = make(threads=80)
    bed.pump._tempo = Steady()
    bed.insert(jobs)
    bed.pump.turn()
    assert bed.pump.turn() >= 0.0
    assert len(bed.sync.on) == 80
    return bed


def test_ends_gather_where_the_store_has_no_more_for_us(make: Make) -> None:
    bed = full(make, 80)
    bed.sync.end(bed.sync.on[0])
    assert bed.pump.turn() == 0.0
    assert bed.pump.gathering() == pytest.approx(79 / 4 / 4000)


def test_who_could_have_more_asks_at_once(make: Make) -> None:
    bed = make(threads=80)
    bed.pump._tempo = Steady()
    bed.insert(1000)
    assert bed.pump.turn() == 0.0
    assert (len(bed.sync.on), bed.pump.gathering()) == (80, 0.0)


def test_what_is_due_soon_is_not_waited_past(make: Make) -> None:
    bed = make(threads=80)
    bed.insert(80)
    bed.insert(due=bed.clock.now() + SECOND // 1000)
    bed.pump._tempo = Steady()
    bed.turns()
    bed.sync.end(bed.sync.on[0])
    bed.pump.turn()
    assert bed.pump.gathering() == 0.0


def test_whoever_stops_does_not_wait(make: Make) -> None:
    bed = full(make, 80)
    bed.sync.end(bed.sync.on[0])
    bed.pump.turn()
    bed.pump.stop()
    assert bed.pump.gathering() == 0.0
