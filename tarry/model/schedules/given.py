"""What somebody gives for a schedule: when it ticks, as text, numbers and times."""

from datetime import UTC, datetime
from typing import get_args

from tarry.model.duration import DAY, HOUR, MINUTE, SECOND, Duration, microseconds
from tarry.model.quantity import shorten
from tarry.model.schedules.schedule import Missed
from tarry.model.schedules.timetable import LATEST, ONCE, SHORTEST

LONGEST_JITTER = DAY
_UNITS = {"d": DAY, "h": HOUR, "m": MINUTE, "s": SECOND, "us": 1}


def expression_of(cron: object, every: Duration | None, at: "datetime | float | None") -> str:
    """The expression of what somebody gave, one of the three; ValueError."""
    given = [word for word, value in (("cron", cron), ("every", every), ("at", at)) if value is not None]
    if len(given) != 1:
        said = " and ".join(f"{word}=" for word in given) or "nothing"
        raise ValueError(f'{said} says when: give one of cron="0 7 * * 1-5", every="90s" and at=datetime(...)')
    if every is not None:
        period = microseconds(every, "every")
        if period < SHORTEST:
            raise ValueError(f"every={shorten(every)}: a second at least")
        unit, length = next((unit, length) for unit, length in _UNITS.items() if period % length == 0)
        return f"@every {period // length}{unit}"
    if at is not None:
        return f"{ONCE} {datetime.fromtimestamp(moment('at', at) // SECOND, UTC).isoformat()}"
    if not isinstance(cron, str):
        raise ValueError(f'cron={shorten(cron)}: text, as in "0 7 * * 1-5"')
    return " ".join(cron.split())


def given_of(expression: str) -> tuple[str, str]:
    """What makes such an expression, for a form: `cron`, `every` or `at`, and its text."""
    kind, _, rest = expression.partition(" ")
    name = {"@every": "every", ONCE: "at"}.get(kind, "cron")
    return name, expression if name == "cron" else rest


def moment(name: str, value: "datetime | float | str") -> int:
    """Microseconds since the epoch; ValueError. name: of the setting."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise ValueError(f'{name}={shorten(value)}: a moment such as "2026-12-31T07:00:00+01:00"') from None
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ValueError(f"{name}={value.isoformat()} needs a time zone: datetime(..., tzinfo=...), or Z behind it")
        value = value.timestamp()
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= LATEST:
        raise ValueError(f"{name}={shorten(value)}: a datetime with a time zone, from 1970 to 6499, or seconds")
    return round(value * SECOND)


def jitter_of(jitter: Duration | None) -> int:
    """Microseconds; ValueError."""
    length = 0 if jitter is None else microseconds(jitter, "jitter")
    if length > LONGEST_JITTER:
        raise ValueError(f"jitter={shorten(jitter)}: a day at most")
    return length


def check_catch_up(catch_up: object) -> None:
    """ValueError if it is none."""
    if catch_up not in get_args(Missed):
        raise ValueError(f'catch_up={shorten(catch_up)}: "skip", "last" or "all"')
