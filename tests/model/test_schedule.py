from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from tarry.model.duration import HOUR, MINUTE, SECOND
from tarry.model.schedules.calendar import Calendar
from tarry.model.schedules.schedule import Cron, Missed, Schedule, schedules

NOON = 1_800_014_400 * SECOND
"""2027-01-15, 12:00 UTC."""


def encode(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode(kwargs or args)


def made(cron: Any, zone: str | None = None, missed: Missed | None = None) -> tuple[Schedule, ...]:
    return schedules("shop.report", cron, zone, missed, encode)


def wanted(expression: str, missed: Missed, since: int, now: int, most: int = 100) -> list[int]:
    """What is made up for, in seconds from noon, if nothing has run since that time."""
    (schedule,) = made(Cron(expression, missed=missed, most=most))
    ticks = schedule.ticks(NOON + since, NOON + now)
    return [(tick - NOON) // SECOND for tick in schedule.wanted(ticks, NOON + now)]


def test_no_cron_no_schedules() -> None:
    assert made(None) == ()
    assert made([]) == ()


def test_the_plain_case() -> None:
    (schedule,) = made(" 0  9 * * * ")
    assert (schedule.name, schedule.task, schedule.expression) == ("shop.report", "shop.report", "0 9 * * *")
    assert (schedule.zone, schedule.missed, schedule.most, schedule.args) == ("UTC", "last", 100, ())
    assert schedule.timetable.next(NOON) == NOON + 21 * HOUR


def test_several_share_what_they_do_not_say_themselves() -> None:
    own = Cron("@daily", zone="Asia/Tokyo", missed="all", most=5, args=(1,), name="tokyo")
    one, two, three = made(["@hourly", own, Cron("@weekly", kwargs={"x": 2})], "Europe/Paris", "skip")
    assert [s.name for s in (one, two, three)] == ["shop.report", "tokyo", "shop.report#3"]
    assert [s.zone for s in (one, two, three)] == ["Europe/Paris", "Asia/Tokyo", "Europe/Paris"]
    assert [s.missed for s in (one, two, three)] == ["skip", "all", "skip"]
    assert [s.most for s in (one, two, three)] == [100, 5, 100]
    assert [s.args for s in (one, two, three)] == [(), (1,), ()]
    assert [s.kwargs for s in (one, two, three)] == [{}, {}, {"x": 2}]
    assert len({s.key(NOON) for s in (one, two, three)}) == 3


@pytest.mark.parametrize("names", [("a", "a"), ("shop.report#2", None), ("#2", None)])
def test_two_of_one_name_are_refused(names: tuple[str | None, ...]) -> None:
    with pytest.raises(ValueError, match=r"shop\.report: two of its schedules are named '.+'; give each Cron another"):
        made([Cron("@daily", name=name) for name in names])


@pytest.mark.parametrize(
    ("kwargs", "why"),
    [
        ({"missed": "never"}, 'missed=\'never\': "skip", "last" or "all"'),
        ({"most": 0}, "most=0: how many missed ticks to make up for, from 1 to 10000"),
        ({"most": 1.5}, "most=1.5"),
        ({"name": ""}, "name='': text of 1 to 100 characters"),
        ({"name": "x" * 101}, "text of 1 to 100 characters"),
        ({"args": "eu"}, "args='eu': a tuple or list"),
        ({"calendar": ""}, "calendar='': a Calendar, or the NAME of [calendars.NAME] in tarry.toml"),
        ({"calendar": ["2026-12-25"]}, "calendar=['2026-12-25']: a Calendar, or"),
        ({"zone": "Mars"}, "zone='Mars': there is no such time zone"),
    ],
)
def test_a_setting_that_cannot_be(kwargs: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match="=") as caught:
        Cron("@daily", **kwargs)
    assert why in str(caught.value)


def test_on_the_days_of_a_calendar() -> None:
    working = Calendar("mon-fri")
    plain, given, named = made(["0 9 * * *", Cron("0 9 * * *", calendar=working), Cron("0 9 * * *", calendar="work")])
    # Noon is on a Friday.
    assert plain.timetable.next(NOON) == NOON + 21 * HOUR
    assert given.timetable.next(NOON) == NOON + 69 * HOUR
    assert given.rule == f"{plain.rule} mon,tue,wed,thu,fri"
    assert (given.calendar, given.calendar_name, named.calendar, named.calendar_name) == (working, "", None, "work")
    placed = named.on(working)
    assert (placed.timetable.next(NOON), placed.rule, placed.name) == (NOON + 69 * HOUR, given.rule, named.name)
    assert named.on(Calendar(only=["2027-02-01"])).rule != placed.rule


def test_the_days_are_those_of_the_zone_of_the_task() -> None:
    (schedule,) = made(Cron("@hourly", calendar=Calendar("sat")), zone="Asia/Tokyo")
    assert schedule.timetable.next(NOON) == NOON + 3 * HOUR, "Saturday begins in Tokyo at 15:00 UTC"


def test_a_calendar_that_has_none_of_its_times() -> None:
    with pytest.raises(
        ValueError, match=r'^cron="0 9 \* \* sat": none of its times is on a day of the calendar \(mon-fri'
    ):
        Cron("0 9 * * sat", calendar=Calendar("mon-fri"))
    (schedule,) = made(Cron("0 9 * * sat", calendar="work"))
    with pytest.raises(ValueError, match="none of its times is on a day"):
        schedule.on(Calendar("mon-fri"))


def test_what_is_no_schedule_at_all() -> None:
    with pytest.raises(ValueError, match=r"^cron=90: text, as in "):
        made(90)
    with pytest.raises(ValueError, match=r"^cron=90: text, as in "):
        made(["@daily", 90])
    with pytest.raises(ValueError, match=r"^zone='Mars': "):
        made([Cron("@daily", zone="UTC")], zone="Mars")
    for settings in ({"zone": "UTC"}, {"missed": "all"}):
        with pytest.raises(ValueError, match="zone= and missed= are about a schedule: give cron= too"):
            made(None, **settings)  # type: ignore[arg-type]


def test_a_cron_says_what_it_is() -> None:
    assert repr(Cron("@daily", zone="UTC")) == "Cron('@daily', zone='UTC', missed=None)"


@pytest.mark.parametrize("missed", ["skip", "last", "all"])
def test_what_is_late_by_no_more_than_a_minute_is_not_missed(missed: Missed) -> None:
    assert wanted("@every 10s", missed, 0, MINUTE) == [10, 20, 30, 40, 50, 60]
    assert wanted("@hourly", missed, -1, MINUTE) == [0]
    assert wanted("@hourly", missed, 0, HOUR - 1) == []


@pytest.mark.parametrize(
    ("missed", "back"), [("skip", []), ("last", [36_000]), ("all", [n * 3600 for n in range(1, 11)])]
)
def test_after_ten_hours_in_which_nothing_ran(missed: Missed, back: list[int]) -> None:
    assert wanted("@hourly", missed, 0, 10 * HOUR + 2 * MINUTE) == back


@pytest.mark.parametrize("missed", ["skip", "last"])
def test_a_tick_just_now_runs_although_others_were_missed(missed: Missed) -> None:
    assert wanted("@hourly", missed, 0, 10 * HOUR + 59 * SECOND) == [36_000]
    assert wanted("@every 1s", missed, 0, HOUR) == [3600], "and no burst of a minute's worth"


def test_no_more_are_made_up_for_than_the_newest_of_them() -> None:
    assert wanted("@every 1m", "all", 0, 10 * HOUR) == [n * 60 for n in range(501, 601)]
    assert wanted("@every 1m", "all", 0, 10 * HOUR, most=2) == [599 * 60, 600 * 60]
    assert len(wanted("@every 1m", "all", 0, 100 * HOUR, most=1000)) == 1000
