"""The store's clock was far ahead for a while, and is right again: schedules in the store go on."""

from collections.abc import Iterator

import pytest

from tarry import App
from tarry.client.clock import FakeClock
from tarry.client.tasks.task import Task
from tarry.errors import StoreAway
from tarry.keeper import schedule_clock, stored_ticks
from tarry.model.duration import DAY, HOUR, SECOND
from tarry.store.flaky import FlakyStore
from tests.every_store.test_stored_schedules import Host

YEAR = 365 * DAY / SECOND


@pytest.fixture
def one(app: App, clock: FakeClock, report: Task[[int], None]) -> Iterator[Host]:
    host = Host(app, clock)
    yield host
    host.store.close()


def keys(host: Host) -> list[str | None]:
    """Of the jobs, in their order."""
    return [job.key and job.key.rpartition(":")[0] for job in host.jobs()]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_year_ahead(
    app: App, one: Host, clock: FakeClock, report: Task[[int], None], restarts: bool,
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(schedule_clock, "_PAGE", 2)
    for number in range(5):
        one.schedules.put(f"a{number}", report.call(number), cron="* * * * *")
    one.schedules.put("paused", report.call(9), cron="* * * * *")
    one.schedules.pause("paused")
    one.store.kv_cas("schedule:a15", b"{garbage", None)
    clock.advance(YEAR)
    one.tick()
    one.schedules.put("new", report.call(9), cron="* * * * *")
    clock.advance(60 - YEAR)
    before = len(one.jobs())
    keeper = Host(app, clock, one.store) if restarts else one
    assert keeper.tick() > 0
    assert "the store's clock was set back far: schedules in the store tick from now on" in caplog.text
    caplog.clear()
    assert len(one.jobs()) == before, "what it did while the clock was ahead is not done again"
    clock.advance(60)
    keeper.tick()
    due = keys(one)[:-before]
    assert sorted(map(str, due)) == [*(f"schedule:a{number}" for number in range(5)), "schedule:new"]
    assert one.schedules.get("paused").is_paused  # type: ignore[union-attr]
    for _ in range(3):
        clock.advance(HOUR / SECOND)
        keeper.tick()
    assert caplog.text == "", "it is told once"
    assert len(one.entries()) == 6, "none of the other time is left"


def test_ahead_for_less_than_a_day_is_waited_for(one: Host, clock: FakeClock, report: Task[[int], None]) -> None:
    one.schedules.put("a", report.call(1), cron="0 * * * *")
    clock.advance(20 * HOUR / SECOND)
    one.tick()
    clock.advance(-20 * HOUR / SECOND)
    for _ in range(22):
        clock.advance(HOUR / SECOND)
        one.tick()
    assert one.dues() == [20 * HOUR / SECOND, 21 * HOUR / SECOND, 22 * HOUR / SECOND]


def test_any_call_of_it_may_fail(app: App, one: Host, clock: FakeClock, report: Task[[int], None]) -> None:
    for fail_at in range(1, 40):
        for number in range(3):
            one.schedules.put(f"a{number}", report.call(number), cron="* * * * *")
        one.tick()
        clock.advance(YEAR)
        one.tick()
        clock.advance(60 - YEAR)
        flaky = FlakyStore(one.store, fail_at, after=bool(fail_at % 2))
        broken = Host(app, clock, flaky)
        before = len(one.jobs())
        for _ in range(3):
            broken.tick()
            clock.advance(61)
        broken.tick()
        assert len(one.jobs()) >= before + 3 * 2, fail_at
        if flaky.calls < fail_at:
            break
    assert fail_at > 5


def be_away(*_: object) -> None:
    raise StoreAway("away")


@pytest.mark.parametrize("call", ["kv_get", "hold", "kv_write"])
def test_a_keeper_that_was_there_looks_again_after_an_error(
    one: Host, clock: FakeClock, report: Task[[int], None], monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    one.schedules.put("a", report.call(1), cron="* * * * *")
    clock.advance(YEAR)
    one.tick()
    clock.advance(60 - YEAR)
    with monkeypatch.context() as away:
        away.setattr(one.store, call, be_away)
        one.tick()
    clock.advance(5)
    one.tick()
    before = len(one.jobs())
    clock.advance(61)
    one.tick()
    assert len(one.jobs()) > before


def test_many_are_mended_in_turns(
    one: Host, clock: FakeClock, report: Task[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other chores of the keeper get theirs meanwhile."""
    monkeypatch.setattr(schedule_clock, "_PAGE", 2)
    monkeypatch.setattr(stored_ticks, "_PAGES", 2)
    for number in range(10):
        one.schedules.put(f"a{number}", report.call(number), cron="0 * * * *")
    clock.advance(YEAR)
    for _ in range(5):
        one.tick()
    clock.advance(60 - YEAR)
    one.tick()
    assert 0 < sum(at <= HOUR / SECOND for at in one.entries()) < 10
    for _ in range(3):
        clock.advance(5)
        one.tick()
    assert sum(at <= HOUR / SECOND for at in one.entries()) == 10


def test_whatever_stands_where_the_time_is_noted(one: Host, clock: FakeClock, report: Task[[int], None]) -> None:
    one.schedules.put("a", report.call(1), cron="* * * * *")
    for value in (b"", b"x", b"9" * 50, b"-5"):
        was = one.store.kv_get("stored-schedules:clock")
        assert one.store.kv_cas("stored-schedules:clock", value, was)
        clock.advance(61)
        before = len(one.jobs())
        one.tick()
        assert len(one.jobs()) == before + 1
