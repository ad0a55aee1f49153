"""The jobs without a lane of one queue and band: a line of late ones and a line of those on time, which take turns."""

from collections.abc import Iterable
from typing import Any

from tarry.store.base import Want
from tarry.store.shared.lanes import Place, merged
from tarry.store.sqlite import sql
from tarry.store.sqlite.connection import Statements

Row = tuple[Any, ...]
Line = list[tuple[Place, Row]]
LATE, ON_TIME = 1, 0
"""What the index has for `lifecycle.is_late`."""
ID, PRIORITY, DUE = 1, 5, 6
"""Where these stand in a row of `sqlite.sql.CLAIMED`."""


class OpenLine:
    """As one claim sees it; what it gave is not given again, although nothing is written yet."""

    def __init__(self, db: Statements, want: Want) -> None:
        self._db, self._want = db, want
        self._gone = {LATE: 0, ON_TIME: 0}
        self.ended = False
        """It gave less than it was asked for: no use in asking again."""

    def any(self) -> bool:
        """Whether a job is there."""
        return self._has(ON_TIME) or self._has(LATE)

    def lines(self, most: int) -> tuple[Line, Line]:
        """The first so many of the late ones and of those on time."""
        return placed(self._first(LATE, most), True), placed(self._first(ON_TIME, most), False)

    def take(self, most: int) -> list[Row]:
        """Up to so many, in turn."""
        late, on_time = self._first(LATE, most), self._first(ON_TIME, most)
        given = merged([placed(late, True), placed(on_time, False)], most) if late and on_time else late or on_time
        behind = {row[ID] for row in late}
        for row in given:
            self._gone[LATE if row[ID] in behind else ON_TIME] += 1
        self.ended = len(given) < most
        return given

    def _has(self, kind: int) -> bool:
        return bool(self._db.execute(sql.ANY_READY[self._want.band], (self._want.queue, kind)).get)

    def _first(self, kind: int, most: int) -> list[Row]:
        # A statement of many columns takes 20 us also where it finds nothing, and most lines are empty.
        if not self._has(kind):
            return []
        values = (self._want.queue, kind, most, self._gone[kind])
        rows: list[Row] = self._db.execute(sql.READY[self._want.band], values).fetchall()
        return rows


def placed(rows: Iterable[Row], late: bool) -> Line:
    """The rows with their places, for `merged`."""
    return [(place(row, late), row) for row in rows]


def place(row: Row, late: bool) -> Place:
    """Where it stands."""
    return -row[PRIORITY], row[DUE], late, row[ID]
