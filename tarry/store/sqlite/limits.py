"""Limits in the embedded store's file, and its open lanes: they are in the table `tarry_lane`."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from tarry.model.job import Job, State
from tarry.model.limit import Level, Limit
from tarry.store.rules.base import band
from tarry.store.rules.lanes import UNTIL_AN_END, decode_limit
from tarry.store.sql.columns import Row
from tarry.store.sql.lane_reader import FoundLane, Lane, LaneRange, TaskLine
from tarry.store.sql.limits import LimitSql, RoomSql, SqlLimits, SqlRooms
from tarry.store.sql.pruning import LanePlace
from tarry.store.sql.transaction import SqlTransaction
from tarry.store.sqlite import sql
from tarry.store.sqlite.link.connection import Statements

_PLACE = "queue, -((claim_order > 0) - (claim_order < 0)), task, lane"
_LIMITED = "EXISTS (SELECT 1 FROM tarry_limit WHERE name = 'each:' || {})"
_ADD = f"""INSERT INTO tarry_lane (queue, band, task, lane) SELECT ?, ?, ?, ? WHERE {_LIMITED.format("?")}
    ON CONFLICT DO NOTHING"""
_ADD_JOBS = f"""INSERT INTO tarry_lane (queue, band, task, lane) SELECT {_PLACE} FROM tarry_job
    WHERE id IN (SELECT value FROM carray(?)) AND state = 1 AND lane IS NOT NULL AND {_LIMITED.format("task")}
    ON CONFLICT DO NOTHING"""
# The same expression as in the index `tarry_laned`, or SQLite would not use it.
_HAS_JOBS = """EXISTS (SELECT 1 FROM tarry_job j INDEXED BY tarry_laned WHERE j.state = 1 AND j.lane IS NOT NULL
    AND j.queue = ?1 AND (j.claim_order > 0) - (j.claim_order < 0) = -?2 AND j.task = ?3 AND j.lane = o.lane)"""
# `x''`: a blob sorts after every text, so a missing last lane is no bound.
_READ = f"""SELECT o.lane, {_HAS_JOBS} FROM tarry_lane o INDEXED BY tarry_open
    WHERE o.again IS NULL AND o.queue = ?1 AND o.band = ?2 AND o.task = ?3
    AND o.lane {{}} ?4 AND o.lane <= ifnull(?5, x'') ORDER BY o.lane LIMIT ?6"""
_NAMED = f"""SELECT o.lane, {_HAS_JOBS} FROM tarry_lane o INDEXED BY tarry_open
    WHERE o.again IS NULL AND o.queue = ?1 AND o.band = ?2 AND o.task = ?3
    AND o.lane IN (SELECT value FROM json_each(?4))"""
# The first stretch includes its start, since jobs without a key wait in a lane whose name is the empty text.
_FIRST, _AFTER = _READ.format(">="), _READ.format(">")
_AT = "WHERE queue = ? AND band = ? AND task = ? AND lane = ?"
_CLOSE = f"UPDATE tarry_lane SET again = ? {_AT}"
# A partial index serves only statements that repeat its condition, `again IS NOT NULL`.
_CLOSED = "tarry_lane INDEXED BY tarry_closed"
_ANY_CLOSED = f"SELECT 1 FROM {_CLOSED} WHERE again IS NOT NULL LIMIT 1"
_REOPEN = f"UPDATE {_CLOSED} SET again = NULL WHERE again IS NOT NULL AND task = ? AND lane = ?"
_RAISE = """INSERT INTO tarry_level (name, running, next) VALUES (?1, ?2, ?3)
    ON CONFLICT (name) DO UPDATE SET running = ?2, next = ?3"""
_DUE = "FROM tarry_lane INDEXED BY tarry_again WHERE again IS NOT NULL AND again <= ? ORDER BY again LIMIT ?"
_REOPEN_DUE = f"""UPDATE tarry_lane SET again = NULL
    WHERE (queue, band, task, lane) IN (SELECT queue, band, task, lane {_DUE})"""


# The write lock of the file is held, so nothing else has to be locked.
_SQL = LimitSql(
    tables="tarry_",
    limits="tarry_limit",
    put="INSERT INTO tarry_limit VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = ?2",
    running="tarry_job j INDEXED BY tarry_running WHERE j.state = 2",
    closed=f"""SELECT DISTINCT o.task, o.lane, ifnull(l.running, 0), nullif(o.again, {UNTIL_AN_END})
        FROM tarry_lane o INDEXED BY tarry_closed
        LEFT JOIN tarry_level l ON l.name = 'each:' || o.task || char(31) || o.lane WHERE o.again IS NOT NULL""",
    next_open=f"""SELECT nullif(min(again), {UNTIL_AN_END}) FROM tarry_lane INDEXED BY tarry_again
        WHERE again IS NOT NULL""",
    move_into_lanes=sql.TASK_INTO_LANES,
    add_lanes=f"""INSERT INTO tarry_lane (queue, band, task, lane) SELECT DISTINCT {_PLACE} FROM tarry_job
        WHERE state = 1 AND lane IS NOT NULL AND task = ?1 ON CONFLICT DO NOTHING""",
    remove_lanes="DELETE FROM tarry_lane WHERE task = ?1",
    reopen_task=(f"UPDATE {_CLOSED} SET again = NULL WHERE again IS NOT NULL AND task = ?1",),
)


class SqliteTransaction(SqlTransaction):
    """A transaction of a connection, of the store or of a caller."""

    def __init__(self, db: Statements) -> None:
        self._db = db

    def rows(self, statement: str, values: Sequence[Any] = ()) -> Sequence[Row]:
        return self._db.execute(statement, tuple(values)).fetchall()

    def each(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        self._db.executemany(statement, [tuple(row) for row in rows])


class SqliteLimits(SqliteTransaction, SqlLimits):
    """The limits and open lanes of one file."""

    sql = _SQL

    def change(self, statement: str, values: Sequence[Any]) -> int:
        return len(self.rows(f"{statement} RETURNING 1", values))

    def named_rows(self, source: str, names: Sequence[str]) -> Sequence[Row]:
        look = f"SELECT {source} WHERE name IN (SELECT value FROM json_each(?))"
        return self.rows(look, (msgspec.json.encode(names).decode(),))

    def set_running(self, counts: Mapping[str, int]) -> None:
        self._db.executemany(sql.RUNNING_NOW, list(counts.items()))

    def set_next(self, levels: Mapping[str, Level]) -> None:
        self.raise_levels(levels)

    def raise_levels(self, levels: Mapping[str, Level]) -> None:
        self._db.executemany(_RAISE, [(name, level.running, level.next) for name, level in sorted(levels.items())])

    def add(self, places: Iterable[LanePlace]) -> None:
        """Adds places where jobs are ready; skips those of tasks without a limit for each key."""
        rows = [(*place, place[2]) for place in sorted(set(places))]
        if rows:
            self._db.executemany(_ADD, rows)

    def add_jobs(self, ids: Any) -> None:
        """Adds the lanes of these jobs, where they are ready. ids: what the connection's `array` made."""
        self._db.execute(_ADD_JOBS, (ids,))

    def open_lanes(self, place: TaskLine, stretch: LaneRange) -> list[FoundLane]:
        """The open lanes of this stretch."""
        statement, after = (_FIRST, "") if stretch.after is None else (_AFTER, stretch.after)
        rows = self._db.execute(statement, (*place, after, stretch.last, stretch.count)).fetchall()
        return [FoundLane(lane, bool(has_jobs)) for lane, has_jobs in rows]

    def named_lanes(self, place: TaskLine, lanes: Sequence[str]) -> list[FoundLane]:
        """Those of these lanes that are open."""
        rows = self._db.execute(_NAMED, (*place, msgspec.json.encode(lanes).decode())).fetchall()
        return [FoundLane(lane, bool(has_jobs)) for lane, has_jobs in rows]

    def close(self, place: TaskLine, lanes: Mapping[str, int | None]) -> None:
        """Closes each lane until its time; None: until an attempt ends."""
        times = ((UNTIL_AN_END if again is None else again, lane) for lane, again in sorted(lanes.items()))
        self._db.executemany(_CLOSE, [(again, *place, lane) for again, lane in times])

    def remove(self, place: TaskLine, lanes: Iterable[str]) -> None:
        """Removes lanes where no job waits any more."""
        self._db.executemany(sql.STATEMENTS.drop_lane, [(*place, lane) for lane in sorted(lanes)])

    def reopen(self, lanes: Collection[Lane]) -> None:
        # Mostly no lane is closed at all.
        if lanes and self._db.execute(_ANY_CLOSED).get:
            self._db.executemany(_REOPEN, sorted(set(lanes)))

    def reopen_some_due(self, now: int, most: int) -> None:
        self._db.execute(_REOPEN_DUE, (now, most))


def ready_lanes(jobs: Iterable[Job]) -> list[LanePlace]:
    """The places in lanes of these new jobs, for those that are ready."""
    ready = [job for job in jobs if job.lane is not None and job.state is State.READY]
    return [(job.queue, band(job.priority), job.task, job.lane or "") for job in ready]


class LazyLimits(Mapping[str, Limit]):
    """The limits that are set, where there are more than a few."""

    # Each limit is read when it is asked for: a claim needs few of perhaps thousands.

    def __init__(self, db: Statements) -> None:
        self._db = db
        self._known: dict[str, Limit | None] = {}

    def __getitem__(self, name: str) -> Limit:
        if name not in self._known:
            value = self._db.execute(sql.LIMIT, (name,)).get
            self._known[name] = None if value is None else decode_limit(value)
        limit = self._known[name]
        if limit is None:
            raise KeyError(name)
        return limit

    def __bool__(self) -> bool:
        # Without this, `if limits` would call `__len__`, which reads all of them.
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(SqliteLimits(self._db).read())

    def __len__(self) -> int:
        return len(SqliteLimits(self._db).read())


class SqliteRooms(SqliteTransaction, SqlRooms):
    """The rooms of queues with a bound, in a transaction that has the write lock."""

    rooms = RoomSql(
        lock="SELECT value FROM tarry_cell WHERE name = ?1",
        save=sql.SET_CELL,
        count=sql.COUNT_WAITING,
        count_key=sql.COUNT_KEY,
    )

    def find_stored(self, ids: Sequence[bytes]) -> Collection[bytes]:
        # One by one: a caller's connection takes no arrays.
        return [id for id in ids if self.rows(sql.IS_STORED, (id,))]
