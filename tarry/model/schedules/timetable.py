"""When a schedule ticks. Pure: the same question always has the same answer, on every host.

cronsim knows the calendar, in wall time only. How daylight saving changes that is decided here:

- An expression that runs in every hour (`*` for the hour) follows elapsed time. It ignores a change of the clocks: it
  runs in both of two repeated hours, and misses nothing in a skipped one.
- An expression that names hours runs once for each wall time that it names. A skipped time runs at the moment of the
  change (several such: once); of a repeated time the first counts.

A calendar leaves out the ticks of other days. The day of a tick is the one that the wall of the zone shows then.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta, tzinfo
from functools import cache

from tarry.model.duration import MINUTE, SECOND, microseconds
from tarry.model.quantity import MAX_SHORT, shorten
from tarry.model.schedules.calendar import Calendar

EPOCH = datetime(1970, 1, 1)
DAY = 86400
SHORTEST = SECOND
ONCE = "@once"
"""What stands before the moment of a timetable with one tick."""
LATEST = 142_953_033_599
"""The last second of the year 6499: later ones, and what is counted from them, do not fit into a stored time."""
MAX_EXPRESSION = 1000
"""Characters."""
SEARCHED = 40 * 366 * DAY * SECOND
"""Microseconds without a tick on a day of the calendar after which none is expected any more, but for listed dates."""
NAMED = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
WAY_OUT = (
    'write minute hour day month weekday, as in "*/5 * * * *"; six fields, with the second in front; "@every 90s"; '
    f"or one of {' '.join(NAMED)}"
)


class Timetable(ABC):
    """A sequence of ticks, in microseconds since the epoch."""

    @abstractmethod
    def next(self, after: int) -> int | None:
        """The first tick after this time; None: there is none in fifty years."""

    def newest(self, after: int, until: int, most: int) -> list[int]:
        """The newest ticks after one time and up to the other, at most `most`, in order."""
        span = MINUTE
        while True:
            start = max(after, until - span)
            ticks = deque(self._between(start, until), most)
            if len(ticks) == most or start == after:
                return list(ticks)
            # Look back in ever longer steps: to find the last hundred ticks of a year of seconds, do not compute all.
            span *= 8

    def _between(self, after: int, until: int) -> Iterator[int]:
        tick = self.next(after)
        while tick is not None and tick <= until:
            yield tick
            tick = self.next(tick)


def timetable(expression: str, zone: str, calendar: Calendar | None = None) -> Timetable:
    """The timetable of the expression in that zone, on the days of the calendar; ValueError that says what is wrong
    with one of them."""
    if len(expression) > MAX_EXPRESSION:
        raise ValueError(f"cron={shorten(expression)}: at most {MAX_EXPRESSION} characters")
    table = _every_day(expression, zone)
    if calendar is None:
        return table
    chosen = _OnDays(table, calendar, _find_zone(zone))
    if chosen.next(0) is None:
        raise ValueError(f'cron="{expression}": none of its times is on a day of the calendar ({calendar})')
    return chosen


def _every_day(expression: str, zone: str) -> Timetable:
    words = expression.split()
    if words and words[0] == "@every":
        return _Every(_period(expression, " ".join(words[1:])))
    if words and words[0] == ONCE:
        return _Once(_moment(expression, " ".join(words[1:])))
    if words and words[0].startswith("@"):
        named = NAMED.get(" ".join(words))
        if named is None:
            raise ValueError(f'cron="{expression}": {_zone_apart(expression) or "no such name"}; {WAY_OUT}')
        words = named.split()
    return _on_the_wall(expression, " ".join(words), _find_zone(zone))


def _period(expression: str, text: str) -> int:
    try:
        period = microseconds(text)
    except ValueError as error:
        raise ValueError(f'cron="{expression}": {error}') from None
    if period < SHORTEST:
        raise ValueError(f'cron="{expression}": a second at least, as in "@every 1s"')
    return period


class _Every(Timetable):
    """A tick after each period, counted from the epoch. The zone has no effect."""

    def __init__(self, period: int) -> None:
        self._period = period

    def next(self, after: int) -> int:
        # Counted from the epoch and not from a start, so that all hosts get the same ticks.
        return (after // self._period + 1) * self._period


def _moment(expression: str, text: str) -> int:
    try:
        found = datetime.fromisoformat(text)
        if found.tzinfo is None:
            raise ValueError(f"{text} needs a time zone")
        seconds = int(found.timestamp())
        if seconds > LATEST:
            raise ValueError(f"{text} is too late")
        return max(0, seconds) * SECOND
    except (ValueError, OverflowError):
        how = f'a moment up to the year 6499, as in "{ONCE} 2026-12-31T07:00:00+01:00"'
        raise ValueError(f'cron="{expression}": {how}') from None


class _Once(Timetable):
    """One tick. The zone has no effect."""

    def __init__(self, moment: int) -> None:
        self._tick = moment

    def next(self, after: int) -> int | None:
        return self._tick if self._tick > after else None


class _OnDays(Timetable):
    """The ticks of another timetable that are on a day of the calendar."""

    def __init__(self, table: Timetable, calendar: Calendar, zone: tzinfo) -> None:
        self._table, self._calendar, self._zone = table, calendar, zone
        self._listed_until = 0 if calendar.last is None else self._midnight(calendar.last, 0)

    def next(self, after: int) -> int | None:
        until = max(after + SEARCHED, self._listed_until)
        try:
            tick = self._table.next(after)
            while tick is not None and (day := self._day(tick)) not in self._calendar:
                start = self._skip(tick, day)
                tick = None if start is None or start > until else self._table.next(start)
        except (OverflowError, ValueError):  # the calendar ends with the year 9999
            return None
        return tick

    def _skip(self, tick: int, day: date) -> int | None:
        """A time from `tick` on, before which no tick is left that may be on a day of the calendar; None: none is."""
        # Where midnight comes twice, the day before comes back for a while: then look at each tick.
        if tick < self._midnight(day, 1):
            return tick
        following = self._calendar.next(day)
        if following is None:
            return None
        # The earlier one of both: a midnight that is skipped has none of its own, and fold says on which side to look.
        return max(tick, min(self._midnight(following, 0), self._midnight(following, 1)) - 1)

    def _day(self, tick: int) -> date:
        return datetime.fromtimestamp(tick // SECOND, self._zone).date()

    def _midnight(self, day: date, fold: int) -> int:
        return int(datetime.combine(day, time(fold=fold), self._zone).timestamp()) * SECOND


def _on_the_wall(expression: str, fields: str, zone: tzinfo) -> Timetable:
    from cronsim import CronSim, CronSimError  # noqa: PLC0415 - most apps have no schedule

    try:
        hours = CronSim(fields, EPOCH).hours
    except (CronSimError, AssertionError, TypeError, ValueError) as error:
        # cronsim has other errors too for expressions that it does not understand, with no words for people.
        why = str(error) if isinstance(error, CronSimError) else "it cannot be understood"
        why = _zone_apart(fields) or f"{why[:1].lower()}{why[1:]}"
        raise ValueError(f'cron="{expression}": {why}; {WAY_OUT}') from None
    table = _EveryHour(fields, zone) if len(hours) == 24 else _NamedHours(fields, zone)
    # Such as 30 February: found now, and not by a schedule that never ticks.
    if table.next(0) is None:
        raise ValueError(f'cron="{expression}": there is no such day; {WAY_OUT}')
    return table


def _zone_apart(text: str) -> str:
    """What to say if an expression ends with a time zone; empty: it does not."""
    last = text.split()[-1:]
    return f'the zone stands apart, zone="{last[0]}"' if last and last[0].lower() in _known_zones() else ""


def _find_zone(zone: str) -> tzinfo:
    from zoneinfo import ZoneInfo  # noqa: PLC0415 - most apps have no schedule

    try:
        return ZoneInfo(zone if len(zone) <= MAX_SHORT else "")
    except (KeyError, ValueError, OSError, TypeError, AttributeError):
        raise ValueError(f"zone={shorten(zone)}: there is no such time zone{_meant(zone)}") from None


@cache
def _known_zones() -> dict[str, str]:
    """All time zones, by their names in small letters."""
    from zoneinfo import available_timezones  # noqa: PLC0415 - reads hundreds of files

    return {name.lower(): name for name in sorted(available_timezones())}


def _meant(zone: object) -> str:
    from difflib import get_close_matches  # noqa: PLC0415 - for an error only

    known = _known_zones()
    close = get_close_matches(str(zone)[:MAX_SHORT].lower(), known, 1)
    return f'; did you mean "{known[close[0]]}"?' if close else '; write its name, as in "Europe/Paris" or "UTC"'


class _Wall(Timetable):
    """A timetable of five or six fields. Internal times are whole seconds since the epoch."""

    def __init__(self, fields: str, zone: tzinfo) -> None:
        self._fields = fields
        self._zone = zone

    def next(self, after: int) -> int | None:
        try:
            tick = self._next(after // SECOND)
        except (OverflowError, ValueError):  # the calendar ends with the year 9999
            return None
        return None if tick is None else tick * SECOND

    @abstractmethod
    def _next(self, after: int) -> int | None: ...

    def _walls(self, after: int) -> Iterator[int]:
        """The wall times that match after that wall time, both as seconds since a wall's own epoch."""
        from cronsim import CronSim  # noqa: PLC0415

        for wall in CronSim(self._fields, EPOCH + timedelta(seconds=after)):
            yield (wall - EPOCH) // timedelta(seconds=1)

    def _offset(self, at: int) -> int:
        """Seconds that wall time is ahead of UTC at this moment."""
        offset = datetime.fromtimestamp(at, self._zone).utcoffset()
        return 0 if offset is None else round(offset.total_seconds())

    def _change(self, low: int, high: int, offset: int) -> int:
        """The first moment after `low`, and up to `high`, at which wall time has another offset."""
        while high - low > 1:
            middle = (low + high) // 2
            if self._offset(middle) == offset:
                low = middle
            else:
                high = middle
        return high


class _EveryHour(_Wall):
    def _next(self, after: int) -> int | None:
        offset = self._offset(after)
        while True:
            wall = next(self._walls(after + offset), None)
            if wall is None:
                return None
            tick = wall - offset
            if tick - after > 2 * DAY:
                # On a long way the clocks may change more than once: come closer first.
                after = tick - DAY
                offset = self._offset(after)
            elif self._offset(tick) == offset:
                return tick
            else:
                # The clocks change before the tick: go to the moment of the change, and ask again with the new offset.
                change = self._change(after, tick, offset)
                after, offset = change - 1, self._offset(change)


class _NamedHours(_Wall):
    def _next(self, after: int) -> int | None:
        for wall in self._walls(after + self._offset(after)):
            tick = self._moment(wall)
            if tick > after:
                return tick
        return None

    def _moment(self, wall: int) -> int:
        there = EPOCH + timedelta(seconds=wall)
        first, second = (int(there.replace(tzinfo=self._zone, fold=fold).timestamp()) for fold in (0, 1))
        if first + self._offset(first) == wall:
            return first
        # The clocks skip this time. With the offset before the change it lies after the change, and with the offset
        # after the change it lies before it.
        return self._change(second, first, self._offset(second))
