"""What all stores in SQL databases have in common. A new one adds its statements and its hot path.

In the statements here and in `SqlStatements`, ?1 is the first value and ?2 the second; a store rewrites them for its
driver. Each store has its own statements where many processes run them at once, or where they must name an index.
"""

import re
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from msgspec import Struct

from tarry.model.bound import KEY_ROOM
from tarry.model.job import Job, JobLabel
from tarry.store.rules.base import Backlog, Query, Store, Tally, ValueChange
from tarry.store.rules.name_pattern import translate
from tarry.store.shared.state_codes import CODE, state_of
from tarry.store.sql.columns import COLUMN_OF, Row, stored_job
from tarry.store.sql.prefix import prefix_end
from tarry.store.sql.pruning import Finished, LanePlace, PrunedPlace, Pruning

DAY = 86_400_000_000
_READ_AT_ONCE = 100


def like_pattern(pattern: str) -> str:
    """A pattern of names as LIKE takes it, with `!` before what is special."""
    return translate(pattern, "%", lambda part: re.sub(r"([!%_])", r"!\1", part))


def distinct_scan(column: str, source: str, start: str = "", most: str = "") -> str:
    """The rows `found (value, n)`, for a statement behind it: the distinct values of a column in order, then perhaps
    NULL. source: FROM and WHERE; start: a condition more for the first value; most: how many values at most."""
    # Each step is one look into the index that serves `source`: DISTINCT would read all rows.
    look = f"SELECT {column} {source}"
    first = f"ORDER BY {column} LIMIT 1"
    end = f" AND n < {most}" if most else ""
    return f"""WITH RECURSIVE found (value, n) AS (SELECT ({look} {start} {first}), 1
        UNION ALL SELECT ({look} AND {column} > found.value {first}), n + 1 FROM found WHERE value IS NOT NULL{end})"""


class SqlStatements(Struct, frozen=True, kw_only=True):
    """The SQL of one store. For each statement: the values it takes, then the rows it returns."""

    tables: str
    """The prefix of its tables' names."""
    jobs: str
    """A SELECT without its WHERE: the rows that `SqlStore._job` reads."""
    id: str = "{}"
    """An id in a condition; {}: the value."""
    bytes_of: str = "{}"
    """An id that is read, as bytes; {}: the column."""
    key: str = COLUMN_OF["key"]
    """The column of a job's key."""
    name: str = "{}"
    """A name that is read; {}: the column."""
    insert_new: str = "INSERT INTO {} ON CONFLICT DO NOTHING"
    """Inserts a row unless it exists; {}: the table and the values."""
    fits: str = "{} LIKE {} ESCAPE '!'"
    """Whether a name fits a pattern; {}: the column, and the pattern."""
    pattern: Callable[[str], str] = like_pattern
    """A pattern of names, as `fits` takes it."""
    tally: str
    """The rows of `Store.counts`, states as codes."""
    expiring: str
    """start, end, limit: jobs, as `Store.expiring`."""
    held_by: str
    """owner, limit: jobs that this owner runs, by id."""
    overdue: str
    """now, limit: running jobs whose owner's lease ran out, by id."""
    owners: str
    """The owners of running jobs."""
    hold: str = ""
    """name, owner, until, now: changes a row if the owner gets or keeps the named lease."""
    next_due: str = ""
    """When the earliest scheduled job falls due; NULL or no row: there is none."""
    due: str = ""
    """now, limit: queue and due of the earliest scheduled jobs whose time has come."""
    finished: str
    """until, id, now, count: the rows of `Finished` after that place, in order."""
    weights: str
    """until, id, count: queue and bytes of the next finished jobs."""
    last_weighed: str
    """until, id, count - 1: the place of the last of them."""
    levels: str = ""
    """name, now, count: names of the next levels of keys, and whether each is unused."""
    drop_level: str = ""
    """name, now: removes a level if it is unused."""
    lanes: str = ""
    """queue, band, task, lane, count: the same of the next open lanes, and whether no job waits there."""
    drop_lane: str = ""
    """queue, band, task, lane: removes an open lane if no job waits there."""


class SqlStore(Store):
    """The verbs that are the same in all SQL databases."""

    _sql: ClassVar[SqlStatements]
    _pruning: Pruning

    @abstractmethod
    def _rows(self, statement: str, values: Sequence[Any] = ()) -> Sequence[Row]:
        """The rows that one statement finds."""

    @abstractmethod
    def _change_each(self, statement: str, rows: Sequence[Sequence[Any]]) -> int:
        """Runs a statement with the values of each row, in one transaction; returns how many rows it changed."""

    @abstractmethod
    def _jobs_by_id(self, ids: Collection[bytes]) -> Iterable[Job]:
        """The jobs with these ids, in any order; without those that do not exist."""

    def _change(self, statement: str, values: Sequence[Any]) -> int:
        return self._change_each(statement, [values])

    def _rows_of_all(self, statement: str, values: Sequence[Any] = ()) -> Sequence[Row]:
        """The rows of a statement that may read everything."""
        # A store may give such statements more time.
        return self._rows(statement, values)

    def _job(self, row: Row) -> Job:
        """The job of a row of `SqlStatements.jobs`."""
        return stored_job(row)

    def _jobs(self, statement: str, values: Sequence[Any]) -> list[Job]:
        return [self._job(row) for row in self._rows(statement, values)]

    # Owning

    def next_due(self) -> int | None:
        rows = self._rows(self._sql.next_due)
        return rows[0][0] if rows else None

    def reclaim(self, now: int, of: str | None = None, limit: int = 1000) -> list[Job]:
        if of is None:
            return self._jobs(self._sql.overdue, (now, max(0, limit)))
        return self._jobs(self._sql.held_by, (of, max(0, limit)))

    def owners(self) -> list[str]:
        return [owner for (owner,) in self._rows(self._sql.owners)]

    def hold(self, name: str, owner: str, until: int, now: int) -> bool:
        # Leases that ran out long ago serve nobody, and their rows would pile up.
        self._change(f"DELETE FROM {self._sql.tables}owner WHERE until < ?1", (now - DAY,))
        return self._change(self._sql.hold, (name, owner, until, now)) > 0

    # For people

    def get(self, ids: Sequence[bytes]) -> list[Job | None]:
        found = {job.id: job for job in self._jobs_by_id(ids)} if ids else {}
        return [found.get(id) for id in ids]

    def find(self, query: Query) -> list[Job]:
        if query.labels:
            from tarry.store.sql.labels import find_labelled  # noqa: PLC0415 - few look for labels

            return find_labelled(query, self._ids_by_labels, self._jobs_by_id)
        where, values = _conditions(query, self._sql)
        statement = f"{self._sql.jobs} WHERE {where} ORDER BY id LIMIT {max(0, query.limit)}"
        return [self._job(row) for row in self._rows_of_all(statement, values)]

    def _ids_by_labels(self, query: Query, after: bytes, limit: int, start: int = 0) -> list[bytes]:
        """The ids of jobs with the query's labels and states, after one, in order; start: the first so many are left
        out."""
        from tarry.store.sql.labels import label_search  # noqa: PLC0415 - as above

        statement, values = label_search(self._sql, query, after)
        rows = self._rows_of_all(f"{statement} ORDER BY l.job LIMIT {max(0, limit)} OFFSET {start}", values)
        return [bytes(id) for (id,) in rows]

    def id_behind(self, after: bytes, count: int, label: JobLabel | None = None) -> bytes | None:
        if label is not None:
            ids = self._ids_by_labels(Query(labels=(label,)), after, 2, max(0, count - 1))
            return ids[0] if len(ids) > 1 else None
        where, values = _conditions(Query(after=after), self._sql)
        # Two rows: nothing tells of the end but that there is no job behind.
        statement = f"{self._sql.jobs} WHERE {where} ORDER BY id LIMIT 2 OFFSET {max(0, count - 1)}"
        rows = self._rows_of_all(statement, values)
        return self._job(rows[0]).id if len(rows) > 1 else None

    def counts(self) -> list[Tally]:
        rows = self._rows_of_all(self._sql.tally)
        return [Tally(queue, task, state_of(code), n, oldest, size) for queue, task, code, n, oldest, size in rows]

    def expiring(self, start: int, end: int, limit: int) -> list[Job]:
        return self._jobs(self._sql.expiring, (start, end, limit))

    def prune(self, now: int, most_bytes: int, limit: int = 1000, by_queue: Mapping[str, int] | None = None) -> int:
        return self._pruning.prune(now, most_bytes, limit, by_queue or {})

    # Queues

    def pause(self, queue: str, paused: bool) -> None:
        table = f"{self._sql.tables}paused"
        statement = (
            self._sql.insert_new.format(f"{table} VALUES (?1)") if paused else f"DELETE FROM {table} WHERE queue = ?1"
        )
        self._change(statement, (queue,))

    # Named values

    def kv_list(self, prefix: str) -> dict[str, bytes]:
        cells = f"SELECT {self._sql.name.format('name')}, value FROM {self._sql.tables}cell"
        return dict(self._rows(f"{cells} WHERE name >= ?1 AND name < ?2 ORDER BY name", (prefix, prefix_end(prefix))))

    def kv_get(self, name: str) -> bytes | None:
        rows = self._rows(f"SELECT value FROM {self._sql.tables}cell WHERE name = ?1", (name,))
        return rows[0][0] if rows else None

    def kv_cas(self, name: str, value: bytes | None, was: bytes | None) -> bool:
        cell = f"{self._sql.tables}cell"
        # There is nothing to write; and if both are None, the insert below would make a row.
        if value == was:
            return self.kv_get(name) == was
        if was is None:
            return self._change(self._sql.insert_new.format(f"{cell} VALUES (?1, ?2)"), (name, value)) > 0
        if value is None:
            return self._change(f"DELETE FROM {cell} WHERE name = ?1 AND value = ?2", (name, was)) > 0
        return self._change(f"UPDATE {cell} SET value = ?2 WHERE name = ?1 AND value = ?3", (name, value, was)) > 0

    def kv_page(self, prefix: str, after: str, limit: int) -> dict[str, bytes]:
        # One lower bound, so that the index is entered behind `after`.
        begin, sign = (after, ">") if after >= prefix else (prefix, ">=")
        cells = f"SELECT {self._sql.name.format('name')}, value FROM {self._sql.tables}cell"
        where = f"WHERE name {sign} ?1 AND name < ?2 ORDER BY name LIMIT {max(0, limit)}"
        return dict(self._rows(f"{cells} {where}", (begin, prefix_end(prefix))))

    def kv_count(self, prefix: str) -> int:
        cells = f"SELECT count(*) FROM {self._sql.tables}cell WHERE name >= ?1 AND name < ?2"
        return int(self._rows(cells, (prefix, prefix_end(prefix)))[0][0])

    def kv_read(self, names: Sequence[str]) -> list[bytes | None]:
        found: dict[str, bytes] = {}
        cells = f"SELECT {self._sql.name.format('name')}, value FROM {self._sql.tables}cell"
        places = ", ".join(f"?{number}" for number in range(1, _READ_AT_ONCE + 1))
        for at in range(0, len(names), _READ_AT_ONCE):
            some = names[at : at + _READ_AT_ONCE]
            # Always as many, so that there is one statement to prepare.
            padded = [*some, *[some[-1]] * (_READ_AT_ONCE - len(some))]
            found |= self._rows(f"{cells} WHERE name IN ({places})", padded)
        return [found.get(name) for name in names]

    def kv_write(self, changes: Sequence[ValueChange]) -> list[bool]:
        new = [(name, value) for name, value, was in changes if was is None and value is not None]
        gone = [(name, was) for name, value, was in changes if value is None and was is not None]
        set_ = [(name, value, was) for name, value, was in changes if None not in (value, was)]
        kinds: tuple[list[tuple[Any, ...]], ...] = ([*new], [*gone], [*set_])
        changed = 0
        # In one order, so that two callers do not wait for each other.
        for statement, rows in zip(self._each_cell(), kinds, strict=True):
            changed += self._change_cells(statement, sorted(rows)) if rows else 0
        if changed == len(changes):
            return [True] * len(changes)
        now_there = self.kv_read([name for name, *_ in changes])
        return [there == value for there, (_, value, _) in zip(now_there, changes, strict=True)]

    def _each_cell(self) -> tuple[str, str, str]:
        """Statements that make, remove and change a named value."""
        cell = f"{self._sql.tables}cell"
        return (
            self._sql.insert_new.format(f"{cell} VALUES (?1, ?2)"),
            f"DELETE FROM {cell} WHERE name = ?1 AND value = ?2",
            f"UPDATE {cell} SET value = ?2 WHERE name = ?1 AND value = ?3",
        )

    def _change_cells(self, statement: str, rows: Sequence[Sequence[Any]]) -> int:
        """Runs one of them for each row; returns how many named values it changed."""
        return self._change_each(statement, rows)


class ScanningSqlStore(SqlStore):
    """Finds queues and the backlog by index scans, one queue after the other."""

    def queues(self) -> dict[str, bool]:
        found = dict.fromkeys(self._ready_queues(), False)
        rows = self._rows(f"SELECT {self._sql.name.format('queue')} FROM {self._sql.tables}paused")
        return found | {queue: True for (queue,) in rows}

    @abstractmethod
    def _ready_queues(self) -> Iterable[str]:
        """The queues that have ready jobs."""

    def backlog(self, queues: Collection[str] | None, now: int, most: int) -> Backlog:
        known = self.queues()
        paused = {queue for queue, is_paused in known.items() if is_paused}
        scheduled = self._rows(self._sql.due, (now, most))
        dues: list[int] = [
            due for queue, due in scheduled if queue not in paused and (queues is None or queue in queues)
        ]
        for queue in sorted(known.keys() - paused if queues is None else known.keys() & set(queues) - paused):
            if len(dues) < most:
                dues += self._ready_dues(queue, most - len(dues))
        return Backlog(len(dues), min(dues, default=now))

    @abstractmethod
    def _ready_dues(self, queue: str, most: int) -> list[int]:
        """The `due` of up to `most` ready jobs of a queue, late ones first."""
        # Late jobs tend to be the oldest, and `backlog` asks for the earliest `due`.


def _conditions(query: Query, sql: SqlStatements) -> tuple[str, list[Any]]:
    """The query as an SQL condition, and its values."""
    asked = [
        (f"id > {sql.id}", query.after or None),
        (f"id <= {sql.id}", query.until or None),
        ("queue = {}", query.queue),
        ("task = {}", query.task),
        (f"{sql.key} = {{}}", query.key),
        (f"{COLUMN_OF['state_since']} < {{}}", query.before),
    ]
    given = [(condition, value) for condition, value in asked if value is not None]
    where = [condition.format(f"?{place}") for place, (condition, _) in enumerate(given, 1)]
    values = [value for _, value in given]
    if query.queues:
        where.append(fitting(sql, "queue", query.queues, values))
    if query.tasks:
        where.append(fitting(sql, "task", query.tasks, values))
    if query.states:
        # No values: the codes are our own integers, and their number varies.
        where.append(f"state IN ({', '.join(str(CODE[state]) for state in query.states)})")
    return " AND ".join(where) or "1 = 1", values


def fitting(sql: SqlStatements, column: str, patterns: Sequence[str], values: list[Any]) -> str:
    """The condition that a column fits one of the patterns, whose values are added to `values`."""
    fits = [sql.fits.format(column, f"?{len(values) + number}") for number in range(1, len(patterns) + 1)]
    values += map(sql.pattern, patterns)
    return f"({' OR '.join(fits)})"


class SqlFinishedJobs:
    """The finished jobs of an SQL store, for `Pruning`. Each step is a transaction of its own."""

    def __init__(self, store: SqlStore) -> None:
        self._sql, self._rows, self._change_each = store._sql, store._rows, store._change_each

    def after(self, place: PrunedPlace, now: int, count: int) -> Sequence[Finished]:
        rows = self._rows(self._sql.finished, (*place, now, count))
        return [Finished(until, id, queue, size, bool(free)) for until, id, queue, size, free in rows]

    def weights(self, place: PrunedPlace, count: int) -> tuple[Mapping[str, int], PrunedPlace | None]:
        weights: dict[str, int] = dict(self._rows(self._sql.weights, (*place, count)))
        last = self._rows(self._sql.last_weighed, (*place, count - 1))
        return weights, (last[0][0], last[0][1]) if last else None

    def drop_levels(self, name: str, now: int, count: int) -> str | None:
        rows = self._rows(self._sql.levels, (name, now, count))
        if unused := [name for name, is_unused in rows if is_unused]:
            self._change_each(self._sql.drop_level, [(name, now) for name in unused])
        return rows[-1][0] if len(rows) == count else None

    def drop_lanes(self, place: LanePlace, count: int) -> tuple[LanePlace | None, int]:
        rows = self._rows(self._sql.lanes, (*place, count))
        empty: list[LanePlace] = [(queue, band, task, lane) for queue, band, task, lane, is_empty in rows if is_empty]
        if empty:
            self._remove_lanes(empty)
        queue, band, task, lane, _ = rows[-1] if rows else (*place, False)
        return (queue, band, task, lane) if len(rows) == count else None, len(empty)

    def drop_rooms(self, name: str, now: int, count: int) -> str | None:
        cells = f"SELECT {self._sql.name.format('name')}, value FROM {self._sql.tables}cell"
        rows = self._rows(
            f"{cells} WHERE name > ?1 AND name < ?2 ORDER BY name LIMIT ?3", (name, prefix_end(KEY_ROOM), count)
        )
        if not rows:
            return None
        from tarry.store.shared.bounded_room import is_old_room  # noqa: PLC0415 - only whoever has rooms needs it

        if old := [(room, value) for room, value in rows if is_old_room(bytes(value), now)]:
            self._change_each(f"DELETE FROM {self._sql.tables}cell WHERE name = ?1 AND value = ?2", old)
        return rows[-1][0] if len(rows) == count else None

    def _remove_lanes(self, lanes: Sequence[LanePlace]) -> None:
        self._change_each(self._sql.drop_lane, lanes)
