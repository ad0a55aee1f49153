"""A calendar: the days on which a schedule may tick. Pure: it knows neither clock nor zone."""

import hashlib
from bisect import bisect_right
from collections.abc import Iterable
from datetime import date, timedelta

from tarry.model.quantity import MAX_SHORT, shorten

WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
EVERY_DAY = "mon-sun"
MOST_DATES = 10_000
"""Dates in one list."""
_ONE_DAY = timedelta(days=1)


class Calendar:
    """Days on which a schedule may tick, for `Cron(..., calendar=...)`.

    Calendar("mon-fri", without=["2026-12-25", date(2026, 12, 28)])      working days
    Calendar(only=["2026-03-31", "2026-06-30"])                          a list of dates
    Calendar("mon,wed", only=dates)                                      the Mondays and Wednesdays among the dates

    days: weekdays, as `mon`, `mon-fri` or `mon,wed,fri-sun`. without: dates that do not belong to it. only: if given,
    no other dates belong to it. Dates are those of the schedule's zone. ValueError if one is none, or no day is left.
    """

    __slots__ = ("_listed", "_weekdays", "_without", "days", "rule")

    def __init__(
        self, days: str = EVERY_DAY, *, without: Iterable[date | str] = (), only: Iterable[date | str] | None = None
    ) -> None:
        self.days = days
        self._weekdays = _parse_weekdays(days)
        self._without = frozenset(_parse_dates("without", without))
        listed = None if only is None else sorted(set(_parse_dates("only", only)))
        self._listed = listed and [day for day in listed if self._fits(day)]
        """The days of `only` that the rest allows, in order; None: any day that the rest allows."""
        if self._listed is not None and not self._listed:
            raise ValueError(f"days={days!r}, without=, only=: no day is left")
        self.rule = self._make_rule()
        """All of it as text of some 40 characters. Equal calendars have equal texts."""

    @property
    def last(self) -> date | None:
        """The last day that belongs to it; None: it has no end."""
        return self._listed[-1] if self._listed else None

    def __contains__(self, day: date) -> bool:
        if self._listed is None:
            return self._fits(day)
        at = bisect_right(self._listed, day)
        return at > 0 and self._listed[at - 1] == day

    def next(self, day: date) -> date | None:
        """The first day after this one that belongs to it; None: there is none."""
        if self._listed is not None:
            at = bisect_right(self._listed, day)
            return self._listed[at] if at < len(self._listed) else None
        # It ends: no list of dates is endless.
        while day < date.max:
            day += _ONE_DAY
            if self._fits(day):
                return day
        return None

    def _fits(self, day: date) -> bool:
        return day.weekday() in self._weekdays and day not in self._without

    def _make_rule(self) -> str:
        weekdays = ",".join(WEEKDAYS[number] for number in sorted(self._weekdays))
        if self._listed is None and not self._without:
            return weekdays
        lists = (sorted(self._without), self._listed)
        # A list may have thousands of dates, and the rule is stored with the state of each schedule.
        return f"{weekdays} {hashlib.blake2b(repr(lists).encode(), digest_size=8).hexdigest()}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Calendar) and self.rule == other.rule

    def __hash__(self) -> int:
        return hash(self.rule)

    def __str__(self) -> str:
        """In short, for people: `mon-fri, without 12 dates`."""
        without = f"without {_count(len(self._without))}" if self._without else ""
        only = "" if self._listed is None else f"only {_count(len(self._listed))}"
        return ", ".join(part for part in (self.days, only or without) if part)

    def __repr__(self) -> str:
        return f"<Calendar {self}>"


def _count(dates: int) -> str:
    return f"{dates} date{'' if dates == 1 else 's'}"


def _parse_weekdays(text: str) -> frozenset[int]:
    if not isinstance(text, str) or len(text) > MAX_SHORT:
        raise _wrong_days(text)
    found: set[int] = set()
    for part in text.lower().split(","):
        first, dash, last = (end.strip() for end in part.partition("-"))
        last = last if dash else first
        if first not in WEEKDAYS or last not in WEEKDAYS:
            raise _wrong_days(text)
        start, end = WEEKDAYS.index(first), WEEKDAYS.index(last)
        # `sat-mon` goes over the end of the week.
        found.update((start + n) % 7 for n in range((end - start) % 7 + 1))
    return frozenset(found)


def _wrong_days(text: object) -> ValueError:
    return ValueError(f'days={shorten(text)}: weekdays such as "mon-fri" or "mon,wed,fri"')


def _parse_dates(name: str, given: Iterable[date | str]) -> list[date]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ValueError(f'{name}={shorten(given)}: a list of dates, as in ["2026-12-25"]')
    dates = [_parse_date(name, one) for one in given]
    if len(dates) > MOST_DATES:
        raise ValueError(f"{name}= has {len(dates)} dates; at most {MOST_DATES} can be given")
    return dates


def _parse_date(name: str, given: date | str) -> date:
    # A datetime is a date to Python, but not the same day in every zone. So not isinstance.
    if type(given) is date:
        return given
    try:
        return date.fromisoformat(given)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise ValueError(f'{name}: {shorten(given)} is no date; write it as "2026-12-25"') from None
