"""What a schedule is: a call of a task, when it is made, what happens to ticks at which nothing ran, and its last runs:
which ticks became which jobs, and how those ended."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any, Literal, get_args

from msgspec import Meta, Struct
from msgspec.structs import replace

from tarry.model.duration import MINUTE
from tarry.model.job import State, StoredCount, StoredTime
from tarry.model.schedules.calendar import Calendar
from tarry.model.schedules.timetable import Timetable, timetable

Missed = Literal["skip", "last", "all"]
Encode = Callable[[Sequence[Any], Mapping[str, Any]], bytes]

# A restart, or a busy machine, takes that long.
LATE = MINUTE
"""A tick that is no later than this does not count as missed."""
MOST = 100
# The name becomes a part of keys.
MAX_NAME = 100
_KEY = re.compile("(?:cron|schedule):.+:([0-9]{1,18})", re.DOTALL)


class Cron:
    """One schedule of a task, for `@app.task(cron=...)`.

    Cron("0 9 * * mon-fri", zone="Europe/Paris")      at nine, on working days, in Paris
    Cron("*/10 * * * * *")                            with seconds in front: every ten of them
    Cron("@every 90s")                                counted from the epoch: the same moments on every host
    Cron("@daily", args=("eu",), name="daily-eu")     with arguments, and a name for `tarry schedules`
    Cron("0 9 * * *", calendar="de")                  on the days of [calendars.de] in tarry.toml
    Cron("@hourly", calendar=Calendar("mon-fri"))     on those of this calendar

    zone, missed: the task's where they are left out, and there "UTC" and "last".
    missed: what becomes of ticks while nothing ran, or the store was away, for more than a minute. "last": one run for
    all of them; "skip": none; "all": one for each, up to the newest `most`.
    calendar: the days on which it ticks, as the zone has them. Other days are left out, and are never made up for.
    ValueError if the expression, the zone or another setting cannot be, or no time is on a day of the calendar. A name
    is looked up when the app is started.
    """

    __slots__ = ("args", "calendar", "expression", "kwargs", "missed", "most", "name", "zone")

    def __init__(
        self,
        expression: str,
        *,
        zone: str | None = None,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        missed: Missed | None = None,
        most: int = MOST,
        name: str | None = None,
        calendar: Calendar | str | None = None,
    ) -> None:
        self.expression, self.zone, self.calendar = expression, zone, calendar
        self.args, self.kwargs = args, kwargs or {}
        self.missed, self.most, self.name = missed, most, name
        if not isinstance(expression, str):
            raise ValueError(f'cron={expression!r}: text, as in "*/5 * * * *", a Cron(...), or a list of them')
        self._check()
        # Only for its errors: they should name the line that makes the Cron.
        timetable(expression, "UTC" if zone is None else zone, calendar if isinstance(calendar, Calendar) else None)

    def _check(self) -> None:
        if self.missed is not None and self.missed not in get_args(Missed):
            raise ValueError(f'missed={self.missed!r}: "skip", "last" or "all"')
        if type(self.most) is not int or not 1 <= self.most <= 10_000:
            raise ValueError(f"most={self.most!r}: how many missed ticks to make up for, from 1 to 10000")
        if self.name is not None and not (isinstance(self.name, str) and 0 < len(self.name) <= MAX_NAME):
            raise ValueError(f"name={self.name!r}: text of 1 to {MAX_NAME} characters")
        if isinstance(self.args, str | bytes) or not isinstance(self.args, Sequence):
            raise ValueError(f"args={self.args!r}: a tuple or list of the call's arguments")
        if not (self.calendar is None or (isinstance(self.calendar, Calendar | str) and self.calendar != "")):
            raise ValueError(f"calendar={self.calendar!r}: a Calendar, or the NAME of [calendars.NAME] in tarry.toml")

    def __repr__(self) -> str:
        return f"Cron({self.expression!r}, zone={self.zone!r}, missed={self.missed!r})"


# The keeper asks for the schedules of named calendars several times a second.
cached_timetable = lru_cache(4096)(timetable)
"""`timetable`, which is kept."""


class Schedule(Struct, frozen=True):
    """A schedule of a task as the keeper works with it."""

    name: str
    """Unique in the app: the given name; else the task's, followed by #2, #3 and so on from its second schedule on."""
    task: str
    label: str
    """Unique among the schedules of the task."""
    expression: str
    zone: str
    missed: Missed
    most: int
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    timetable: Timetable
    """Of every day, while a calendar is only named: see `on`."""
    calendar: Calendar | None = None
    calendar_name: str = ""
    """Of the settings; empty: it names none."""
    kind: str = "cron"
    """How the keys of its ticks begin: those of code and those that are stored are apart."""

    def on(self, calendar: Calendar) -> "Schedule":
        """The same on the days of this calendar; ValueError if none of its times is on one."""
        return replace(self, calendar=calendar, timetable=cached_timetable(self.expression, self.zone, calendar))

    @property
    def rule(self) -> str:
        """When it ticks, as text. If that changes, ticks before the change do not count as missed."""
        days = "" if self.calendar is None else f" {self.calendar.rule}"
        return f"{self.expression} {self.zone}{days}"

    def key(self, tick: int) -> str:
        """The key of a tick's job."""
        # The same on all hosts: if several make the job of a tick, the store keeps one.
        return f"{self.kind}:{self.label}:{tick}"

    def next_ticks(self, after: int, count: int) -> list[int]:
        """The first ticks after this time, at most so many."""
        found: list[int] = []
        while len(found) < count and (tick := self.timetable.next(found[-1] if found else after)) is not None:
            found.append(tick)
        return found

    def ticks(self, after: int, now: int) -> list[int]:
        """The ticks after one time and up to now; only the newest if there are many."""
        return self.timetable.newest(after, now, max(self.most, MOST))

    def wanted(self, ticks: Sequence[int], now: int) -> Sequence[int]:
        """Which of these ticks, all in the past, still have to run."""
        # Even the first is not late: nothing was missed.
        if not ticks or ticks[0] >= now - LATE:
            return ticks
        if self.missed == "all":
            return ticks[-self.most :]
        return ticks[-1:] if self.missed == "last" or ticks[-1] >= now - LATE else ()


def tick_of(key: str | None) -> int | None:
    """Which tick made the job that holds this key; None: a tick made none with it."""
    found = _KEY.fullmatch(key or "")
    return None if found is None else int(found[1])


def schedules(
    task: str, cron: str | Cron | Iterable[str | Cron] | None, zone: str | None, missed: Missed | None, encode: Encode
) -> tuple[Schedule, ...]:
    """The schedules of `@app.task(cron=..., zone=..., missed=...)`. ValueError; and what `encode` raises."""
    if cron is None:
        if zone is not None or missed is not None:
            raise ValueError("zone= and missed= are about a schedule: give cron= too")
        return ()
    # Checks zone= and missed= even if every Cron has its own.
    common = Cron("@hourly", zone=zone, missed=missed)
    given = [cron] if isinstance(cron, str | Cron) or not isinstance(cron, Iterable) else cron
    crons = [one if isinstance(one, Cron) else Cron(one) for one in given]
    made = tuple(_schedule(task, number, one, common, encode) for number, one in enumerate(crons, 1))
    for names in ([schedule.name for schedule in made], [schedule.label for schedule in made]):
        for name in names:
            # Jobs of ticks are kept apart by these names.
            if names.count(name) > 1:
                raise ValueError(f"{task}: two of its schedules are named {name!r}; give each Cron another name=")
    return made


def _schedule(task: str, number: int, cron: Cron, common: Cron, encode: Encode) -> Schedule:
    zone = cron.zone or common.zone or "UTC"
    # Only for its errors: arguments that do not fit must fail when the app starts, and not at the first tick.
    encode(cron.args, cron.kwargs)
    calendar = cron.calendar if isinstance(cron.calendar, Calendar) else None
    return Schedule(
        cron.name or (task if number == 1 else f"{task}#{number}"),
        task,
        cron.name or f"#{number}",
        " ".join(cron.expression.split()),
        zone,
        cron.missed or common.missed or "last",
        cron.most,
        cron.args,
        cron.kwargs,
        timetable(cron.expression, zone, calendar),
        calendar,
        cron.calendar if isinstance(cron.calendar, str) else "",
    )


MOST_RUNS = 20
"""Runs of a schedule, the newest ones."""
LEFT_OUT, REFUSED = "left_out", "refused"
"""Ends of ticks without a job: nobody made up for them; the call could not be enqueued."""
_LONGEST = max(map(len, [*State, LEFT_OUT, REFUSED]))


class ScheduledRun(Struct, frozen=True, array_like=True):
    """What became of a tick. Times are microseconds since the epoch; 0: not known, or not yet."""

    tick: StoredTime
    job: Annotated[str, Meta(max_length=36)] = ""
    """The id of its job; empty: it has none."""
    end: Annotated[str, Meta(max_length=_LONGEST)] = ""
    """The state in which its job ended, LEFT_OUT or REFUSED; empty: not known yet."""
    started: StoredTime = 0
    """When the first attempt began."""
    ended: StoredTime = 0
    ticks: StoredCount = 1
    """How many ticks it stands for, of which this is the last: those that were left out together."""

    @property
    def is_open(self) -> bool:
        """Whether the end of its job is not known."""
        return bool(self.job) and not self.end

    @property
    def is_missed(self) -> bool:
        """Whether the tick became no job."""
        return self.end in (LEFT_OUT, REFUSED)


StoredRuns = Annotated[list[ScheduledRun], Meta(max_length=10 * MOST_RUNS)]


def left_out(ticks: Sequence[int]) -> ScheduledRun:
    """The run of ticks, one or more, that nobody makes up for."""
    return ScheduledRun(ticks[-1], end=LEFT_OUT, ticks=len(ticks))


def newest(runs: Sequence[ScheduledRun]) -> list[ScheduledRun]:
    """Those that are kept."""
    return list(runs[-MOST_RUNS:])
