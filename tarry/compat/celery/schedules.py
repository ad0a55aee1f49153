"""`crontab`, `schedule` and what else stands in a `beat_schedule`, as expressions of tarry's timetables."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from tarry.compat.celery.differences import CeleryNotSupported
from tarry.model.schedule import Cron

Field = str | int | Iterable[int]


class crontab:  # noqa: N801 - Celery's name
    """`crontab(minute=0, hour="*/3", day_of_week="mon-fri")`; numbers, texts as in a crontab, or sets of numbers."""

    def __init__(
        self,
        minute: Field = "*",
        hour: Field = "*",
        day_of_week: Field = "*",
        day_of_month: Field = "*",
        month_of_year: Field = "*",
        **options: Any,
    ) -> None:
        # In the order of a crontab, which is not that of the arguments.
        fields = (minute, hour, day_of_month, month_of_year, day_of_week)
        self.expression = " ".join(_field(field) for field in fields)
        if unknown := [name for name in options if name not in ("nowfun", "app")]:
            raise CeleryNotSupported(f"crontab({unknown[0]}=...): tarry's schedules have no such setting")

    @classmethod
    def from_string(cls, text: str) -> "crontab":
        """From the five fields of a crontab."""
        minute, hour, day, month, weekday = text.split()
        return cls(minute, hour, weekday, day, month)

    def __repr__(self) -> str:
        return f"<crontab: {self.expression}>"


class schedule:  # noqa: N801 - Celery's name
    """`schedule(run_every=30)`: seconds or a timedelta between two runs."""

    def __init__(self, run_every: float | timedelta, relative: bool = False, **options: Any) -> None:
        self.expression = _every(run_every)


def _field(field: Field) -> str:
    if isinstance(field, str | int):
        return str(field).replace(" ", "")
    return ",".join(str(number) for number in sorted(field))


def _every(seconds: float | timedelta, where: str = "") -> str:
    length = seconds.total_seconds() if isinstance(seconds, timedelta) else float(seconds)
    if length < 1:
        raise CeleryNotSupported(f"{where}a schedule of every {length:g} s: once a second is the most often")
    return f"@every {length:g}s" if length == int(length) else f"@every {round(length * 1000)}ms"


def as_cron(name: str, when: Any, args: Any, kwargs: Any, zone: str) -> Cron:
    """A line of `beat_schedule` as a Cron of that name; CeleryNotSupported, ValueError if it cannot be."""
    if isinstance(when, int | float | timedelta):
        expression = _every(when, f"beat_schedule[{name!r}]: ")
    elif isinstance(when, crontab | schedule):
        expression = when.expression
    else:
        raise CeleryNotSupported(
            f"beat_schedule[{name!r}]: {type(when).__name__} is no crontab, number of seconds or timedelta"
        )
    # Celery's beat makes up for missed ticks with one run, as "last" does.
    return Cron(expression, zone=zone, args=tuple(args or ()), kwargs=dict(kwargs or {}), name=name)
