"""Which lanes of tasks with a limit for each key may give something: a claim looks at these only.

Such a lane is in the table `tarry_lane` from when a job waits in it. A claim that finds it full closes it, and one that
finds it empty forgets it. It is opened when one of its attempts ends, when its rate allows a start, and when its limit
changes. So thousands of full lanes cost a claim nothing.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from tarry.store.sqlite.connection import Statements

Place = tuple[str, int, str, str]
"""Where a lane waits: queue, band, task, lane. band: as in `store.base`."""
UNTIL_AN_END = 2**62
_PLACE = "queue, -((rank > 0) - (rank < 0)), task, lane"
_LIMITED = "EXISTS (SELECT 1 FROM tarry_limit WHERE name = 'each:' || {})"
_ADD = f"""INSERT INTO tarry_lane (queue, band, task, lane) SELECT ?, ?, ?, ? WHERE {_LIMITED.format("?")}
    ON CONFLICT DO NOTHING"""
_ADD_JOBS = f"""INSERT INTO tarry_lane (queue, band, task, lane) SELECT {_PLACE} FROM tarry_job
    WHERE id IN (SELECT value FROM carray(?)) AND state = 1 AND lane IS NOT NULL AND {_LIMITED.format("task")}
    ON CONFLICT DO NOTHING"""
_ADD_TASK = f"""INSERT INTO tarry_lane (queue, band, task, lane) SELECT DISTINCT {_PLACE} FROM tarry_job
    WHERE state = 1 AND lane IS NOT NULL AND task = ? ON CONFLICT DO NOTHING"""
_OPEN = """FROM tarry_lane INDEXED BY tarry_open WHERE again IS NULL AND queue = ? AND band = ? AND task = ?"""
_FIRST = f"SELECT lane {_OPEN} ORDER BY lane LIMIT 1"
_NEXT = f"SELECT lane {_OPEN} AND lane > ? ORDER BY lane LIMIT 1"
_AT = "WHERE queue = ? AND band = ? AND task = ? AND lane = ?"
_CLOSE = f"UPDATE tarry_lane SET again = ? {_AT}"
_FORGET = f"DELETE FROM tarry_lane {_AT}"
_CLOSED = "tarry_lane INDEXED BY tarry_closed"
_REOPEN = f"UPDATE {_CLOSED} SET again = NULL WHERE again IS NOT NULL AND task = ? AND lane = ?"
_REOPEN_TASK = f"UPDATE {_CLOSED} SET again = NULL WHERE again IS NOT NULL AND task = ?"
_CLOSED_NOW = f"SELECT DISTINCT task, lane, nullif(again, {UNTIL_AN_END}) FROM {_CLOSED} WHERE again IS NOT NULL"
_DUE = "FROM tarry_lane INDEXED BY tarry_again WHERE again IS NOT NULL AND again <= ? ORDER BY again LIMIT ?"
_REOPEN_DUE = f"""UPDATE tarry_lane SET again = NULL
    WHERE (queue, band, task, lane) IN (SELECT queue, band, task, lane {_DUE})"""
_NEXT_TIME = "SELECT min(again) FROM tarry_lane INDEXED BY tarry_again WHERE again IS NOT NULL"


class OpenLanes:
    """The lanes of one file; everything is done inside the transaction of the call that needs it."""

    def __init__(self, db: Statements) -> None:
        self._db = db

    def add(self, places: Iterable[Place]) -> None:
        """Jobs are ready there. Those of tasks without a limit for each key are passed over."""
        rows = [(*place, place[2]) for place in sorted(set(places))]
        if rows:
            self._db.executemany(_ADD, rows)

    def add_jobs(self, ids: Any) -> None:
        """Those of these jobs that are ready have come to where they wait. ids: an array of the connection's."""
        self._db.execute(_ADD_JOBS, (ids,))

    def add_task(self, task: str) -> None:
        """All where jobs of that task are ready, now that it has a limit for each key."""
        self._db.execute(_ADD_TASK, (task,))

    def after(self, queue: str, band: int, task: str, lane: str | None) -> str | None:
        """The next open lane by name; None as `lane`: the first."""
        place = (queue, band, task)
        found = self._db.execute(_FIRST, place) if lane is None else self._db.execute(_NEXT, (*place, lane))
        following: str | None = found.get
        return following

    def close(self, place: Place, again: int | None) -> None:
        """Until that time, or until it is opened."""
        self._db.execute(_CLOSE, (UNTIL_AN_END if again is None else again, *place))

    def forget(self, place: Place) -> None:
        """Nothing waits there any more."""
        self._db.execute(_FORGET, place)

    def forget_task(self, task: str) -> None:
        """It has no limit for each key any more."""
        self._db.execute("DELETE FROM tarry_lane WHERE task = ?", (task,))

    def reopen(self, lanes: Iterable[tuple[str, str]]) -> None:
        """These, by task and lane, wherever they wait."""
        rows = sorted(set(lanes))
        if rows:
            self._db.executemany(_REOPEN, rows)

    def reopen_task(self, task: str) -> None:
        """All of a task."""
        self._db.execute(_REOPEN_TASK, (task,))

    def reopen_due(self, now: int, most: int) -> None:
        """Those whose time has come, so many at most."""
        if (first := self.next_time()) is not None and first <= now:
            self._db.execute(_REOPEN_DUE, (now, most))

    def next_time(self) -> int | None:
        """When the first lane is to be opened for its rate's sake."""
        time: int | None = self._db.execute(_NEXT_TIME).get
        return None if time == UNTIL_AN_END else time

    def closed(self) -> Sequence[tuple[Any, ...]]:
        """Task and lane of those that are closed, and until when; None: until an end."""
        return self._db.execute(_CLOSED_NOW).fetchall()
