"""`crontab`, `schedule` and what else stands in a `beat_schedule`, as expressions of tarry's timetables."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from tarry.compat.celery.apps import current_app
from tarry.compat.celery.crontab_fields import (
    DAY_OF_MONTH,
    DAY_OF_WEEK,
    HOUR,
    MINUTE,
    MONTH_OF_YEAR,
    CrontabField,
    ParseException,
)
from tarry.compat.celery.differences import CeleryNotSupported, differs
from tarry.compat.celery.sending.calling import zone_of
from tarry.model.calendars.calendar import Calendar
from tarry.model.duration import SECOND
from tarry.model.schedule import Cron
from tarry.model.timetable import timetable

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
        return self._following(_aware(last_run_at)) - _aware(self.now())

    def is_due(self, last_run_at: datetime) -> schedstate:
        """Whether a run is due, and in how many seconds the next is."""
        left = self.remaining_estimate(last_run_at).total_seconds()
        if left > 0:
            return schedstate(False, left)
        return schedstate(True, max(0.0, self.remaining_estimate(self.now()).total_seconds()))

    def _following(self, last: datetime) -> datetime:
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

    def _following(self, last: datetime) -> datetime:
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

    def _following(self, last: datetime) -> datetime:
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
