"""The jobs without a lane of one queue and band: late jobs and jobs on time, which take turns."""

from collections.abc import Iterable, Sequence

from tarry.store.rules.base import Want
from tarry.store.rules.lanes import Position, merge_lines
from tarry.store.sql.columns import Row
from tarry.store.sql.lane_reader import Candidate, Line
from tarry.store.sqlite import sql
from tarry.store.sqlite.link.connection import Statements

LATE, ON_TIME = 1, 0
"""The values of `lifecycle.is_late` in the index."""
ID, PRIORITY, DUE = (sql.PLACE[field] for field in ("id", "priority", "due"))


class OpenLine:
    """The line as one claim reads it."""

    def __init__(self, db: Statements, line: Line) -> None:
        self._db = db
        self._queue, self._band = line
        # Nothing is written while the claim still chooses, so it has to skip what the line gave it before.
        self._given = {LATE: 0, ON_TIME: 0}
        self.ended = False
        """The line gave less than asked for, so it has no more."""

    def has_jobs(self) -> bool:
        """Whether any job waits in the line."""
        return self._has(ON_TIME) or self._has(LATE)

    def fronts(self, most: int) -> tuple[list[Candidate[Row]], list[Candidate[Row]]]:
        """The first late jobs and the first jobs on time, up to so many of each."""
        return with_positions(self._first(LATE, most), True), with_positions(self._first(ON_TIME, most), False)

    def take(self, most: int) -> list[Row]:
        """Up to so many jobs; late jobs and jobs on time take turns."""
        late, on_time = self._first(LATE, most), self._first(ON_TIME, most)
        given = late or on_time
        if late and on_time:
            given = merge_lines([with_positions(late, True), with_positions(on_time, False)], most)
        late_ids = {row[ID] for row in late}
        for row in given:
            self._given[LATE if row[ID] in late_ids else ON_TIME] += 1
        self.ended = len(given) < most
        return given

    def _has(self, kind: int) -> bool:
        return bool(self._db.execute(sql.ANY_READY[self._band], (self._queue, kind)).get)

    def _first(self, kind: int, most: int) -> list[Row]:
        values = (self._queue, kind, most, self._given[kind])
        rows: list[Row] = self._db.execute(sql.READY[self._band], values).fetchall()
        return rows


def with_positions(rows: Iterable[Row], late: bool) -> list[Candidate[Row]]:
    """The rows with their positions, for `merge_lines`."""
    return [(position(row, late), row) for row in rows]


def position(row: Row, late: bool) -> Position:
    """Where the job stands among those that wait."""
    return -row[PRIORITY], row[DUE], late, row[ID]


def has_open_jobs(db: Statements, wants: Sequence[Want]) -> bool:
    """Whether jobs without a lane wait."""
    return any(OpenLine(db, (want.queue, want.band)).has_jobs() for want in wants)


def choose(db: Statements, wants: Sequence[Want], limit: int) -> list[Row]:
    """The rows of up to so many jobs without a lane, as `Store.claim` takes them."""
    rows: list[Row] = []
    lines = {(want.queue, want.band): OpenLine(db, (want.queue, want.band)) for want in wants}
    # First each want's own count, then whatever there is, up to the limit.
    for fill in (False, True):
        for want in wants:
            room = limit - len(rows) if fill else min(want.count, limit - len(rows))
            line = lines[want.queue, want.band]
            if room > 0 and not line.ended:
                rows += line.take(room)
    return rows
