"""Limits and lanes of the embedded store. Everything here is done inside the transaction of the call that needs it.

The queues, tasks and keys that have a limit each have a row that says how far it is used: it is raised by the claim and
lowered by the change that ends an attempt, whoever makes it. So nothing is ever counted, and what a dead worker took
is given back with its jobs.
"""

from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from tarry.model.change import Change
from tarry.model.job import Job, State
from tarry.model.limit import EACH, QUEUE, TASK, Level, Limit
from tarry.store.base import Want
from tarry.store.lanes import Levels, counted, dealt, each, laned, limit_in, limit_of, merged
from tarry.store.sqlite import sql
from tarry.store.sqlite.connection import Database, Statements

Row = tuple[Any, ...]
Placed = tuple[tuple[int, int], Row]
EXAMINED = 1000
"""At most so many lanes of a task are looked at in one claim, so that a claim has a bounded cost."""

ID, TASK_OF, QUEUE_OF, PRIORITY, DUE, LANE = 1, 2, 4, 5, 6, 15
"""Where these stand in a row of `sqlite.sql.CLAIMED`."""


def placed(jobs: Sequence[Job], limits: Mapping[str, Limit]) -> Sequence[Job]:
    """New jobs, each with the lane that it will wait in."""
    return [replace(job, lane=laned(job.task, job.lane, limits)) for job in jobs] if limits else jobs


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
        self._turns: dict[str, str | None] = {}

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
        self._levels, self._turns = {}, {}
        levels = Levels(self.limits, self._levels, now)
        rows: list[Row] = []
        for want, count in [(want, want.count) for want in wants] + [(want, limit) for want in wants]:
            taken = self._take(want, min(count, limit - len(rows)), levels)
            if taken:
                self._db.execute(sql.CLAIM, (owner, now, self._db.array(array("q", [row[0] for row in taken]))))
                self._start(taken, now)
                rows += taken
        self._save(now)
        return rows, None if rows else levels.again

    def _take(self, want: Want, count: int, levels: Levels) -> list[Row]:
        if count <= 0:
            return []
        tasks = list(self._tasks(want))
        if not tasks and not self._db.execute(sql.ANY_READY[want.band], (want.queue,)).get:
            return []
        most = self._room(levels, QUEUE + want.queue, count)
        open_line = self._rows(sql.READY[want.band], (want.queue, most, 0))
        lines = [open_line, *(self._dealt(want, task, most, levels) for task in tasks)]
        return merged([[((-row[PRIORITY], row[DUE]), row) for row in line] for line in lines], most)

    def _tasks(self, want: Want) -> Iterator[str]:
        """The tasks that have jobs with lanes there, by name."""
        task = ""
        while (task := self._db.execute(sql.NEXT_TASK, (want.queue, -want.band, task)).get) is not None:
            yield task

    def _dealt(self, want: Want, task: str, most: int, levels: Levels) -> list[Row]:
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
        for number, lane in enumerate(self._circle(want, task, self._turn(task))):
            if number == EXAMINED:
                # Not all were looked at, so it may be worth coming again at once; then the next ones have their turn.
                levels.again, self._turns[task] = 0, lane
                break
            if room := self._room(levels, each(task, lane), most):
                found.append((lane, room))
            if len(found) == most:
                break
        return found

    def _circle(self, want: Want, task: str, turn: str | None) -> Iterator[str]:
        place = (want.queue, -want.band, task)
        lane = self._db.execute(sql.FIRST_LANE, place).get if turn is None else self._after(place, turn)
        while lane is not None:
            yield lane
            lane = self._after(place, lane)
        if turn is None:
            return
        lane = self._db.execute(sql.FIRST_LANE, place).get
        while lane is not None and lane <= turn:
            yield lane
            lane = self._after(place, lane)

    def _after(self, place: tuple[str, int, str], lane: str) -> str | None:
        following: str | None = self._db.execute(sql.NEXT_LANE, (*place, lane)).get
        return following

    def _line(self, want: Want, task: str, lane: str, most: int) -> list[Row]:
        return self._rows(sql.LANE, (want.queue, -want.band, task, lane, most))

    def _start(self, rows: Sequence[Row], now: int) -> None:
        jobs = [(row[QUEUE_OF], row[TASK_OF], row[LANE]) for row in rows]
        for name, count in counted(jobs, self.limits).items():
            self._levels[name] = self._level(name).started(self.limits[limit_of(name)], count, now)
        for _, task, lane in jobs:
            if lane is not None:
                self._turns[task] = lane

    # How far the limits are used

    def running(self, changes: Sequence[Change]) -> dict[bytes, Row]:
        """What counts for the limits, of those of the jobs that run: queue, task, lane."""
        ids = tuple(change.id for change in changes if change.was is State.RUNNING)
        rows = self._rows(sql.COUNTED, (self._db.array(ids),)) if ids else []
        return {row[0]: row[1:] for row in rows}

    def ended(self, jobs: Sequence[Row], now: int) -> None:
        """These no longer run."""
        self._levels, self._turns = {}, {}
        for name, count in counted([(queue, task, lane) for queue, task, lane in jobs], self.limits).items():
            self._levels[name] = self._level(name).ended(count)
        self._save(now)

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

    def _save(self, now: int) -> None:
        """Writes what was read and may have changed; a key that is as good as never used leaves nothing behind."""
        for name, level in self._levels.items():
            if name.startswith(EACH) and level.idle(now):
                self._db.execute("DELETE FROM tarry_level WHERE name = ?", (name,))
            else:
                self._db.execute(sql.LEVEL, (name, level.running, level.next))
        for task, turn in self._turns.items():
            self._db.execute(sql.TURN, (TASK + task, turn))

    # Setting limits

    def set(self, name: str, limit: Limit | None) -> None:
        """Sets or lifts one, and counts what runs now."""
        known = name in self.look()
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
        kind, _, which = name.partition(":")
        if kind + ":" != QUEUE:
            self._db.execute("UPDATE tarry_job SET lane = '' WHERE task = ? AND lane IS NULL AND state < 3", (which,))
        running = self._rows(sql.RUNNING_BY[kind + ":" == QUEUE], (which,))
        for level, count in counted([(queue, task, lane) for queue, task, lane in running], {name: limit}).items():
            self._db.execute(sql.RUNNING_NOW, (level, count))

    def all(self) -> dict[str, tuple[Limit, Level]]:
        """Limits and levels, by name."""
        rows = self._rows(sql.LIMITS_AND_LEVELS)
        return {name: (limit_in(value), Level(*level)) for name, value, *level in rows}

    def prune(self, now: int) -> None:
        """Drops the levels of keys that are not used any more."""
        self._db.execute(sql.IDLE_LEVELS, (now,))

    def _rows(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        return self._db.execute(statement, tuple(values)).fetchall()
