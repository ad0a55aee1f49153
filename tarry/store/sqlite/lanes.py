"""Limits and lanes of the embedded store. Everything here is done inside the transaction of the call that needs it.

The queues, tasks and keys that have a limit each have a row that says how far it is used: it is raised by the claim and
lowered by the change that ends an attempt, whoever makes it. So nothing is ever counted, and what a dead worker took
is given back with its jobs.
"""

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from tarry.model.change import Change
from tarry.model.job import Job, State
from tarry.model.limit import EACH, QUEUE, TASK, Level, Limit
from tarry.store.base import PROMOTED_AT_ONCE, Want, band
from tarry.store.shared.lanes import (
    Levels,
    counted,
    dealt,
    each,
    earliest,
    is_wrongly_closed,
    laned,
    limit_in,
    limit_of,
    merged,
    miscounted,
)
from tarry.store.sqlite import sql
from tarry.store.sqlite.connection import Statements
from tarry.store.sqlite.database import Database
from tarry.store.sqlite.open_lanes import OpenLanes, Place
from tarry.store.sqlite.open_line import Line, OpenLine, Row, place

EXAMINED, FULL = 1000, 100
"""At most so many lanes of a task are looked at in one claim, of which so many without room: those are closed, which
takes longer. So a claim has a bounded cost."""

TASK_OF, QUEUE_OF, LANE = 2, 4, 15
"""Where these stand in a row of `sqlite.sql.CLAIMED`."""


def placed(jobs: Sequence[Job], limits: Mapping[str, Limit]) -> Sequence[Job]:
    """New jobs, each with the lane that it will wait in."""
    return [replace(job, lane=laned(job.task, job.lane, limits)) for job in jobs] if limits else jobs


def places(jobs: Iterable[Job]) -> list[Place]:
    """Where those of these new jobs wait that have a lane and are ready."""
    ready = [job for job in jobs if job.lane is not None and job.state is State.READY]
    return [(job.queue, band(job.priority), job.task, job.lane or "") for job in ready]


def limits_in(db: Statements) -> dict[str, Limit]:
    """The limits that are set, as the connection sees them."""
    rows = db.execute(sql.LIMITS).fetchall()
    return {name: limit_in(value) for name, value in rows}


class SetLimits(Mapping[str, Limit]):
    """The limits that are set, where there are any; read as they are asked for: of thousands a claim needs a few."""

    def __init__(self, db: Statements) -> None:
        self._db = db
        self._known: dict[str, Limit | None] = {}

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._limit(name) is not None

    def __getitem__(self, name: str) -> Limit:
        limit = self._limit(name)
        if limit is None:
            raise KeyError(name)
        return limit

    def get(self, name: str, default: Any = None) -> Any:
        limit = self._limit(name)
        return default if limit is None else limit

    def _limit(self, name: str) -> Limit | None:
        if name not in self._known:
            value = self._db.execute(sql.LIMIT, (name,)).get
            self._known[name] = None if value is None else limit_in(value)
        return self._known[name]

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(limits_in(self._db))

    def __len__(self) -> int:
        return len(limits_in(self._db))


class SqliteLanes:
    """For one connection; to be used by who holds its lock."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self.limits: Mapping[str, Limit] = {}
        """As of the last `look`."""
        self._levels: dict[str, Level] = {}
        self._changed: set[str] = set()
        self._turns: dict[str, str | None] = {}
        self._turned: set[str] = set()
        self._open = OpenLanes(db)

    def look(self) -> Mapping[str, Limit]:
        """The limits as they are now: they hold to the end of the transaction."""
        self.limits = SetLimits(self._db) if self._db.execute(sql.ANY_LIMIT).get else {}
        return self.limits

    def waiting(self) -> bool:
        """Whether any ready job has a lane."""
        return bool(self._db.execute(sql.ANY_LANED).get)

    def placed(self, jobs: Sequence[Job]) -> Sequence[Job]:
        """New jobs, each with the lane that it will wait in."""
        return placed(jobs, self.look())

    # Claiming

    def chosen(self, wants: Sequence[Want], limit: int, owner: str, now: int) -> tuple[list[Row], int | None]:
        """Up to so many jobs, claimed; with none, when a rate lets start what it held back."""
        self._forget()
        levels = Levels(self.limits, self._levels, now)
        self._open.reopen_due(now, FULL)
        rows: list[Row] = []
        for want, count in [(want, want.count) for want in wants] + [(want, limit) for want in wants]:
            taken = self._take(want, min(count, limit - len(rows)), levels)
            if taken:
                self._db.execute(sql.CLAIM, (owner, now, self._db.array(array("q", [row[0] for row in taken]))))
                self._start(taken, now)
                rows += taken
        self._save(now)
        return rows, None if rows else self._again(levels, now)

    def _again(self, levels: Levels, now: int) -> int | None:
        """When a rate allows something; 0: not all was looked at, so it is worth coming again at once."""
        first = self._open.next_time()
        return earliest(levels.again, 0 if first is not None and first <= now else first)

    def _take(self, want: Want, count: int, levels: Levels) -> list[Row]:
        if count <= 0:
            return []
        tasks, open_line = list(self._tasks(want)), OpenLine(self._db, want)
        if not tasks and not open_line.any():
            return []
        most = self._room(levels, QUEUE + want.queue, count)
        lines = [*open_line.lines(most), *(self._dealt(want, task, most, levels) for task in tasks)]
        return merged(lines, most)

    def _tasks(self, want: Want) -> Iterator[str]:
        """The tasks that have jobs with lanes there, by name."""
        task = ""
        while (task := self._db.execute(sql.NEXT_TASK, (want.queue, -want.band, task)).get) is not None:
            yield task

    def _dealt(self, want: Want, task: str, most: int, levels: Levels) -> Line:
        most = self._room(levels, TASK + task, most)
        if not most:
            return []
        lanes = self._lanes(want, task, most, levels)
        if not lanes:
            return []
        fair = -(-most // len(lanes))
        lines = [self._line(want, task, lane, min(room, fair)) for lane, room in lanes]
        if sum(map(len, lines)) < most:
            # Some gave less than their part: what they leave is the others'.
            again = zip(lines, lanes, strict=True)
            lines = [self._line(want, task, *lane) if len(line) == fair else line for line, lane in again]
        return dealt(lines, most)

    def _lanes(self, want: Want, task: str, most: int, levels: Levels) -> list[tuple[str, int]]:
        """Lanes with room, and how much, beginning after the one served last."""
        found: list[tuple[str, int]] = []
        full = 0
        for number, lane in enumerate(self._circle(want, task, self._turn(task))):
            if number == EXAMINED or full == FULL:
                levels.again = 0
                break
            room = self._room(levels, each(task, lane), most)
            if self._gives(want, task, lane, room, levels):
                found.append((lane, room))
            else:
                full += 1
            if len(found) == most:
                break
        return found

    def _gives(self, want: Want, task: str, lane: str, room: int, levels: Levels) -> bool:
        """Whether jobs of that lane may start; if not, no claim looks at it until that may be otherwise."""
        limit = self.limits.get(EACH + task)
        if limit is None:
            return True
        place = (want.queue, want.band, task, lane)
        if not self._db.execute(sql.ANY_IN_LANE, (want.queue, -want.band, task, lane)).get:
            self._open.forget(place)
            return False
        if not room:
            self._open.close(place, self._level(each(task, lane)).again(limit, levels.now))
        return room > 0

    def _circle(self, want: Want, task: str, turn: str | None) -> Iterator[str]:
        lane = self._after(want, task, turn)
        while lane is not None:
            yield lane
            lane = self._after(want, task, lane)
        if turn is None:
            return
        lane = self._after(want, task, None)
        while lane is not None and lane <= turn:
            yield lane
            lane = self._after(want, task, lane)

    def _after(self, want: Want, task: str, lane: str | None) -> str | None:
        """The next lane by name; None as `lane`: the first."""
        if EACH + task in self.limits:
            return self._open.after(want.queue, want.band, task, lane)
        place = (want.queue, -want.band, task)
        statement, values = (sql.FIRST_LANE, place) if lane is None else (sql.NEXT_LANE, (*place, lane))
        following: str | None = self._db.execute(statement, values).get
        return following

    def _line(self, want: Want, task: str, lane: str, most: int) -> Line:
        rows = self._rows(sql.LANE, (want.queue, -want.band, task, lane, most))
        return [(place(row, bool(row[-1])), row[:-1]) for row in rows]

    def _start(self, rows: Sequence[Row], now: int) -> None:
        jobs = [(row[QUEUE_OF], row[TASK_OF], row[LANE]) for row in rows]
        for name, count in counted(jobs, self.limits).items():
            self._levels[name] = self._level(name).started(self.limits[limit_of(name)], count, now)
            self._changed.add(name)
        for _, task, lane in jobs:
            if lane is not None:
                self._turns[task] = lane
                self._turned.add(task)

    # Coming to wait

    def promote(self, now: int) -> None:
        """Scheduled jobs that are due become ready."""
        if not self.limits:
            self._db.execute(sql.PROMOTE, (now, PROMOTED_AT_ONCE))
            return
        rows = self._rows(sql.PROMOTED, (now, PROMOTED_AT_ONCE))
        self._open.add((queue, band(-rank), task, lane) for queue, rank, task, lane in rows if lane is not None)

    def returned(self, ids: Sequence[bytes]) -> None:
        """Changes were made that let these wait."""
        if ids:
            self._open.add_jobs(self._db.array(tuple(ids)))

    # How far the limits are used

    def running(self, changes: Sequence[Change]) -> dict[bytes, Row]:
        """What counts for the limits, of those of the jobs that run: queue, task, lane."""
        ids = tuple(change.id for change in changes if change.was is State.RUNNING)
        rows = self._rows(sql.COUNTED, (self._db.array(ids),)) if ids else []
        return {row[0]: row[1:] for row in rows}

    def ended(self, jobs: Sequence[Row], now: int) -> None:
        """These no longer run."""
        self._forget()
        for name, count in counted([(queue, task, lane) for queue, task, lane in jobs], self.limits).items():
            self._levels[name] = self._level(name).ended(count)
            self._changed.add(name)
        self._save(now)
        self._open.reopen((task, lane) for _, task, lane in jobs if lane is not None and EACH + task in self.limits)

    def _room(self, levels: Levels, name: str, most: int) -> int:
        if limit_of(name) in self.limits:
            self._level(name)
        return levels.room(name, most)

    def _level(self, name: str) -> Level:
        if name not in self._levels:
            row = self._rows("SELECT running, next FROM tarry_level WHERE name = ?", (name,))
            self._levels[name] = Level(*row[0]) if row else Level()
        return self._levels[name]

    def _turn(self, task: str) -> str | None:
        if task not in self._turns:
            self._turns[task] = self._db.execute("SELECT turn FROM tarry_level WHERE name = ?", (TASK + task,)).get
        return self._turns[task]

    def _forget(self) -> None:
        self._levels, self._turns = {}, {}
        self._changed, self._turned = set(), set()

    def _save(self, now: int) -> None:
        """Writes what has changed; a key that is as good as never used leaves nothing behind."""
        for name in sorted(self._changed):
            level = self._levels[name]
            if name.startswith(EACH) and level.idle(now):
                self._db.execute("DELETE FROM tarry_level WHERE name = ?", (name,))
            else:
                self._db.execute(sql.LEVEL, (name, level.running, level.next))
        for task in sorted(self._turned):
            self._db.execute(sql.TURN, (TASK + task, self._turns[task]))

    # Setting limits

    def set(self, name: str, limit: Limit | None) -> None:
        """Sets or lifts one, and counts what runs now."""
        known = name in self.look()
        kind, _, which = name.partition(":")
        if kind + ":" == EACH:
            self._open.forget_task(which) if limit is None else self._open.reopen_task(which)
        if limit is None:
            self._db.execute("DELETE FROM tarry_limit WHERE name = ?", (name,))
        else:
            self._db.execute(sql.SET_LIMIT, (name, msgspec.json.encode(limit)))
        if known and limit is not None:
            # What runs is counted, and jobs have lanes, since it is there: nobody has to look through all of them.
            self.look()
            return
        self._db.execute(sql.UNUSED, (name, limit is None))
        self.look()
        if limit is None:
            return
        if kind + ":" != QUEUE:
            self._db.execute("UPDATE tarry_job SET lane = '' WHERE task = ? AND lane IS NULL AND state < 3", (which,))
            if EACH + which in self.limits:
                self._open.add_task(which)
        running = self._rows(sql.RUNNING_BY[kind + ":" == QUEUE], (which,))
        for level, count in counted([(queue, task, lane) for queue, task, lane in running], {name: limit}).items():
            self._db.execute(sql.RUNNING_NOW, (level, count))

    def all(self) -> dict[str, tuple[Limit, Level]]:
        """Limits and levels, by name."""
        rows = self._rows(sql.LIMITS_AND_LEVELS)
        return {name: (limit_in(value), Level(*level)) for name, value, *level in rows}

    def miscounted(self) -> dict[str, int]:
        """The levels that are wrong, and what they have to say."""
        limits = limits_in(self._db)
        levels = self._rows("SELECT name, running FROM tarry_level") if limits else []
        return miscounted(self._rows(sql.ALL_RUNNING), limits, dict(levels)) if limits else {}

    def wrongly_closed(self, now: int) -> list[tuple[str, str]]:
        """Task and lane of those that need not be closed."""
        limits = self.look()
        self._forget()
        return [
            (task, lane)
            for task, lane, again in self._open.closed()
            if is_wrongly_closed(limits.get(EACH + task), self._level(each(task, lane)).running, again, now)
        ]

    def recount(self, now: int) -> int:
        """Puts right both; answers how many levels were wrong."""
        wrong = self.miscounted()
        for level in wrong.items():
            self._db.execute(sql.RUNNING_NOW, level)
        self._open.reopen(self.wrongly_closed(now))
        return len(wrong)

    def _rows(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        return self._db.execute(statement, tuple(values)).fetchall()
