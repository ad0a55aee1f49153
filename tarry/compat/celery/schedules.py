"""`crontab`, `schedule` and what else stands in a `beat_schedule`, as expressions of tarry's timetables.

The five fields of a crontab as Celery reads them: texts, numbers and lists become sets of numbers.
"""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import islice
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from msgspec import Struct

from tarry.compat.celery.apps import current_app
from tarry.compat.celery.calling import zone_of
from tarry.compat.celery.differences import CeleryNotSupported, differs
from tarry.model.duration import SECOND
from tarry.model.quantity import shorten
from tarry.model.schedules.calendar import Calendar
from tarry.model.schedules.schedule import Cron
from tarry.model.schedules.timetable import timetable

CrontabField = str | int | Iterable[int]
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MOST = 1000
"""Characters, or numbers, of a field."""


class ParseException(ValueError):
    """A field of a crontab that cannot be understood."""


class FieldRange(Struct, frozen=True):
    """What may stand in a field: numbers from `low` to `high`, and the names of those from `low` on."""

    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()

    def parse(self, given: Any) -> set[int]:
        """The numbers that a text, a number or a list of numbers stands for; ParseException, TypeError."""
        if isinstance(given, int):
            numbers = {given}
        elif isinstance(given, str):
            numbers = self._parse_text(given)
        elif isinstance(given, Iterable):
            numbers = self._take(given)
        else:
            raise TypeError(f"crontab({self.name}={given!r}): a number, a text or a list of numbers")
        if not numbers or not all(isinstance(one, int) and self.low <= one <= self.high for one in numbers):
            raise ParseException(f"crontab({self.name}={shorten(given)}): numbers from {self.low} to {self.high}")
        return numbers

    def _take(self, given: Iterable[int]) -> set[int]:
        # It may have no end.
        taken = list(islice(given, _MOST + 1))
        if len(taken) > _MOST:
            raise ParseException(f"crontab({self.name}={shorten(given)}): {_MOST} numbers at most")
        return set(taken)

    def _parse_text(self, text: str) -> set[int]:
        try:
            if len(text) > _MOST:
                raise ValueError
            return {number for part in text.split(",") for number in self._parse_part(part.strip())}
        except ValueError:
            named = f", or names ({', '.join(self.names)})" if self.names else ""
            raise ParseException(
                f"crontab({self.name}={shorten(text)}): numbers from {self.low} to {self.high}{named}, "
                'as "3", "1-5", "22-2", "*/15", "1-31/2", with commas between them'
            ) from None

    def _parse_part(self, part: str) -> list[int]:
        span, slash, step = part.partition("/")
        first, dash, last = span.partition("-")
        if slash and not (dash or span == "*"):
            raise ValueError
        numbers = self._parse_span(first, last) if dash else self._parse_one(span)
        return numbers[:: _number(step)] if slash else numbers

    def _parse_one(self, word: str) -> list[int]:
        return list(range(self.low, self.high + 1)) if word == "*" else [self._parse_number(word)]

    def _parse_span(self, first: str, last: str) -> list[int]:
        start, end = self._parse_number(first), self._parse_number(last)
        if end >= start:
            return list(range(start, end + 1))
        # As Celery has it: "22-2" goes over midnight.
        return [*range(start, self.high + 1), *range(self.low, end + 1)]

    def _parse_number(self, word: str) -> int:
        name = word.strip().lower()[:3]
        found = self.names.index(name) + self.low if name in self.names else _number(word)
        if not self.low <= found <= self.high:
            raise ValueError
        return found

    def text(self, numbers: set[int]) -> str:
        """The numbers as a crontab has them: a step, or runs and single ones."""
        step = self._step(numbers)
        if step:
            return "*" if step == 1 else f"*/{step}"
        runs: list[list[int]] = []
        for number in sorted(numbers):
            if runs and number == runs[-1][-1] + 1:
                runs[-1].append(number)
            else:
                runs.append([number])
        words = [[self.word(number) for number in run] for run in runs]
        return ",".join(run[0] if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in words)

    def word(self, number: int) -> str:
        """The name of a number, or the number."""
        return self.names[number - self.low] if self.names else str(number)

    def _step(self, numbers: set[int]) -> int:
        """The step of three numbers or more that begin with the lowest; 0: they have none."""
        steps = range(1, (self.high - self.low) // 2 + 1)
        return next((step for step in steps if numbers == set(range(self.low, self.high + 1, step))), 0)

    def is_every(self, numbers: set[int]) -> bool:
        """Whether none is left out."""
        return len(numbers) == self.high - self.low + 1


def _number(word: str) -> int:
    if not (word.strip().isdecimal() and word.isascii()):
        raise ValueError
    return int(word)


MINUTE, HOUR = FieldRange("minute", 0, 59), FieldRange("hour", 0, 23)
DAY_OF_MONTH = FieldRange("day_of_month", 1, 31)
MONTH_OF_YEAR = FieldRange("month_of_year", 1, 12, _MONTHS)
DAY_OF_WEEK = FieldRange("day_of_week", 0, 6, _WEEKDAYS)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class schedstate(NamedTuple):  # noqa: N801 - Celery's name
    """Whether a schedule is due, and in how many seconds to ask again."""

    is_due: bool
    next: float


class BaseSchedule:
    """What `crontab` and `schedule` have in common."""

    expression: str
    calendar: Calendar | None = None

    def __init__(self, nowfun: Callable[[], datetime] | None = None, app: Any = None) -> None:
        self.nowfun, self._app = nowfun, app

    @property
    def app(self) -> Any:
        """Its app, or the current one; ConfigError if there is none."""
        return self._app or current_app()

    def now(self) -> datetime:
        """The time, in the app's zone."""
        return self.nowfun() if self.nowfun is not None else datetime.now(ZoneInfo(zone_of(self.app)))

    def remaining_estimate(self, last_run_at: datetime) -> timedelta:
        """How long until the first run after this one; less than nothing if it is late. A time without a zone is
        in UTC."""
        return self._next_after(_aware(last_run_at)) - _aware(self.now())

    def is_due(self, last_run_at: datetime) -> schedstate:
        """Whether a run is due, and in how many seconds the next is."""
        left = self.remaining_estimate(last_run_at).total_seconds()
        if left > 0:
            return schedstate(False, left)
        return schedstate(True, max(0.0, self.remaining_estimate(self.now()).total_seconds()))

    def _next_after(self, last: datetime) -> datetime:
        raise NotImplementedError

    def zone(self, default: str) -> str:
        """The zone of the times that `nowfun` gives; the default without it. CeleryNotSupported if it has no name."""
        if self.nowfun is None:
            return default
        name = _zone_name(self.nowfun().tzinfo)
        if name is None:
            raise CeleryNotSupported(
                "nowfun= counts only for its zone, which has to have a name: "
                'return datetime.now(ZoneInfo("Europe/Paris")), or set app.conf.timezone'
            )
        return name


class crontab(BaseSchedule):  # noqa: N801 - Celery's name
    """`crontab(minute=0, hour="*/3", day_of_week="mon-fri")`; numbers, texts as in a crontab, or lists of numbers.

    A day has to fit the day of the month and that of the week, as with Celery; in cron one of them is enough.
    ParseException (a ValueError) if a field cannot be.
    """

    def __init__(
        self,
        minute: CrontabField = "*",
        hour: CrontabField = "*",
        day_of_week: CrontabField = "*",
        day_of_month: CrontabField = "*",
        month_of_year: CrontabField = "*",
        **options: Any,
    ) -> None:
        if unknown := [name for name in options if name not in ("nowfun", "app")]:
            raise CeleryNotSupported(f"crontab({unknown[0]}=...): tarry's schedules have no such setting")
        super().__init__(**options)
        self._given = (minute, hour, day_of_month, month_of_year, day_of_week)
        self.minute, self.hour = MINUTE.parse(minute), HOUR.parse(hour)
        self.day_of_week, self.day_of_month = DAY_OF_WEEK.parse(day_of_week), DAY_OF_MONTH.parse(day_of_month)
        self.month_of_year = MONTH_OF_YEAR.parse(month_of_year)
        self._set_expression()

    def _set_expression(self) -> None:
        weekdays = DAY_OF_WEEK.text(self.day_of_week)
        if not DAY_OF_MONTH.is_every(self.day_of_month) and weekdays != "*":
            # An expression with both ticks on days that fit one of them; a calendar leaves out the others.
            self.calendar = Calendar(",".join(DAY_OF_WEEK.word(day) for day in sorted(self.day_of_week)))
            weekdays = "*"
        times = f"{MINUTE.text(self.minute)} {HOUR.text(self.hour)}"
        days = f"{DAY_OF_MONTH.text(self.day_of_month)} {MONTH_OF_YEAR.text(self.month_of_year)}"
        # In the order of a crontab, which is not that of the arguments.
        self.expression = f"{times} {days} {weekdays}"

    @classmethod
    def from_string(cls, crontab: str) -> "crontab":
        """From the five fields of a crontab."""
        fields = crontab.split()
        if len(fields) != 5:
            raise ParseException(f"crontab.from_string({crontab!r}): five fields: minute hour day month weekday")
        minute, hour, day, month, weekday = fields
        return cls(minute, hour, weekday, day, month)

    def _next_after(self, last: datetime) -> datetime:
        zone = self.zone(zone_of(self.app))
        tick = timetable(self.expression, zone, self.calendar).next((last - _EPOCH) // timedelta(microseconds=1))
        if tick is None:
            raise ParseException(f"{self!r}: there is no such day in fifty years")
        return _EPOCH + timedelta(seconds=tick // SECOND)

    def _sets(self) -> tuple[set[int], ...]:
        return self.minute, self.hour, self.day_of_week, self.day_of_month, self.month_of_year

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, crontab):
            return NotImplemented
        return other._sets() == self._sets() and other.nowfun == self.nowfun

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<crontab: {' '.join(map(str, self._given))} (m/h/dM/MY/d)>"


class schedule(BaseSchedule):  # noqa: N801 - Celery's name
    """`schedule(run_every=30)`: seconds or a timedelta between two runs. They are counted from the epoch."""

    def __init__(
        self,
        run_every: float | timedelta,
        relative: bool = False,
        nowfun: Callable[[], datetime] | None = None,
        app: Any = None,
    ) -> None:
        super().__init__(nowfun, app)
        self.expression, self.relative = _every(run_every), relative
        self.run_every = run_every if isinstance(run_every, timedelta) else timedelta(seconds=run_every)
        if relative:
            differs("schedule(relative=True) has no effect: runs are counted from the epoch, the same on every host")

    @property
    def seconds(self) -> float:
        """Seconds between two runs."""
        return self.run_every.total_seconds()

    def _next_after(self, last: datetime) -> datetime:
        return last + self.run_every

    def __eq__(self, other: object) -> bool:
        return self.run_every == (other.run_every if isinstance(other, schedule) else other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<freq: {self.seconds:g} seconds>"


def solar(*args: Any, **kwargs: Any) -> None:
    """Refused."""
    raise CeleryNotSupported("solar(...): tarry has no sun; let a task of crontab(minute=0, hour=0) enqueue with eta=")


def _aware(moment: datetime) -> datetime:
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _zone_name(zone: tzinfo | None) -> str | None:
    """The name of a zone of zoneinfo or pytz."""
    if zone is UTC:
        return "UTC"
    name = getattr(zone, "key", None) or getattr(zone, "zone", None)
    return name if isinstance(name, str) else None


def _every(seconds: float | timedelta, where: str = "") -> str:
    if not isinstance(seconds, int | float | timedelta):
        raise CeleryNotSupported(f"schedule(run_every={seconds!r}): seconds, or a timedelta")
    length = seconds.total_seconds() if isinstance(seconds, timedelta) else float(seconds)
    if not length >= 1:
        raise CeleryNotSupported(f"{where}a schedule of every {length:g} s: once a second is the most often")
    return f"@every {length:.0f}s" if length == round(length) else f"@every {round(length * 1000)}ms"


def as_cron(name: str, when: Any, args: Any, kwargs: Any, zone: str) -> Cron:
    """A line of `beat_schedule` as a Cron of that name; CeleryNotSupported, ValueError if it cannot be."""
    calendar = None
    if isinstance(when, int | float | timedelta):
        expression = _every(when, f"beat_schedule[{name!r}]: ")
    elif isinstance(when, crontab | schedule):
        expression, calendar, zone = when.expression, when.calendar, when.zone(zone)
    else:
        raise CeleryNotSupported(
            f"beat_schedule[{name!r}]: {type(when).__name__} is no crontab, number of seconds or timedelta"
        )
    # Celery's beat makes up for missed ticks with one run, as "last" does.
    return Cron(expression, zone=zone, args=tuple(args or ()), kwargs=dict(kwargs or {}), name=name, calendar=calendar)
