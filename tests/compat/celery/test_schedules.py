"""Schedules beside those of the real Celery: the same times, the same values, or an error that says what to do."""

import copy
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import count, repeat
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from tarry.compat.celery import Celery, CeleryNotSupported
from tarry.compat.celery.differences import CeleryDifference, forget_warnings
from tarry.compat.celery.schedules import ParseException, as_cron, crontab, schedule, solar
from tarry.model.duration import SECOND
from tarry.model.schedules.schedule import Cron
from tarry.model.schedules.timetable import timetable

celery: Any = pytest.importorskip("celery")
theirs: Any = pytest.importorskip("celery.schedules")

THEIR_APP: Any = celery.Celery("theirs", set_as_current=False)
OUR_APP = Celery("ours", set_as_current=False)
START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
TICKS = 20
WEEKDAYS = ["sun", "monday", "Tue", "wednesday", "thu", "fri", "saturday"]
MONTHS = ["january", "feb", "mar", "april", "May", "jun", "jul", "aug", "september", "oct", "nov", "december"]


def fields(low: int, high: int, names: list[str] | None = None) -> st.SearchStrategy[Any]:
    """A field of a crontab as people write them: texts, numbers, lists."""
    numbers = st.integers(low, high)
    words = numbers.map(str) if names is None else st.one_of(numbers.map(str), st.sampled_from(names))
    spans = st.tuples(words, words).map("-".join)
    steps = st.tuples(st.one_of(st.just("*"), spans), st.integers(1, high)).map(lambda pair: f"{pair[0]}/{pair[1]}")
    texts = st.lists(st.one_of(words, spans, steps), min_size=1, max_size=3).map(",".join)
    return st.one_of(
        st.just("*"), texts, texts, numbers, st.sets(numbers, min_size=1, max_size=3), st.just([low, high])
    )


LINES = st.fixed_dictionaries(
    {
        "minute": fields(0, 59),
        "hour": fields(0, 23),
        "day_of_week": fields(0, 6, WEEKDAYS),
        "day_of_month": fields(1, 31),
        "month_of_year": fields(1, 12, MONTHS),
    }
)


def times_of_celery(when: Any) -> list[datetime]:
    """The next runs, as beat finds them: each from the one before."""
    last, found = START, []
    for _ in range(TICKS):
        when.nowfun = lambda now=last: now
        last += when.remaining_estimate(last)
        found.append(last)
    return found


def times_of_cron(cron: Cron) -> list[datetime]:
    table, at = timetable(cron.expression, cron.zone or "UTC", cron.calendar), int(START.timestamp()) * SECOND  # type: ignore[arg-type]
    found = []
    for _ in range(TICKS):
        at = table.next(at) or 0
        found.append(datetime.fromtimestamp(at // SECOND, UTC))
    return found


@given(LINES)
@settings(max_examples=150)
@example({"minute": 0, "hour": 9, "day_of_month": "13", "day_of_week": "fri"})
@example({"minute": 0, "hour": "22-2", "day_of_week": "sunday"})
@example({"minute": "*/40", "day_of_week": "mon-sun", "month_of_year": "december-february"})
@example({"minute": 0, "hour": 0, "day_of_month": "*/10", "day_of_week": "*/3"})
def test_a_crontab_has_the_times_that_celery_has(line: dict[str, Any]) -> None:
    their, our = theirs.crontab(**line, app=THEIR_APP), crontab(**line, app=OUR_APP)
    names = ("minute", "hour", "day_of_week", "day_of_month", "month_of_year")
    assert [getattr(our, name) for name in names] == [getattr(their, name) for name in names]
    assert repr(our) == repr(their)
    try:
        expected = times_of_celery(their)
    except RuntimeError:  # no such day, as 31 February; ours says so when the app starts
        assume(False)
    assert times_of_cron(as_cron("line", our, (), {}, "UTC")) == expected


def test_a_cron_of_tarrys_own_ticks_on_days_of_either_kind() -> None:
    days = {moment.day for moment in times_of_cron(Cron("0 9 13 * fri")) if moment.weekday() != 4}
    assert days == {13}


WRONG: list[dict[str, Any]] = [
    {"minute": "60"}, {"minute": 60}, {"minute": "5/10"}, {"minute": "0,"}, {"minute": ""}, {"minute": "*/0"},
    {"minute": "*/x"}, {"minute": "-1"}, {"minute": ["1"]}, {"minute": {0, 99}}, {"hour": "24"}, {"hour": None},
    {"day_of_week": 7}, {"day_of_week": "7"}, {"day_of_week": "noday"}, {"day_of_month": 0}, {"day_of_month": "L"},
    {"month_of_year": "13"}, {"month_of_year": 0}, {"hour": 1.5},
]  # fmt: skip


@pytest.mark.parametrize("line", WRONG, ids=str)
def test_a_field_that_celery_refuses_is_refused_by_its_name(line: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError, theirs.ParseException)):
        theirs.crontab(**line)
    with pytest.raises((ValueError, TypeError), match=rf"^crontab\({next(iter(line))}="):
        crontab(**line)


# Celery takes these, and does what nobody means.
ODD: list[dict[str, Any]] = [{"day_of_week": "mar"}, {"minute": "1-5-7"}, {"minute": []}, {"minute": "jan"}]


@pytest.mark.parametrize("line", ODD, ids=str)
def test_a_field_that_celery_misreads_is_refused(line: dict[str, Any]) -> None:
    theirs.crontab(**line)
    with pytest.raises(ValueError, match=r"numbers from"):
        crontab(**line)


def test_five_fields_as_text() -> None:
    assert crontab.from_string("0 9 13 * fri") == crontab(0, 9, day_of_month=13, day_of_week=5)
    with pytest.raises(ValueError, match="five fields"):
        crontab.from_string("0 9 *")


MAKERS: list[Callable[[Any, Any], Any]] = [
    lambda module, app: module.crontab(minute="*/15", hour=[8, 9], app=app),
    lambda module, app: module.crontab(minute=0, hour=9, day_of_month="1-7", day_of_week="mon", app=app),
    lambda module, app: module.crontab(minute=5, app=app),
    lambda module, app: module.schedule(90, app=app),
    lambda module, app: module.schedule(timedelta(hours=3), app=app),
]


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("ago", [timedelta(seconds=1), timedelta(minutes=20), timedelta(hours=5), timedelta(days=40)])
def test_what_is_due_and_when(make: Callable[[Any, Any], Any], ago: timedelta) -> None:
    import tarry.compat.celery.schedules as ours  # noqa: PLC0415 - beside theirs

    their, our = make(theirs, THEIR_APP), make(ours, OUR_APP)
    their.nowfun = our.nowfun = lambda: START
    assert our.is_due(START - ago) == their.is_due(START - ago)
    # Naive times are in UTC.
    assert our.is_due((START - ago).replace(tzinfo=None)).is_due == their.is_due(START - ago).is_due
    if ago < timedelta(minutes=1):
        assert our.remaining_estimate(START - ago) == their.remaining_estimate(START - ago)


@pytest.mark.parametrize("make", MAKERS)
def test_equal_schedules(make: Callable[[Any, Any], Any]) -> None:
    import tarry.compat.celery.schedules as ours  # noqa: PLC0415 - beside theirs

    made = [make(ours, OUR_APP) for _ in range(2)]
    assert made[0] == made[1] == copy.copy(made[1])
    assert made[0] != crontab(minute=1)
    assert made[0] != schedule(7)
    with pytest.raises(TypeError, match="unhashable"):
        hash(made[0])


def test_every_so_often() -> None:
    when = schedule(90)
    assert (when.run_every, when.seconds, when == timedelta(seconds=90)) == (timedelta(seconds=90), 90, True)
    with pytest.raises(CeleryNotSupported, match="run_every"):
        schedule(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("zone", ["Europe/Paris", "UTC"])
def test_the_zone_of_nowfun_is_that_of_the_line(zone: str) -> None:
    own = UTC if zone == "UTC" else ZoneInfo(zone)
    when = crontab(minute=0, hour=9, nowfun=lambda: datetime.now(own))
    assert as_cron("line", when, (), {}, "Asia/Tokyo").zone == zone
    with pytest.raises(CeleryNotSupported, match=r"nowfun=.*ZoneInfo"):
        as_cron("line", crontab(nowfun=datetime.now), (), {}, "UTC")


def test_what_there_is_not_is_told() -> None:
    forget_warnings()
    with pytest.raises(CeleryNotSupported, match="solar"):
        solar("sunset", 1, 2)
    with pytest.warns(CeleryDifference, match="relative"):
        schedule(60, relative=True)


class _Endless:
    """Numbers that never end. taken: how many were asked for."""

    def __init__(self, numbers: Iterator[Any]) -> None:
        self.taken, self._numbers = 0, numbers

    def __iter__(self) -> Iterator[Any]:
        for number in self._numbers:
            self.taken += 1
            yield number


@pytest.mark.parametrize("field", ["minute", "hour", "day_of_week", "day_of_month", "month_of_year"])
@pytest.mark.parametrize("numbers", [lambda: count(1), lambda: repeat(1), lambda: repeat("x")])
def test_of_a_field_with_endless_numbers_only_a_bounded_part_is_read(field: str, numbers: Any) -> None:
    endless = _Endless(numbers())
    with pytest.raises(ParseException, match=field):
        crontab(**{field: endless})
    assert endless.taken < 2000
