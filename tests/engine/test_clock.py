import time

import pytest

from tarry.engine import clock
from tarry.engine.clock import Clock, FakeClock
from tarry.errors import StoreUnavailable


class StoreTime:
    """A store's clock, and whether it can be read."""

    def __init__(self, ahead: int = 0) -> None:
        self.ahead = ahead
        self.calls = 0
        self.away = False

    def __call__(self) -> int:
        self.calls += 1
        if self.away:
            raise StoreUnavailable("away")
        return time.monotonic_ns() // 1000 + self.ahead


class Monotonic:
    """Stands in for the module `time`, where the clock reads it."""

    def __init__(self) -> None:
        self.us = 5_000_000

    def monotonic_ns(self) -> int:
        return self.us * 1000


@pytest.fixture
def monotonic(monkeypatch: pytest.MonkeyPatch) -> Monotonic:
    monotonic = Monotonic()
    monkeypatch.setattr(clock, "time", monotonic)
    return monotonic


def test_it_tells_the_stores_time_and_asks_rarely() -> None:
    store = StoreTime(ahead=10**15)
    told = Clock(store)
    times = [told.now() for _ in range(1000)]
    assert times == sorted(times)
    assert store.calls <= 3
    assert abs(times[-1] - time.monotonic_ns() // 1000 - 10**15) < 1_000_000


def test_it_is_never_ahead_and_goes_by_the_shortest_of_three_round_trips(monotonic: Monotonic) -> None:
    ways = iter([(900, 100), (40, 160), (5, 995)])

    def store() -> int:
        there, back = next(ways)
        monotonic.us += there
        told = monotonic.us + 10**15
        monotonic.us += back
        return told

    told = Clock(store).now() - monotonic.us - 10**15
    assert told == -160


def test_it_measures_again_after_a_while(monotonic: Monotonic) -> None:
    answers = [1_000, 2_000_000_000]
    told = Clock(lambda: answers.pop(0))
    assert told.now() == 1_000
    monotonic.us += 29_000_000
    assert told.now() == 29_001_000
    monotonic.us += 2_000_000
    assert told.now() == 2_000_000_000


def test_a_store_that_is_away_at_the_first_measurement_is_told(monotonic: Monotonic) -> None:
    store = StoreTime()
    store.away = True
    with pytest.raises(StoreUnavailable):
        Clock(store).now()


def test_later_the_last_measurement_is_good_enough_until_the_store_is_back(monotonic: Monotonic) -> None:
    moments = iter([100, None, 99_000_000])

    def store() -> int:
        moment = next(moments)
        if moment is None:
            raise StoreUnavailable("away")
        return moment

    told = Clock(store)
    assert told.now() == 100
    monotonic.us += 31_000_000
    assert told.now() == 31_000_100
    monotonic.us += 900_000
    assert told.now() == 31_900_100, "not asked again at once"
    monotonic.us += 200_000
    assert told.now() == 99_000_000


def test_the_fake_one_stands_still() -> None:
    fake = FakeClock(5)
    assert (fake.now(), fake.now()) == (5, 5)
    fake.advance(1.5)
    assert fake.now() == 1_500_005
