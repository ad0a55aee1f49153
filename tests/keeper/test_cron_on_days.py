"""Schedules that tick only on the days of a calendar."""

from pathlib import Path

import pytest

from tarry import App, Calendar, ConfigError, Cron
from tarry.client.clock import FakeClock
from tarry.config.config import load
from tarry.keeper.cron import schedules_of
from tarry.model.duration import HOUR
from tarry.store.memory.store import MemoryStore
from tarry.store.rules.base import Query
from tests.keeper.ticking import NOON, TickingHost, shop

WORKING = Calendar("mon-fri")


@pytest.fixture
def clock() -> FakeClock:
    # A Friday.
    return FakeClock(NOON)


def host(store: MemoryStore, clock: FakeClock, missed: str = "last", **calendars: Calendar) -> TickingHost:
    return TickingHost(store, clock, shop(cron=Cron("@hourly", calendar="work"), missed=missed), calendars)


def run_hours(one: TickingHost, hours: int) -> None:
    for _ in range(hours):
        one.tick()
        one.clock.advance(3600)
    one.tick()


def hours_of(one: TickingHost) -> list[int]:
    return [due // 3600 for due in one.dues()]


@pytest.mark.parametrize("missed", ["last", "all", "skip"])
def test_days_that_are_left_out_are_not_missed(clock: FakeClock, missed: str, caplog: pytest.LogCaptureFixture) -> None:
    one = host(MemoryStore(clock.now), clock, missed, work=WORKING)
    run_hours(one, 3 * 24)
    assert hours_of(one) == [*range(1, 12), *range(60, 73)]
    assert caplog.records == []


@pytest.mark.parametrize(
    ("missed", "made_up"), [("last", [72]), ("all", [*range(1, 12), *range(60, 73)]), ("skip", [])]
)
def test_what_was_missed_is_made_up_for_as_without_a_calendar(
    clock: FakeClock, missed: str, made_up: list[int]
) -> None:
    store = MemoryStore(clock.now)
    host(store, clock, missed, work=WORKING).tick()
    clock.advance(72 * 3600 + 120)
    again = host(store, clock, missed, work=WORKING)
    again.tick()
    assert hours_of(again) == made_up


def test_a_changed_calendar_takes_effect_and_makes_up_for_nothing(clock: FakeClock) -> None:
    store = MemoryStore(clock.now)
    host(store, clock, "all", work=WORKING).tick()
    clock.advance(30 * 3600)
    changed = host(store, clock, "all", work=Calendar("sat,sun"))
    changed.tick()
    assert changed.jobs() == [], (
        "new Saturday hours before the change were not missed, nor are those of Friday any more"
    )
    assert changed.state().rule == "@hourly UTC sat,sun"
    run_hours(changed, 24)
    assert hours_of(changed) == [*range(31, 55)]


def test_a_calendar_that_only_got_another_name_is_none_that_changed(clock: FakeClock) -> None:
    store = MemoryStore(clock.now)
    host(store, clock, "all", work=WORKING).tick()
    clock.advance(2 * 3600)
    renamed = TickingHost(
        store, clock, shop(cron=Cron("@hourly", calendar=Calendar("mon,tue,wed,thu,fri")), missed="all")
    )
    renamed.tick()
    assert hours_of(renamed) == [1, 2]


def test_when_the_list_is_over_it_rests_and_fails_nothing(clock: FakeClock) -> None:
    one = host(MemoryStore(clock.now), clock, work=Calendar(only=["2027-01-14", "2027-01-15"]))
    run_hours(one, 30)
    assert hours_of(one) == list(range(1, 12))


@pytest.mark.parametrize(
    ("calendars", "why"),
    [
        ({}, "schedule report: the settings have no [calendars.work]; they have: none"),
        ({"wrok": WORKING}, "schedule report: the settings have no [calendars.work]; did you mean wrok?"),
        ({"de": WORKING, "at": WORKING}, "schedule report: the settings have no [calendars.work]; they have: at, de"),
    ],
)
def test_a_calendar_that_is_not_there_fails_the_start(
    clock: FakeClock, calendars: dict[str, Calendar], why: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        host(MemoryStore(clock.now), clock, "last", **calendars)
    assert str(caught.value) == why


def test_a_named_calendar_with_none_of_its_times_fails_the_start() -> None:
    app = shop(cron=Cron("0 9 * * sat", calendar="work"))
    with pytest.raises(ConfigError) as caught:
        schedules_of(app.tasks, {"work": WORKING})
    assert str(caught.value) == (
        'schedule report: calendar work: cron="0 9 * * sat": none of its times is on a day of the calendar (mon-fri)'
    )


def test_a_task_that_comes_later_and_names_none_is_told_and_ends_nothing(
    clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    app = App("memory://", closures=True)
    one = TickingHost(MemoryStore(clock.now), clock, app)
    one.tick()
    app.task(name="late", cron=Cron("@hourly", calendar="work"))(_nothing)
    assert one.tick() < 1
    assert one.tick() < 1
    assert [record.getMessage() for record in caplog.records] == [
        "schedules: schedule late: the settings have no [calendars.work]; they have: none"
    ], "told once"


def _nothing() -> None: ...


def test_the_keeper_of_an_app_has_the_calendars_of_its_settings(tmp_path: Path, clock: FakeClock) -> None:
    (tmp_path / "tarry.toml").write_text("[calendars.work]\ndays = 'sat'\n")
    app = shop(cron=Cron("@hourly", calendar="work"))
    app.configure(load(environ={}, directory=tmp_path))
    store = MemoryStore(clock.now)
    keeper = app.keeper(store, clock)
    keeper.tick()
    clock.advance(11 * 3600)
    keeper.tick()
    assert store.find(Query()) == []
    clock.advance(3600)
    keeper.tick()
    assert [job.due - NOON for job in store.find(Query())] == [12 * HOUR], "Saturday has begun"
    keeper.close()
