import time

import pytest

from tarry.client import clock
from tarry.client.clock import CHECKED_EVERY, Clock, FakeClock
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
        self.set_by = 0
        """Microseconds by which this machine's clock was set forward."""
        self.suspended = 0

    def clock_gettime_ns(self, which: int) -> int:
        return (self.us + (0 if which == time.CLOCK_MONOTONIC else self.suspended)) * 1000

    def time_ns(self) -> int:
        return (self.us + self.suspended + self.set_by) * 1000


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


def test_who_judges_leases_checks_every_few_seconds_and_measures_only_what_was_set(monotonic: Monotonic) -> None:
    ahead, calls = 10**15, 0

    def store() -> int:
        nonlocal calls
        calls += 1
        monotonic.us += 200
        return monotonic.us + ahead

    told = Clock(store, CHECKED_EVERY)
    told.now()
    assert calls == 3
    for _ in range(5):
        monotonic.us += 5_000_000
        told.now()
    assert (calls, told.jumps) == (8, 0)
    ahead += 3_600_000_000
    monotonic.us += 4_900_000
    assert abs(told.now() - monotonic.us - 10**15) < 1000, "not noticed yet"
    monotonic.us += 200_000
    assert abs(told.now() - monotonic.us - ahead) < 1000
    assert (told.jumps, told.jump) == (1, 3_600_000_000)


def test_where_this_machines_clock_is_set_the_store_is_asked_at_once(monotonic: Monotonic) -> None:
    told = Clock(lambda: monotonic.us + monotonic.set_by)
    told.now()
    monotonic.set_by -= 3_600_000_000
    assert told.now() == monotonic.us - 3_600_000_000
    assert told.jumps == 1


def test_a_machine_that_slept_knows_the_time_without_asking(monotonic: Monotonic) -> None:
    calls = 0

    def store() -> int:
        nonlocal calls
        calls += 1
        return monotonic.us + monotonic.suspended

    told = Clock(store)
    told.now()
    monotonic.suspended += 20_000_000
    assert told.now() == monotonic.us + monotonic.suspended
    assert calls == 1


def test_a_store_that_is_away_while_this_machines_clock_is_set_is_asked_once_a_second(monotonic: Monotonic) -> None:
    store = StoreTime()
    told = Clock(store)
    told.now()
    store.away, store.calls = True, 0
    monotonic.set_by += 3_600_000_000
    for _ in range(100):
        told.now()
    assert store.calls == 1


def test_a_slow_answer_is_no_jump(monotonic: Monotonic) -> None:
    ways = iter([0, 2_500_000])

    def store() -> int:
        told = monotonic.us
        monotonic.us += next(ways, 2_500_000)
        return told

    told = Clock(store)
    told.now()
    told.measure()
    assert told.jumps == 0


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


def test_measured_ahead_it_asks_nobody_while_the_store_is_away() -> None:
    store_time = StoreTime()
    store_time.away = True
    clock = Clock(store_time)
    with pytest.raises(StoreUnavailable):
        clock.measure_ahead()
    store_time.away = False
    clock.measure_ahead()
    store_time.away = True
    # Its time is over: without the next line, `now` would ask the store, and wait for it.
    clock._again = 0
    clock.measure_ahead()
    calls = store_time.calls
    clock.now()
    assert store_time.calls == calls
