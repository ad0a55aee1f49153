"""What somebody puts as a schedule: a call, and when it is made."""

import hashlib
from datetime import UTC, datetime
from typing import Annotated, get_args

from msgspec import Meta, Struct

from tarry.model.duration import DAY, HOUR, MINUTE, SECOND, Duration, Span, microseconds
from tarry.model.job import StoredTime
from tarry.model.quantity import shorten
from tarry.model.schedules.schedule import MAX_NAME, MOST, Missed, Schedule, cached_timetable
from tarry.model.schedules.timetable import ONCE, SHORTEST, Timetable

KIND = "schedule"
"""How the keys of its ticks begin."""
LARGEST_BODY = 64 * 1024
"""Bytes of encoded arguments: a keeper reads many schedules at once."""
LONGEST_JITTER = DAY
_UNITS = {"d": DAY, "h": HOUR, "m": MINUTE, "s": SECOND, "us": 1}
_LAST = 253_402_300_799
"""The last second of the year 9999."""


class CallOptions(Struct, frozen=True, omit_defaults=True):
    """Options of each job; None: the task decides."""

    queue: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    priority: int | None = None
    expires: Span | None = None
    timeout: Span | None = None
    labels: dict[str, str] | None = None
    cost: int | None = None


class ScheduleDefinition(Struct, frozen=True, omit_defaults=True):
    """A call, and when it is made. Times are microseconds since the epoch, durations microseconds; 0: none."""

    task: Annotated[str, Meta(min_length=1, max_length=200)]
    body: bytes
    """The encoded arguments."""
    expression: Annotated[str, Meta(max_length=1000)]
    """A cron expression, `@every 90s`, or `@once` and a moment."""
    zone: Annotated[str, Meta(max_length=100)] = "UTC"
    catch_up: Missed = "last"
    """What becomes of ticks that were missed: see `Cron`."""
    jitter: StoredTime = 0
    """Each job is due up to so much later than its tick, always the same for the same tick."""
    until: StoredTime = 0
    """No tick comes after this time."""
    options: CallOptions = CallOptions()

    def delay(self, name: str, tick: int) -> int:
        """How much later than this tick its job is due."""
        # The same on all hosts, and after a restart.
        drawn = hashlib.blake2b(f"{name}:{tick}".encode(), digest_size=8).digest()
        return int.from_bytes(drawn) % (self.jitter + 1)

    def schedule(self, name: str) -> Schedule:
        """What a keeper works with; ValueError if this zone is not known here."""
        table = cached_timetable(self.expression, self.zone)
        table = _Ending(table, self.until) if self.until else table
        return Schedule(
            name, self.task, name, self.expression, self.zone, self.catch_up, MOST, (), {}, table, kind=KIND
        )


class _Ending(Timetable):
    """The ticks of another timetable up to a time."""

    def __init__(self, table: Timetable, until: int) -> None:
        self._table, self._until = table, until

    def next(self, after: int) -> int | None:
        tick = self._table.next(after)
        return None if tick is None or tick > self._until else tick


def check_name(name: object) -> str:
    """The name; ValueError if a schedule cannot have it."""
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME or not name.isprintable() or name != name.strip():
        raise ValueError(f"name={shorten(name)}: text of 1 to {MAX_NAME} printable characters, without blanks around")
    return name


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
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= _LAST:
        raise ValueError(f"{name}={shorten(value)}: a datetime with a time zone, from 1970 to 9999, or seconds")
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
