from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import given
from hypothesis import strategies as st

from tarry.model.duration import DAY, HOUR, MINUTE, SECOND
from tarry.model.schedules.timetable import timetable

PARIS = ZoneInfo("Europe/Paris")
SPRING, AUTUMN = "2027-03-28", "2027-10-31"
"""At 01:00 UTC, Paris goes from 02:00 to 03:00; from 03:00 to 02:00."""
ZONES = ("UTC", "Europe/Paris", "America/New_York", "Australia/Lord_Howe", "Africa/Cairo", "Asia/Kathmandu")


def at(text: str, zone: str = "Europe/Paris", fold: int = 0) -> int:
    """Microseconds since the epoch of a wall time."""
    moment = datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold)
    return round(moment.timestamp()) * SECOND


def local(tick: int, zone: str = "Europe/Paris") -> datetime:
    return datetime.fromtimestamp(tick / SECOND, UTC).astimezone(ZoneInfo(zone))


def ticks(expression: str, after: int, until: int, zone: str = "Europe/Paris") -> Iterator[int]:
    table = timetable(expression, zone)
    tick = table.next(after)
    while tick is not None and tick <= until:
        yield tick
        tick = table.next(tick)


def told(expression: str, day: str, hours: int = 6) -> list[str]:
    """The wall times of a night in Paris, with the offset where it changes."""
    start = at(f"{day}T00:00") - SECOND
    return [f"{local(tick):%H:%M%z}"[:-2] for tick in ticks(expression, start, start + hours * HOUR)]


@pytest.mark.parametrize(
    ("expression", "spring", "autumn"),
    [
        ("30 2 * * *", ["03:00+02"], ["02:30+02"]),
        ("0 30 2 * * *", ["03:00+02"], ["02:30+02"]),
        ("0 3 * * *", ["03:00+02"], ["03:00+01"]),
        ("0 2 * * *", ["03:00+02"], ["02:00+02"]),
        ("59 1 * * *", ["01:59+01"], ["01:59+02"]),
        ("*/20 2 * * *", ["03:00+02"], ["02:00+02", "02:20+02", "02:40+02"]),
        ("0 */2 * * *", ["00:00+01", "03:00+02", "04:00+02", "06:00+02"], ["00:00+02", "02:00+02", "04:00+01"]),
        (
            "30 * * * *",
            ["00:30+01", "01:30+01", "03:30+02", "04:30+02", "05:30+02", "06:30+02"],
            ["00:30+02", "01:30+02", "02:30+02", "02:30+01", "03:30+01", "04:30+01"],
        ),
    ],
)
def test_a_night_on_which_the_clocks_change(expression: str, spring: list[str], autumn: list[str]) -> None:
    assert told(expression, SPRING) == spring
    assert told(expression, AUTUMN) == autumn


@pytest.mark.parametrize("day", [SPRING, AUTUMN])
def test_what_runs_in_every_hour_does_not_notice(day: str) -> None:
    start = at(f"{day}T00:00")
    assert list(ticks("*/15 * * * *", start, start + 6 * HOUR)) == [start + n * 15 * MINUTE for n in range(1, 25)]


@pytest.mark.parametrize("expression", ["30 2 * * *", "15 2 * * *", "0 3 * * *", "0 2 * * *", "0 0 * * *"])
@pytest.mark.parametrize("zone", ZONES)
def test_a_daily_job_runs_once_every_day(expression: str, zone: str) -> None:
    start = at("2027-01-01T00:00", zone) - SECOND
    days = [local(tick, zone).date() for tick in ticks(expression, start, start + 400 * DAY, zone)]
    assert days == [days[0] + timedelta(days=n) for n in range(400)]


def test_several_times_that_are_skipped_are_made_up_for_once() -> None:
    assert told("0,15,30,45 2 * * *", SPRING) == ["03:00+02"]
    assert told("0,30 2,3 * * *", SPRING) == ["03:00+02", "03:30+02"]


def test_a_host_that_begins_in_the_hour_that_comes_twice_does_not_look_back() -> None:
    second = at(f"{AUTUMN}T02:10", fold=1)
    assert timetable("30 2 * * *", "Europe/Paris").next(second) == at("2027-11-01T02:30")
    assert timetable("30 * * * *", "Europe/Paris").next(second) == at(f"{AUTUMN}T02:30", fold=1)


def test_the_hour_that_comes_twice_is_seen_from_afar() -> None:
    first = list(ticks("0 * 31 10 *", at("2026-12-01T00:00"), at(f"{AUTUMN}T03:00")))
    assert [f"{local(tick):%H%z}" for tick in first] == ["00+0200", "01+0200", "02+0200", "02+0100", "03+0100"]


def test_a_first_hour_that_comes_twice_is_seen_from_afar() -> None:
    after, until = at("2026-12-01T00:00", "Atlantic/Azores"), at(f"{AUTUMN}T01:00", "Atlantic/Azores")
    first = list(ticks("0 * 31 10 *", after, until, "Atlantic/Azores"))
    assert [f"{local(tick, 'Atlantic/Azores'):%H%z}" for tick in first] == ["00+0000", "00-0100", "01-0100"]


@pytest.mark.parametrize(("zone", "first"), [("Africa/Cairo", "01:00"), ("Europe/Paris", "00:00")])
def test_a_midnight_that_is_skipped(zone: str, first: str) -> None:
    tick = timetable("@daily", zone).next(at("2026-04-23T12:00", zone))
    assert tick is not None
    assert f"{local(tick, zone):%m-%d %H:%M}" == f"04-24 {first}"


expressions = st.builds(
    " ".join,
    st.tuples(
        st.sampled_from(["0", "30", "*/7", "5,50", "10-20"]),
        st.sampled_from(["*", "0-23", "*/1", "2", "1-3", "*/5", "0"]),
        st.sampled_from(["*", "28-31", "L", "1"]),
        st.sampled_from(["*", "3,4,10,11"]),
        st.sampled_from(["*", "sun", "5-7", "sun#1"]),
    ),
)


def matching(expression: str, start: int, hours: int, zone: str) -> list[int]:
    """By looking at every minute: those at which the wall shows what the expression says."""
    return [
        moment
        for moment in range(start, start + hours * HOUR, MINUTE)
        if _is_on(expression, local(moment, zone).replace(tzinfo=None))
    ]


def _is_on(expression: str, wall: datetime) -> bool:
    return next(CronSim(expression, wall - timedelta(seconds=1))) == wall


CHANGES = [at("2027-03-27T20:00"), at("2027-10-30T20:00"), at("2027-04-03T20:00", "Australia/Lord_Howe")]


@given(expressions, st.sampled_from(ZONES), st.sampled_from(CHANGES), st.integers(0, 300))
def test_by_the_wall_as_a_slow_reading_of_the_rule_has_it(expression: str, zone: str, near: int, shift: int) -> None:
    start = near + shift * MINUTE
    got = list(ticks(expression, start - SECOND, start + 8 * HOUR - SECOND, zone))
    shown = matching(expression, start, 8, zone)
    if expression.split()[1] in ("*", "0-23", "*/1"):
        assert got == shown
        return
    walls = [local(tick, zone).replace(tzinfo=None) for tick in got]
    assert len(set(walls)) == len(walls), "no wall time twice"
    changed = {tick for tick in got if _is_change(tick, zone)}
    assert set(got) <= set(shown) | changed, "none but what the wall shows, and when a skipped time is made up for"
    second = {moment for moment in shown if local(moment, zone).fold}
    assert set(shown) - second <= set(got), "and none is lost"


def _is_change(tick: int, zone: str) -> bool:
    return local(tick, zone).utcoffset() != local(tick - SECOND, zone).utcoffset()


def test_every_so_often_is_counted_from_the_epoch() -> None:
    table = timetable("@every 90s", "Europe/Paris")
    assert table.next(0) == 90 * SECOND
    assert table.next(90 * SECOND - 1) == 90 * SECOND
    assert table.next(90 * SECOND) == 180 * SECOND
    assert timetable("@every 1h30m", "UTC").next(1) == 90 * MINUTE
    assert timetable("@every 1.5s", "UTC").next(1_500_000) == 3_000_000


@pytest.mark.parametrize(
    ("expression", "ticks_at"),
    [
        ("@hourly", "2027-01-01T01:00"),
        ("@daily", "2027-01-02T00:00"),
        ("@midnight", "2027-01-02T00:00"),
        ("@weekly", "2027-01-03T00:00"),
        ("@monthly", "2027-02-01T00:00"),
        ("@yearly", "2028-01-01T00:00"),
        ("@annually", "2028-01-01T00:00"),
        ("*/5 * * * *", "2027-01-01T00:05"),
        ("*/10 * * * * *", "2027-01-01T00:00:10"),
        ("0 9 * * mon-fri", "2027-01-01T09:00"),
        ("0 9 * * MON", "2027-01-04T09:00"),
        ("0 0 L * *", "2027-01-31T00:00"),
        ("0 0 29 2 *", "2028-02-29T00:00"),
        ("  0   12 * * * ", "2027-01-01T12:00"),
    ],
)
def test_ways_to_say_when(expression: str, ticks_at: str) -> None:
    assert timetable(expression, "UTC").next(at("2027-01-01T00:00", "UTC")) == at(ticks_at, "UTC")


def test_a_tick_is_after_the_time_asked_for_to_the_microsecond() -> None:
    table, noon = timetable("0 12 * * *", "UTC"), at("2027-01-01T12:00", "UTC")
    assert table.next(noon - 1) == noon
    assert table.next(noon) == noon + DAY
    assert table.next(noon + 1) == noon + DAY


def test_the_newest_of_many_are_found_without_going_through_all() -> None:
    start, end = at("2000-01-01T00:00"), at("2027-01-01T00:00")
    assert timetable("* * * * * *", "Europe/Paris").newest(start, end, 3) == [end - 2 * SECOND, end - SECOND, end]
    assert timetable("@every 1s", "UTC").newest(start, end, 1) == [end]
    assert timetable("@yearly", "Europe/Paris").newest(start, end, 2) == [at("2026-01-01T00:00"), end]


def test_the_newest_where_there_are_few_or_none() -> None:
    table, midnight = timetable("@daily", "UTC"), at("2027-01-02T00:00", "UTC")
    assert table.newest(midnight - DAY, midnight, 100) == [midnight]
    assert table.newest(midnight, midnight + DAY - 1, 100) == []
    assert table.newest(midnight + DAY, midnight, 100) == [], "the clock went back"


def test_after_the_calendar_there_are_no_ticks() -> None:
    assert timetable("@daily", "Europe/Paris").next(at("9999-12-31T12:00")) is None
    assert timetable("@hourly", "Europe/Paris").next(at("9999-12-31T23:30")) is None


FIELDS = 'minute hour day month weekday, as in "*/5 * * * *"'


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("61 * * * *", 'cron="61 * * * *": bad minute'),
        ("* 24 * * *", "bad hour"),
        ("* * * * mond", "bad day-of-week"),
        ("* * * *", "wrong number of fields"),
        ("* * * * * * *", "wrong number of fields"),
        ("", 'cron="": wrong number of fields'),
        ("0 0 30 2 *", "bad day-of-month"),
        ("* * */20 * 1L", "there is no such day"),
        ("@reboot", "no such name"),
        ("@daily @hourly", "no such name"),
        ("0 3 * * * UTC", 'the zone stands apart, zone="UTC"; write minute'),
        ("0 3 * * * Europe/Paris", 'the zone stands apart, zone="Europe/Paris"'),
        ("0 0 3 * * * utc", 'the zone stands apart, zone="utc"'),
        ("@daily UTC", 'the zone stands apart, zone="UTC"'),
    ],
)
def test_an_expression_that_cannot_be_is_named_with_the_way_out(expression: str, why: str) -> None:
    with pytest.raises(ValueError, match="cron=") as caught:
        timetable(expression, "UTC")
    assert f'cron="{expression}": ' in str(caught.value)
    assert why in str(caught.value)
    assert FIELDS in str(caught.value)


@pytest.mark.parametrize("expression", ["@every", "@every 90", "@every -5s", "@every soon"])
def test_a_period_that_is_none(expression: str) -> None:
    with pytest.raises(ValueError, match=f'^cron="{expression}": .* is no duration'):
        timetable(expression, "UTC")


def test_a_period_that_is_too_short() -> None:
    with pytest.raises(ValueError, match=r'^cron="@every 0.5s": a second at least'):
        timetable("@every 0.5s", "UTC")


@given(st.text(alphabet="*/-,#L0123456789MONSUNW@ ", max_size=20))
def test_whatever_is_written_it_is_understood_or_refused(expression: str) -> None:
    try:
        table = timetable(expression, "UTC")
    except ValueError as error:
        refused = str(error)
        assert refused.startswith("cron=")
    else:
        assert table.next(0) is not None


@pytest.mark.parametrize(
    ("zone", "why"),
    [
        ("Europe/Pari", 'did you mean "Europe/Paris"?'),
        ("europe/paris", 'did you mean "Europe/Paris"?'),
        ("xx", 'write its name, as in "Europe/Paris" or "UTC"'),
        ("", "write its name"),
        ("/etc/passwd", "there is no such time zone"),
        ("../x", "there is no such time zone"),
        ("Europe", "there is no such time zone"),
        (7, "zone=7: there is no such time zone"),
    ],
)
def test_a_zone_that_cannot_be_is_named_with_the_way_out(zone: str, why: str) -> None:
    with pytest.raises(ValueError, match="zone=") as caught:
        timetable("@daily", zone)
    assert why in str(caught.value)
