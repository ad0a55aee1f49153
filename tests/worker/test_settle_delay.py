"""How long a busy pump collects ended jobs before it settles them."""

import pytest

from tarry.model.duration import SECOND
from tarry.worker import capacity
from tarry.worker.capacity import SettleDelay
from tests.worker.manual_pump import MakePump, ManualPump


def at(rate: float) -> SettleDelay:
    """So many a second, for long."""
    one, steps = SettleDelay(), 20
    for step in range(steps):
        one.record_ends(round(rate / steps), 100 + step / steps)
    return one


def test_until_a_quarter_of_what_is_held_has_ended() -> None:
    assert at(4000).seconds(200, 10) == pytest.approx(0.01, rel=0.1)


def test_never_for_long() -> None:
    assert at(2000).seconds(1000, 0) == capacity.MAX_DELAY


def test_not_where_few_would_come() -> None:
    assert at(200).seconds(1000, 0) == 0.0
    assert at(4000).seconds(8, 0) == 0.0


def test_not_where_enough_have_come() -> None:
    assert at(4000).seconds(200, 50) == 0.0
    assert at(4000).seconds(200, 60) == 0.0


def test_nothing_is_known_at_first() -> None:
    assert SettleDelay().seconds(1000, 0) == 0.0


class Steady(SettleDelay):
    """4,000 a second, whatever comes."""

    def __init__(self) -> None:
        super().__init__()
        self._rate = 4000.0

    def record_ends(self, count: int, now: float) -> None: ...


def full(make: MakePump, jobs: int) -> ManualPump:
    """Its pump has just claimed as many of these as it can run."""
    manual = make(threads=80)
    manual.pump._delay = Steady()
    manual.insert(jobs)
    manual.pump.step()
    assert manual.pump.step() >= 0.0
    assert len(manual.sync.on) == 80
    return manual


def test_ends_gather_where_the_store_has_no_more_for_us(make: MakePump) -> None:
    manual = full(make, 80)
    manual.sync.end(manual.sync.on[0])
    manual.pump.step()
    assert manual.pump.settle_delay() == pytest.approx(79 / 4 / 4000)


def test_who_could_have_more_asks_at_once(make: MakePump) -> None:
    manual = make(threads=80)
    manual.pump._delay = Steady()
    manual.insert(1000)
    assert manual.pump.step() == 0.0
    assert (len(manual.sync.on), manual.pump.settle_delay()) == (80, 0.0)


def test_what_is_due_soon_is_not_waited_past(make: MakePump) -> None:
    manual = make(threads=80)
    manual.insert(80)
    manual.insert(due=manual.clock.now() + SECOND // 1000)
    manual.pump._delay = Steady()
    manual.turns()
    manual.sync.end(manual.sync.on[0])
    manual.pump.step()
    assert manual.pump.settle_delay() == 0.0


def test_whoever_stops_does_not_wait(make: MakePump) -> None:
    manual = full(make, 80)
    manual.sync.end(manual.sync.on[0])
    manual.pump.step()
    manual.pump.stop()
    assert manual.pump.settle_delay() == 0.0


def test_jobs_that_come_faster_than_exchanges_gather() -> None:
    fast = at(1000)
    fast.record_exchange(settled=True, claimed=True)
    assert fast.seconds(2, 0) == capacity.GATHER
    for _ in range(capacity.REMEMBERED):
        fast.record_exchange(settled=True, claimed=False)
    assert fast.seconds(2, 0) == 0.0


def test_a_caller_who_waits_for_each_result_is_not_held_up() -> None:
    fast = at(1000)
    for _ in range(10):
        fast.record_exchange(settled=False, claimed=True)
        assert fast.seconds(1, 0) == 0.0
        fast.record_exchange(settled=True, claimed=False)
        assert fast.seconds(0, 0) == 0.0


def test_nothing_gathers_where_few_jobs_end() -> None:
    slow = at(100)
    slow.record_exchange(settled=True, claimed=True)
    assert slow.seconds(2, 0) == 0.0


def test_a_pump_gathers_after_an_exchange_that_settles_and_claims(make: MakePump) -> None:
    manual = make(threads=2)
    manual.pump._delay = Steady()
    manual.insert()
    manual.turns()
    manual.sync.end_all()
    manual.insert()
    manual.pump.step()
    assert manual.pump.settle_delay() == capacity.GATHER
    manual.turns()
    assert manual.pump.settle_delay() == 0.0, "nothing came and nothing ended in the last step"


@pytest.mark.parametrize("is_held_back", [True, False])
def test_only_where_limits_hold_jobs_back_the_last_end_is_the_end_of_the_delay(
    make: MakePump, is_held_back: bool
) -> None:
    manual = full(make, 80)
    manual.pump._exchanger.is_held_back = is_held_back
    manual.sync.end_all()
    assert manual.pump.gather_ends(30.0) is is_held_back


def test_where_limits_bound_what_is_brought_ahead_it_waits_for_all_ends(
    make: MakePump, monkeypatch: pytest.MonkeyPatch
) -> None:
    manual = full(make, 200)
    manual.sync.end_all()
    manual.pump.step()
    assert manual.pump.settle_delay() != capacity.GATHER
    assert not manual.pump.gather_ends(30.0)
    monkeypatch.setattr(manual.pump._capacity, "is_shared", lambda: True)
    assert manual.pump.settle_delay() == capacity.GATHER
    manual.sync.end_all()
    assert manual.pump.gather_ends(30.0)
