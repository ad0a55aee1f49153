"""The open lanes of tasks with a limit for each key: a claim looks at these only.

Such a lane is in the table `tarry_lane` as soon as a job waits in it. A claim that finds it full closes it; one that
takes its last job removes it, as does the keeper where the last job was taken away. It opens when one of its attempts
ends, when its rate allows a start, and when its limit changes. So thousands of full lanes cost a claim nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tarry.store.sql.lane_reader import FoundLane, Lane, LaneRange, TaskLine
from tarry.store.sql.pruning import LanePlace
from tarry.store.sqlite import sql
from tarry.store.sqlite.link.connection import Statements

# A time that never comes, instead of NULL: NULL in `again` says that the lane is open.
UNTIL_AN_END = 2**62
_PLACE = "queue, -((claim_order > 0) - (claim_order < 0)), task, lane"
_LIMITED = "EXISTS (SELECT 1 FROM tarry_limit WHERE name = 'each:' || {})"
_ADD = f"""INSERT INTO tarry_lane (queue, band, task, lane) SELECT ?, ?, ?, ? WHERE {_LIMITED.format("?")}
    ON CONFLICT DO NOTHING"""
_ADD_JOBS = f"""INSERT INTO tarry_lane (queue, band, task, lane) SELECT {_PLACE} FROM tarry_job
    WHERE id IN (SELECT value FROM carray(?)) AND state = 1 AND lane IS NOT NULL AND {_LIMITED.format("task")}
    ON CONFLICT DO NOTHING"""
_ADD_TASK = f"""INSERT INTO tarry_lane (queue, band, task, lane) SELECT DISTINCT {_PLACE} FROM tarry_job
    WHERE state = 1 AND lane IS NOT NULL AND task = ? ON CONFLICT DO NOTHING"""
# The same expression as in the index `tarry_laned`, or SQLite would not use it.
_HAS_JOBS = """EXISTS (SELECT 1 FROM tarry_job j INDEXED BY tarry_laned WHERE j.state = 1 AND j.lane IS NOT NULL
    AND j.queue = ?1 AND (j.claim_order > 0) - (j.claim_order < 0) = -?2 AND j.task = ?3 AND j.lane = o.lane)"""
# `x''`: a blob sorts after every text, so a missing last lane is no bound.
_READ = f"""SELECT o.lane, {_HAS_JOBS} FROM tarry_lane o INDEXED BY tarry_open
    WHERE o.again IS NULL AND o.queue = ?1 AND o.band = ?2 AND o.task = ?3
    AND o.lane {{}} ?4 AND o.lane <= ifnull(?5, x'') ORDER BY o.lane LIMIT ?6"""
# The first stretch includes its start, since jobs without a key wait in a lane whose name is the empty text.
_FIRST, _AFTER = _READ.format(">="), _READ.format(">")
_AT = "WHERE queue = ? AND band = ? AND task = ? AND lane = ?"
_CLOSE = f"UPDATE tarry_lane SET again = ? {_AT}"
# A partial index serves only statements that repeat its condition, `again IS NOT NULL`.
_CLOSED = "tarry_lane INDEXED BY tarry_closed"
_REOPEN = f"UPDATE {_CLOSED} SET again = NULL WHERE again IS NOT NULL AND task = ? AND lane = ?"
_REOPEN_TASK = f"UPDATE {_CLOSED} SET again = NULL WHERE again IS NOT NULL AND task = ?"
_CLOSED_NOW = f"SELECT DISTINCT task, lane, nullif(again, {UNTIL_AN_END}) FROM {_CLOSED} WHERE again IS NOT NULL"
_DUE = "FROM tarry_lane INDEXED BY tarry_again WHERE again IS NOT NULL AND again <= ? ORDER BY again LIMIT ?"
_REOPEN_DUE = f"""UPDATE tarry_lane SET again = NULL
    WHERE (queue, band, task, lane) IN (SELECT queue, band, task, lane {_DUE})"""
_NEXT_TIME = "SELECT min(again) FROM tarry_lane INDEXED BY tarry_again WHERE again IS NOT NULL"


class OpenLanes:
    """The lanes of one file. Each method works within a transaction of its caller."""

    def __init__(self, db: Statements) -> None:
        self._db = db

    def add(self, places: Iterable[LanePlace]) -> None:
        """Adds places where jobs are ready; skips those of tasks without a limit for each key."""
        rows = [(*place, place[2]) for place in sorted(set(places))]
        if rows:
            self._db.executemany(_ADD, rows)

    def add_jobs(self, ids: Any) -> None:
        """Adds the lanes of these jobs, where they are ready. ids: what the connection's `array` made."""
        self._db.execute(_ADD_JOBS, (ids,))

    def add_task(self, task: str) -> None:
        """Adds all lanes where jobs of that task are ready: it has a limit for each key now."""
        self._db.execute(_ADD_TASK, (task,))

    def read(self, place: TaskLine, stretch: LaneRange) -> list[FoundLane]:
        """The open lanes of this stretch."""
        statement, after = (_FIRST, "") if stretch.after is None else (_AFTER, stretch.after)
        rows = self._db.execute(statement, (*place, after, stretch.last, stretch.count)).fetchall()
        return [FoundLane(lane, bool(has_jobs)) for lane, has_jobs in rows]

    def close(self, place: TaskLine, lanes: Mapping[str, int | None]) -> None:
        """Closes each lane until its time; None: until an attempt ends."""
        times = ((UNTIL_AN_END if again is None else again, lane) for lane, again in sorted(lanes.items()))
        self._db.executemany(_CLOSE, [(again, *place, lane) for again, lane in times])

    def remove(self, place: TaskLine, lanes: Iterable[str]) -> None:
        """Removes lanes where no job waits any more."""
        self._db.executemany(sql.STATEMENTS.drop_lane, [(*place, lane) for lane in sorted(lanes)])

    def remove_task(self, task: str) -> None:
        """Removes all lanes of a task: it has no limit for each key any more."""
        self._db.execute("DELETE FROM tarry_lane WHERE task = ?", (task,))

    def reopen(self, lanes: Iterable[Lane]) -> None:
        """Opens these lanes, in all queues and bands."""
        rows = sorted(set(lanes))
        if rows:
            self._db.executemany(_REOPEN, rows)

    def reopen_task(self, task: str) -> None:
        """Opens all lanes of a task."""
        self._db.execute(_REOPEN_TASK, (task,))

    def reopen_due(self, now: int, most: int) -> int | None:
        """Opens up to so many lanes whose time has come; answers when the next opens, 0 if its time has come too."""
        first = self._next_time()
        # Most claims end here, without a write.
        if first is None or first > now:
            return first
        self._db.execute(_REOPEN_DUE, (now, most))
        first = self._next_time()
        return 0 if first is not None and first <= now else first

    def _next_time(self) -> int | None:
        time: int | None = self._db.execute(_NEXT_TIME).get
        return None if time == UNTIL_AN_END else time

    def closed_lanes(self) -> Sequence[tuple[Any, ...]]:
        """Task and lane of each closed lane, and until when it is closed; None: until an attempt ends."""
        return self._db.execute(_CLOSED_NOW).fetchall()
