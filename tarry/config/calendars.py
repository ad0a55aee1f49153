"""[calendars.NAME]: the days on which schedules may tick that name the calendar."""

from collections.abc import Mapping
from datetime import date
from typing import Annotated

from msgspec import Meta, Struct

from tarry.config.kinds import parse_list
from tarry.config.parser import Kind, SettingsSource
from tarry.model.calendars.calendar import EVERY_DAY, MOST_DATES, WEEKDAYS, Calendar


def _check_days(written: str) -> str:
    # Only for its ValueError.
    Calendar(written)
    return written


DAYS = Kind(
    'weekdays such as "mon-fri" or "mon,wed,fri"', str, _check_days, names=("mon-fri", "mon-sat", "sat,sun", *WEEKDAYS)
)
DATES = Kind(
    'a list of dates such as ["2026-12-25", "2026-12-28"]',
    Annotated[list[date], Meta(max_length=MOST_DATES)],
    tuple,
    parse_list,
)


class CalendarConfig(Struct, frozen=True):
    """[calendars.NAME]."""

    days: Annotated[str, DAYS] = EVERY_DAY
    without: Annotated[tuple[date, ...], DATES] = ()
    """Dates that do not belong to it."""
    only: Annotated[tuple[date, ...], DATES] = ()
    """If there are any: no other dates belong to it."""

    @property
    def calendar(self) -> Calendar:
        """The calendar that these settings make; ValueError: it has no day."""
        return Calendar(self.days, without=self.without, only=self.only or None)


def check_calendars(calendars: Mapping[str, CalendarConfig], source: SettingsSource) -> None:
    """ConfigError for a calendar without a day."""
    for name, one in calendars.items():
        try:
            one.calendar  # noqa: B018
        except ValueError:
            written = [str(day) for day in one.only]
            expected = "a date that is one of its days and not left out by without"
            raise source.wrong(("calendars", name, "only"), expected, written) from None
