from datetime import date, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.model.schedules.calendar import MOST_DATES, WEEKDAYS, Calendar

START = date(2026, 11, 23)
"""A Monday."""
DAYS = [START + timedelta(days=n) for n in range(28)]


def days_of(calendar: Calendar) -> list[int]:
    """Which of the days from START on belong to it."""
    return [number for number, day in enumerate(DAYS) if day in calendar]


@pytest.mark.parametrize(
    ("days", "of_first_week"),
    [
        ("mon-fri", [0, 1, 2, 3, 4]),
        ("sat,sun", [5, 6]),
        ("MON, wed ,Fri-Sun", [0, 2, 4, 5, 6]),
        ("sat-mon", [0, 5, 6]),
        ("thu", [3]),
        ("tue-tue", [1]),
        ("mon-sun", [0, 1, 2, 3, 4, 5, 6]),
    ],
)
def test_weekdays(days: str, of_first_week: list[int]) -> None:
    assert days_of(Calendar(days)) == [week * 7 + number for week in range(4) for number in of_first_week]


def test_without_dates_and_only_dates() -> None:
    assert days_of(Calendar("mon-fri", without=["2026-11-26", date(2026, 11, 27)]))[:5] == [0, 1, 2, 7, 8]
    assert days_of(Calendar(only=["2026-12-06", "2026-11-24"])) == [1, 13]
    assert days_of(Calendar("mon-fri", only=["2026-12-06", "2026-11-24"], without=["2026-01-01"])) == [1]
    assert days_of(Calendar()) == list(range(28))


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"days": "mond"}, "days='mond': weekdays such as \"mon-fri\" or"),
        ({"days": "mon-"}, "days='mon-': weekdays"),
        ({"days": "-fri"}, "weekdays"),
        ({"days": ""}, "weekdays"),
        ({"days": 5}, "days=5: weekdays"),
        ({"without": "2026-12-25"}, "without='2026-12-25': a list of dates, as in [\"2026-12-25\"]"),
        ({"only": 5}, "only=5: a list of dates"),
        ({"only": ["2026-02-30"]}, "only: '2026-02-30' is no date; write it as \"2026-12-25\""),
        ({"without": [datetime(2026, 12, 25)]}, "is no date"),
        ({"without": [None]}, "without: None is no date"),
        ({"only": []}, "no day is left"),
        ({"days": "sat", "only": ["2026-11-24"]}, "days='sat', without=, only=: no day is left"),
        ({"only": ["2026-11-24"], "without": ["2026-11-24"]}, "no day is left"),
        ({"without": [START] * (MOST_DATES + 1)}, "without= has 10001 dates; at most 10000 can be given"),
    ],
)
def test_a_setting_that_cannot_be(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=r"days=|without|only") as caught:
        Calendar(**settings)
    assert why in str(caught.value)


def test_in_words() -> None:
    assert str(Calendar("mon-fri", without=["2026-12-25"])) == "mon-fri, without 1 date"
    assert str(Calendar(only=["2026-12-25", "2026-12-26"])) == "mon-sun, only 2 dates"
    assert repr(Calendar("sat")) == "<Calendar sat>"


def test_the_rule_changes_with_the_days_and_with_nothing_else() -> None:
    one = Calendar("mon-fri", without=["2026-12-25", "2026-12-26"])
    same = Calendar("MON,tue-fri", without=[date(2026, 12, 26), date(2026, 12, 25), "2026-12-25"])
    assert one == same
    assert (one.rule, hash(one)) == (same.rule, hash(same))
    others = [
        Calendar("mon-fri"),
        Calendar("mon-fri", without=["2026-12-25"]),
        Calendar("mon-fri", only=["2026-12-25"]),
    ]
    assert len({calendar.rule for calendar in (one, *others)}) == 4
    assert Calendar(without=["2026-12-25"]).rule != Calendar(only=["2026-12-25"]).rule
    assert len(Calendar(without=[START + timedelta(days=n) for n in range(9000)]).rule) < 60
    assert one != "mon-fri"


dates = st.lists(st.sampled_from(DAYS), max_size=12)
calendars = st.tuples(st.sets(st.sampled_from(WEEKDAYS), min_size=1), dates, st.none() | dates)


@given(calendars, st.integers(-3, 30))
def test_next_is_the_first_day_that_belongs_as_going_day_by_day_finds_it(
    written: tuple[set[str], list[date], list[date] | None], shift: int
) -> None:
    days, without, only = written
    try:
        calendar = Calendar(",".join(days), without=without, only=only)
    except ValueError as error:
        refused = str(error)
        assert refused.endswith("no day is left")
        assert only is not None
        assert not any(_belongs(day, days, without, only) for day in only)
        return
    after = START + timedelta(days=shift)
    later = [day for n in range(1, 60) if _belongs(day := after + timedelta(days=n), days, without, only)]
    assert calendar.next(after) == (later[0] if later else None)
    assert (after in calendar) == _belongs(after, days, without, only)
    assert calendar.last == (
        max(day for day in only if _belongs(day, days, without, only)) if only is not None else None
    )


def _belongs(day: date, days: set[str], without: list[date], only: list[date] | None) -> bool:
    return WEEKDAYS[day.weekday()] in days and day not in without and (only is None or day in only)


def test_after_the_last_day_of_all_there_is_none() -> None:
    assert Calendar("mon-fri").next(date(9999, 12, 30)) == date.max
    assert Calendar("mon-fri").next(date.max) is None
    assert Calendar("sat").next(date(9999, 12, 30)) is None
