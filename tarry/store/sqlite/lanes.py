"""Limits and lanes of the embedded store. Every function works within the transaction of the call that needs it.

Each queue, task and key with a limit has a row that says how far the limit is used, its level. A claim raises it, and
the change that ends an attempt lowers it, in any process.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from tarry.model.change import Change
from tarry.model.job import Job, State
from tarry.model.limit import EACH, QUEUE, Level, Limit
from tarry.store.rules import kept_places
from tarry.store.rules.base import PROMOTED_AT_ONCE, Want, band
from tarry.store.rules.kept_places import KeptPlace
from tarry.store.rules.lanes import (
    JobKey,
    assign_lanes,
    count_by_level,
    decode_limit,
    is_wrongly_closed,
    lane_level,
    wrong_levels,
)
from tarry.store.sql.columns import Row
from tarry.store.sql.lane_claim import claim_in_lanes
from tarry.store.sql.lane_reader import Lane
from tarry.store.sql.prefix import prefix_end
from tarry.store.sql.pruning import LanePlace
from tarry.store.sqlite import sql
from tarry.store.sqlite.lane_reader import SqliteLaneReader
from tarry.store.sqlite.levels import LevelTable
from tarry.store.sqlite.link.connection import Statements
from tarry.store.sqlite.link.database import Database
from tarry.store.sqlite.open_lanes import OpenLanes


def ready_lanes(jobs: Iterable[Job]) -> list[LanePlace]:
    """The places in lanes of these new jobs, for those that are ready."""
    ready = [job for job in jobs if job.lane is not None and job.state is State.READY]
    return [(job.queue, band(job.priority), job.task, job.lane or "") for job in ready]


def read_limits(db: Statements) -> dict[str, Limit]:
    """The limits that are set, as the connection sees them."""
    rows = db.execute(sql.LIMITS).fetchall()
    return {name: decode_limit(value) for name, value in rows}


_FEW = 20
"""So many limits are read at once, with their levels."""


class LazyLimits(Mapping[str, Limit]):
    """The limits that are set, where there are more than a few."""

    # Each limit is read when it is asked for: a claim needs few of perhaps thousands.

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
            self._known[name] = None if value is None else decode_limit(value)
        return self._known[name]

    def __bool__(self) -> bool:
        # Without this, `if limits` would call `__len__`, which reads all of them.
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(read_limits(self._db))

    def __len__(self) -> int:
        return len(read_limits(self._db))


class SqliteLanes:
    """The limits and lanes of one connection; the caller holds the connection's lock."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self.limits: Mapping[str, Limit] = {}
        """As of the last `load_limits`."""
        self._levels = LevelTable(db, {})
        self._open = OpenLanes(db)

    def load_limits(self) -> Mapping[str, Limit]:
        """The limits as they are now; valid to the end of the transaction, as are the levels."""
        rows = self._rows(sql.FEW_LIMITS, (_FEW + 1,))
        few = rows if len(rows) <= _FEW else []
        # An empty dict lets a claim without limits take the short way, at the price of one look.
        self.limits = LazyLimits(self._db) if rows and not few else {name: decode_limit(row[0]) for name, *row in few}
        known = {name: (Level(*row[1:3]), row[3]) if row[1] is not None else None for name, *row in few}
        self._levels = LevelTable(self._db, known)
        return self.limits

    def has_jobs(self) -> bool:
        """Whether any ready job has a lane."""
        return bool(self._db.execute(sql.ANY_LANED).get)

    def assign_lanes(self, jobs: Sequence[Job]) -> Sequence[Job]:
        """New jobs, each with the lane that it will wait in."""
        return assign_lanes(jobs, self.load_limits())

    # Claiming

    def claim(self, wants: Sequence[Want], limit: int, owner: str, now: int) -> tuple[list[Row], int | None]:
        """Claims up to so many jobs; if there are none, also answers when a rate allows a start."""
        reader = SqliteLaneReader(self._db, self.limits, self._levels, owner, now)
        again = claim_in_lanes(reader, wants, limit, now)
        return reader.claimed, again

    # Coming to wait

    def promote(self, now: int) -> None:
        """Scheduled jobs that are due become ready."""
        # Without limits no lane has to be opened, so the rows need not come back.
        if not self.limits:
            self._db.execute(sql.PROMOTE, (now, PROMOTED_AT_ONCE))
            return
        rows = self._rows(sql.PROMOTED, (now, PROMOTED_AT_ONCE))
        self._open.add((queue, band(-order), task, lane) for queue, order, task, lane in rows if lane is not None)

    def open_lanes_of(self, ids: Sequence[bytes]) -> None:
        """Adds the lanes of these jobs, which are ready after a change."""
        if ids:
            self._open.add_jobs(self._db.array(tuple(ids)))

    # How far the limits are used

    # A level is a row that a claim and an end keep up to date. So a claim never has to count running jobs, and what a
    # dead worker took comes back with its jobs.

    def running_keys(self, changes: Sequence[Change]) -> dict[bytes, JobKey]:
        """Queue, task and lane of the jobs that run, by id: what counts for the limits."""
        ids = tuple(change.id for change in changes if change.was is State.RUNNING)
        rows = self._rows(sql.COUNTED, (self._db.array(ids),)) if ids else []
        return {id: (queue, task, lane) for id, queue, task, lane in rows}

    def lower_levels(self, jobs: Sequence[JobKey]) -> None:
        """Lowers the levels of these jobs, which no longer run, and opens their lanes."""
        counts = count_by_level(jobs, self.limits)
        levels = self._levels.levels(counts)
        self._levels.set_levels({name: levels[name].ended(count) for name, count in counts.items()})
        lanes = {(task, lane) for _, task, lane in jobs if lane is not None}
        self._open.reopen((task, lane) for task, lane in lanes if EACH + task in self.limits)

    def keep_places(self, ended: Sequence[tuple[Change, JobKey]], now: int) -> None:
        """Keeps what levels count of these attempts, which go on."""
        for change, key in ended:
            if count_by_level([key], self.limits):
                until = self._db.execute(sql.LEASED_UNTIL, (change.owner,)).get
                place = KeptPlace(now if until is None else until, *key)
                self._db.execute(sql.SET_CELL, (kept_places.name_for(change), place.encode()))

    def free_places(self, names: Sequence[str]) -> None:
        """Lowers the levels by kept places of these names, as far as there are any, and removes them."""
        if names:
            rows = self._rows(sql.REMOVE_CELLS, (msgspec.json.encode(names).decode(),))
            self.lower_levels(kept_places.job_keys(value for (value,) in rows))

    def _counted(self, statement: str, values: Sequence[Any] = ()) -> list[JobKey]:
        """What levels count: the running jobs that a statement finds, and all kept places."""
        kept = self._rows(sql.CELLS_BETWEEN, (kept_places.PREFIX, prefix_end(kept_places.PREFIX)))
        return [*self._rows(statement, values), *kept_places.job_keys(value for (value,) in kept)]

    def save_levels(self, now: int) -> None:
        """Writes the levels that this transaction has changed."""
        self._levels.save(now)

    @property
    def has_made_room(self) -> bool:
        """Whether, under a limit, more jobs may start than before this transaction."""
        return self._levels.is_lower

    # Setting limits

    def set_limit(self, name: str, limit: Limit | None) -> None:
        """Sets or lifts a limit, and counts the running jobs."""
        was_set = name in self.load_limits()
        kind, _, which = name.partition(":")
        if kind + ":" == EACH:
            self._open.remove_task(which) if limit is None else self._open.reopen_task(which)
        if limit is None:
            self._db.execute("DELETE FROM tarry_limit WHERE name = ?", (name,))
        else:
            self._db.execute(sql.SET_LIMIT, (name, msgspec.json.encode(limit)))
        # A limit that was set before needs no pass over the jobs: running ones are counted, waiting ones have lanes.
        if not was_set or limit is None:
            self._db.execute(sql.UNUSED, (name, limit is None))
        self.load_limits()
        if limit is not None and not was_set:
            self._assign_lanes_to_all(name)
            self._count_running(name, limit)

    def _assign_lanes_to_all(self, name: str) -> None:
        kind, _, task = name.partition(":")
        # Lanes belong to tasks: a queue's limit holds for jobs in the open line too.
        if kind + ":" == QUEUE:
            return
        for statement in sql.TASK_INTO_LANES:
            self._db.execute(statement, (task,))
        if EACH + task in self.limits:
            self._open.add_task(task)

    def _count_running(self, name: str, limit: Limit) -> None:
        kind, _, which = name.partition(":")
        counted = self._counted(sql.RUNNING_BY[kind + ":" == QUEUE], (which,))
        for level in count_by_level(counted, {name: limit}).items():
            self._db.execute(sql.RUNNING_NOW, level)

    def all_limits(self) -> dict[str, tuple[Limit, Level]]:
        """Limits and levels, by name."""
        rows = self._rows(sql.LIMITS_AND_LEVELS)
        return {name: (decode_limit(value), Level(*level)) for name, value, *level in rows}

    def wrong_levels(self) -> dict[str, int]:
        """How many jobs really run, for each level that says otherwise."""
        limits = read_limits(self._db)
        levels = self._rows("SELECT name, running FROM tarry_level") if limits else []
        return wrong_levels(self._counted(sql.ALL_RUNNING), limits, dict(levels)) if limits else {}

    def find_wrongly_closed(self, now: int) -> list[Lane]:
        """The lanes that are closed and need not be."""
        limits, closed = self.load_limits(), self._open.closed_lanes()
        levels = self._levels.levels(lane_level(task, lane) for task, lane, _ in closed)
        return [
            (task, lane)
            for task, lane, again in closed
            if is_wrongly_closed(limits.get(EACH + task), levels[lane_level(task, lane)].running, again, now)
        ]

    def recount(self, now: int) -> int:
        """Corrects levels and opens lanes that need not be closed; answers how many levels were wrong."""
        wrong = self.wrong_levels()
        for level in wrong.items():
            self._db.execute(sql.RUNNING_NOW, level)
        self._open.reopen(self.find_wrongly_closed(now))
        return len(wrong)

    def _rows(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        return self._db.execute(statement, tuple(values)).fetchall()
