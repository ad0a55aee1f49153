"""Ticks on the days of a calendar: in each zone, also where the clocks change at midnight."""

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarry.model.duration import DAY, HOUR, MINUTE, SECOND
from tarry.model.schedules.calendar import WEEKDAYS, Calendar
from tarry.model.schedules.timetable import Timetable, timetable

WORKING = Calendar("mon-fri", without=["2026-12-25"])


def at(text: str, zone: str = "UTC", fold: int = 0) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold).timestamp()) * SECOND


def local(tick: int, zone: str) -> datetime:
    return datetime.fromtimestamp(tick / SECOND, UTC).astimezone(ZoneInfo(zone))


def told(expression: str, calendar: Calendar, start: str, count: int, zone: str = "UTC") -> list[str]:
    """The wall times of the first ticks."""
    table, tick, found = timetable(expression, zone, calendar), at(start, zone) - SECOND, []
    for _ in range(count):
        following = table.next(tick)
        assert following is not None
        assert following > tick
        tick = following
        found.append(f"{local(tick, zone):%m-%d %H:%M}")
    return found


def test_only_on_working_days() -> None:
    assert told("0 9 * * *", WORKING, "2026-12-24T00:00", 3) == ["12-24 09:00", "12-28 09:00", "12-29 09:00"]
    assert told("@every 8h", WORKING, "2026-12-24T09:00", 3) == ["12-24 16:00", "12-28 00:00", "12-28 08:00"]
    assert told("@weekly", Calendar(without=["2026-12-27"]), "2026-12-24T09:00", 1) == ["01-03 00:00"]


def test_the_day_is_the_one_of_the_zone() -> None:
    # In Tokyo it is Monday, while it is still Sunday in London.
    assert told("0 6 * * *", WORKING, "2026-11-22T00:00", 2, "Asia/Tokyo") == ["11-23 06:00", "11-24 06:00"]
    table = timetable("@every 1h", "Asia/Tokyo", Calendar("mon"))
    assert table.next(at("2026-11-22T00:00")) == at("2026-11-22T15:00"), "Monday begins in Tokyo"


def test_a_list_of_dates_ends_and_is_no_mistake_when_it_is_over() -> None:
    table = timetable("0 9 * * *", "UTC", Calendar(only=["2020-01-01", "2026-12-01"]))
    assert table.next(at("2026-11-24T00:00")) == at("2026-12-01T09:00")
    assert table.next(at("2026-12-01T09:00")) is None
    assert table.newest(at("2019-01-01T00:00"), at("2027-01-01T00:00"), 5) == [
        at("2020-01-01T09:00"), at("2026-12-01T09:00"),
    ]  # fmt: skip
    far = timetable("0 9 * * *", "UTC", Calendar(only=["2100-01-01"]))
    assert far.next(at("2026-11-24T00:00")) == at("2100-01-01T09:00")


@pytest.mark.parametrize(
    ("expression", "calendar", "shown"),
    [
        ("0 9 * * sat", Calendar("mon-fri"), "mon-fri"),
        ("0 0 29 2 *", Calendar(only=["2026-11-24"]), "mon-sun, only 1 date"),
        ("0 9 * * 6,7", WORKING, "mon-fri, without 1 date"),
    ],
)
def test_a_schedule_that_would_never_tick_is_refused(expression: str, calendar: Calendar, shown: str) -> None:
    with pytest.raises(ValueError, match="none of its times is on a day of the calendar") as caught:
        timetable(expression, "UTC", calendar)
    assert str(caught.value) == f'cron="{expression}": none of its times is on a day of the calendar ({shown})'


def test_a_rare_day_is_found() -> None:
    # 29 February 2048 and 2076 are Saturdays.
    table = timetable("0 0 29 2 *", "Europe/Paris", Calendar("sat"))
    assert table.next(at("2026-01-01T00:00")) == at("2048-02-29T00:00", "Europe/Paris")


def test_an_expression_of_its_own_mistakes_and_a_zone_are_told_as_ever() -> None:
    with pytest.raises(ValueError, match=r'^cron="61'):
        timetable("61 * * * *", "UTC", WORKING)
    with pytest.raises(ValueError, match=r"^zone='Mars'"):
        timetable("@every 5m", "Mars", WORKING)


def test_after_the_calendar_there_are_no_ticks() -> None:
    assert timetable("0 9 * * *", "UTC", Calendar("sat")).next(at("9999-12-30T00:00")) is None


CHANGES = [
    ("Europe/Paris", "2027-03-28"),
    ("Europe/Paris", "2027-10-31"),
    ("America/Havana", "2026-11-01"),  # 01:00 becomes 00:00: midnight comes twice
    ("America/Santiago", "2027-04-03"),  # 24:00 becomes 23:00
    ("America/Santiago", "2027-09-05"),  # 00:00 becomes 01:00: midnight is skipped
    ("America/St_Johns", "2010-11-07"),  # 00:01 becomes 23:01 of the day before
    ("America/St_Johns", "2010-03-14"),  # 00:01 becomes 01:01
    ("Pacific/Apia", "2011-12-30"),  # a day that never was
    ("Australia/Lord_Howe", "2027-04-04"),
]
expressions = st.sampled_from(
    [
        "* * * * *",
        "*/7 * * * *",
        "0 0 * * *",
        "30 23 * * *",
        "0 0,23 * * *",
        "15 */2 * * *",
        "@every 11m",
        "59 23 * * sat",
    ]
)


@settings(max_examples=100, deadline=None)
@given(expressions, st.sampled_from(CHANGES), st.sets(st.integers(-2, 3)), st.booleans(), st.integers(0, 30 * 60))
def test_the_ticks_are_those_of_every_day_that_a_slow_look_at_the_wall_leaves(
    expression: str, change: tuple[str, str], days: set[int], is_list: bool, shift: int
) -> None:
    zone, day = change[0], date.fromisoformat(change[1])
    chosen = {day + timedelta(days=n) for n in days}
    calendar = Calendar(only=chosen or [date(2000, 1, 1)]) if is_list else Calendar(without=chosen)
    table, plain = _or_none(expression, zone, calendar), timetable(expression, zone)
    start = at(f"{day - timedelta(days=1)}T00:00", zone) + shift * MINUTE
    end = start + 30 * HOUR
    expected = [tick for tick in _between(plain, start, end) if local(tick, zone).date() in calendar]
    assert (_between(table, start, end) if table else []) == expected


def _or_none(expression: str, zone: str, calendar: Calendar) -> Timetable | None:
    try:
        return timetable(expression, zone, calendar)
    except ValueError:
        return None


def _between(table: Timetable, start: int, end: int) -> list[int]:
    found, tick = [], table.next(start)
    while tick is not None and tick <= end:
        found.append(tick)
        tick = table.next(tick)
    return found


@settings(max_examples=60, deadline=None)
@given(st.sets(st.sampled_from(WEEKDAYS), min_size=1), st.integers(0, 20 * 365), st.sampled_from(["UTC", "Asia/Tokyo"]))
def test_at_nine_on_weekdays_is_what_going_day_by_day_finds(days: set[str], number: int, zone: str) -> None:
    start = at("2020-01-01T00:00", zone) + number * DAY + HOUR
    tick = timetable("0 9 * * *", zone, Calendar(",".join(days))).next(start)
    day = local(start, zone).date()
    while WEEKDAYS[day.weekday()] not in days:
        day += timedelta(days=1)
    assert tick == at(f"{day}T09:00", zone)
