"""What somebody puts as a schedule: a call, and when it is made."""

import hashlib
from typing import Annotated

from msgspec import Meta, Struct

from tarry.model.duration import Span
from tarry.model.job import StoredTime
from tarry.model.quantity import shorten
from tarry.model.schedules.schedule import MAX_NAME, MOST, Missed, Schedule, cached_timetable
from tarry.model.schedules.timetable import Timetable

KIND = "schedule"
"""How the keys of its ticks begin."""
LARGEST_BODY = 64 * 1024
"""Bytes of encoded arguments: a keeper reads many schedules at once."""


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
