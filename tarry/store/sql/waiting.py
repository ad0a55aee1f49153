"""What waits in an SQL database: one statement for each count, a LIMIT in each part of it."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from msgspec import Struct

from tarry.model.job import Job
from tarry.store.rules.base import BANDS, band
from tarry.store.rules.waiting import (
    CappedCount,
    ReadyBefore,
    WaitingCounts,
    WaitingLane,
    capped,
    merge_lanes,
    merge_tasks,
)
from tarry.store.sql.sql_store import distinct_scan

_RANGES = {-1: "< 0", 0: "= 0", 1: "> 0"}
SelectRows = Callable[[str, Sequence[Any]], Sequence[tuple[Any, ...]]]


class WaitingDialect(Struct, frozen=True, kw_only=True):
    """The parts of one store's statements. In {} stand: {late}: 0 or 1; {sign}: of `claim_order`; {line}: both
    as one number; {range}: that sign as a comparison."""

    ready: tuple[str, ...]
    """Ready jobs without a lane of the queue ?1, of that lateness and band; each of them is read apart."""
    laned: str
    """Ready jobs in lanes of the queue ?1, of that band."""
    scheduled: tuple[str, ...]
    """Scheduled jobs; conditions on `due` follow."""
    scheduled_with_queue: tuple[str, ...]
    """The same where `{queue}` can be read."""
    queue: str = "queue"
    """The column of the queue there, as text."""
    name: str = "{}"
    """A name that is read; {}: the column."""
    has_distinct_scan: bool = True
    """It looks into an index for each step of `distinct_scan`, instead of reading all rows."""
    id: str = "?4"
    """An id as a value of a statement."""


class SqlWaiting(WaitingCounts):
    """The waiting jobs of one database. rows: runs a statement."""

    def __init__(self, dialect: WaitingDialect, rows: SelectRows) -> None:
        self._sql, self._rows = dialect, rows

    def due(self, bounds: Sequence[int], queues: Collection[str] | None, most: int) -> list[CappedCount]:
        places = range(len(bounds) + 1)
        tables = self._sql.scheduled if queues is None else self._sql.scheduled_with_queue
        queue = "''" if queues is None else self._sql.queue
        parts = [
            f"SELECT {part} AS part, queue, count(*) AS n FROM"
            f" (SELECT {queue} AS queue FROM {table}{_between(part, len(bounds))} ORDER BY due"
            f" LIMIT ?{len(bounds) + 1}) p{part} GROUP BY queue"
            for part in places
            for table in tables
        ]
        found = self._rows(" UNION ALL ".join(parts), (*bounds, most))
        counts = [sum(n for at, name, n in found if at == part and _is_in(name, queues)) for part in places]
        seen = [sum(n for at, _, n in found if at == part) for part in places]
        return [CappedCount(min(count, most), all_of_it >= most) for count, all_of_it in zip(counts, seen, strict=True)]

    def bands(self, queue: str, most: int) -> dict[int, CappedCount]:
        # The sign of `claim_order` is that of the negative priority.
        counts = [[*self._ready(-one, (0, 1)), _laned(self._sql, -one)] for one in BANDS]
        statement = _sums([[_limited(table, 2) for table in tables] for tables in counts])
        ((*found,),) = self._rows(statement, (queue, most))
        return {one: capped(count, most) for one, count in zip(BANDS, found, strict=True)}

    def lane(self, queue: str, task: str, lane: str, most: int) -> WaitingLane:
        first = [f"SELECT due FROM {_laned(self._sql, -one)} AND task = ?2 AND lane = ?3 LIMIT ?4" for one in BANDS]
        parts = [f"SELECT count(*), min(due) FROM ({part}) p" for part in first]
        found = self._rows(" UNION ALL ".join(parts), (queue, task, lane, most))
        return merge_lanes((WaitingLane(capped(count, most), oldest) for count, oldest in found), most)

    def tasks(self, queue: str, after: str, most: int) -> list[str]:
        if not self._sql.has_distinct_scan:
            return list(islice(self._tasks_one_by_one(queue, after), most))
        parts = [self._rows(_tasks(self._sql, -one), (queue, after, most)) for one in BANDS]
        return merge_tasks(([task for (task,) in part] for part in parts), most)

    def _tasks_one_by_one(self, queue: str, after: str) -> Iterator[str]:
        first = [f"(SELECT task FROM {_laned(self._sql, -one)} AND task > ?2 ORDER BY task LIMIT 1)" for one in BANDS]
        statement = f"SELECT {self._sql.name.format('min(task)')} FROM ({' UNION ALL '.join(first)}) p"
        while (task := self._rows(statement, (queue, after))[0][0]) is not None:
            yield task
            after = task

    def _before(self, job: Job, most: int) -> ReadyBefore:
        sign = -band(job.priority)
        signs = [one for one in _RANGES if one <= sign]
        higher = [f"{table} AND claim_order < ?2" for one in signs for table in self._ready(one, (0, 1))]
        same = [[f"{table} AND claim_order = ?2" for table in self._ready(sign, (late,))] for late in (0, 1)]
        earlier = [
            [f"{table} AND {then}" for table in tables for then in ("due < ?3", f"due = ?3 AND id < {self._sql.id}")]
            for tables in same
        ]
        lanes = [_laned(self._sql, one) for one in signs]
        open_lines = [[_limited(table, 5) for table in tables] for tables in (higher, *earlier, *same)]
        before = f"claim_order < ?2 OR (claim_order = ?2 AND (due < ?3 OR (due = ?3 AND id < {self._sql.id})))"
        first = [f"(SELECT claim_order, due, id FROM {lane} LIMIT ?5)" for lane in lanes]
        laned = [f"(SELECT count(*) FROM {lane} p WHERE {before})" for lane in first]
        examined = [f"(SELECT count(*) FROM {lane} p)" for lane in first]
        values = job.queue, -job.priority, job.due, job.id, most
        ((*found,),) = self._rows(_sums([*open_lines, laned, examined]), values)
        ends = [min(most, count) for count in found]
        return ReadyBefore(ends[0], (ends[1], ends[2]), (ends[3], ends[4]), ends[5], ends[6])

    def _ready(self, sign: int, kinds: Iterable[int]) -> list[str]:
        """The tables of ready jobs without a lane, of that band; of jobs on time (0) and late (1) ones."""
        return [
            table.format(late=late, line=2 * sign + late, range=_RANGES[sign])
            for late in kinds
            for table in self._sql.ready
        ]


def count_of_lane(dialect: WaitingDialect, mark: str) -> str:
    """The statement that counts the ready jobs of a lane. Its values: queue, task, lane, how many at most. mark: what
    stands before the number of a value."""
    ready = (f"SELECT 1 FROM {_laned(dialect, -one)} AND task = {mark}2 AND lane = {mark}3" for one in BANDS)
    return f"SELECT count(*) FROM ({' UNION ALL '.join(ready)} LIMIT {mark}4) p"


def _laned(dialect: WaitingDialect, sign: int) -> str:
    return dialect.laned.format(sign=sign)


def _tasks(dialect: WaitingDialect, sign: int) -> str:
    found = distinct_scan("task", f"FROM {_laned(dialect, sign)}", "AND task > ?2", "?3")
    return f"{found} SELECT value FROM found WHERE value IS NOT NULL"


def _limited(table: str, limit: int) -> str:
    return f"(SELECT count(*) FROM (SELECT 1 FROM {table} LIMIT ?{limit}) p)"


def _sums(columns: Sequence[Sequence[str]]) -> str:
    return "SELECT " + ", ".join(" + ".join(counts) for counts in columns)


def _between(part: int, bounds: int) -> str:
    start = f" AND due >= ?{part}" if part else ""
    return start + (f" AND due < ?{part + 1}" if part < bounds else "")


def _is_in(name: str, queues: Collection[str] | None) -> bool:
    return queues is None or name in queues
