"""Copies the rows of a damaged database into a new one.

A table that SQLite can read to its end is copied as a whole. Of others the rows are read from the pages themselves.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import apsw
from msgspec import Struct

from tarry.model.job import LABEL_MARK, indexed_labels
from tarry.store.sqlite import sql
from tarry.store.sqlite.damage.pages import INDEX_LEAF, INDEX_NODE, TABLE_LEAF, PageRow, Pages, RowValues
from tarry.store.sqlite.damage.trees import DamagedTree
from tarry.store.sqlite.link.database import ApswDatabase

_JOBS, _NUMBERED = "tarry_job", ("tarry_job", "tarry_journal")
"""The tables with rowids; their leaves are told from those of all other trees."""
_CLASSES = {"INTEGER": int, "TEXT": str, "BLOB": bytes}
# Each lane of jobs that wait has a row, or its jobs are not found.
_OPEN_LANES = """INSERT OR IGNORE INTO tarry_lane (queue, band, task, lane)
    SELECT DISTINCT queue, (claim_order < 0) - (claim_order > 0), task, lane FROM tarry_job
    WHERE state = 1 AND lane IS NOT NULL AND 'each:' || task IN (SELECT name FROM tarry_limit)"""
# By the index of ids, which is a tree of its own.
_IDS = "SELECT id FROM tarry_job INDEXED BY sqlite_autoindex_tarry_job_1"


class SavedTable(Struct, frozen=True):
    """How many rows of a table were saved, and how many are lost; None: that is not known."""

    table: str
    saved: int
    lost: int | None


class _TableColumn(Struct, frozen=True):
    name: str
    kind: type
    is_required: bool


class Salvage:
    """Of one database. descriptor: of its file. damaged: the trees that are. fresh: the new database, with all tables
    and no rows."""

    def __init__(
        self, database: ApswDatabase, pages: Pages, damaged: Sequence[DamagedTree], fresh: ApswDatabase
    ) -> None:
        self._db, self._pages, self._damaged, self._fresh = database, pages, damaged, fresh

    def save(self) -> list[SavedTable]:
        """Copies what can be read, within a transaction of the caller."""
        tables: list[Any] = self._fresh.execute(
            # Not what says the version: the new one has its own.
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name <> 'tarry_about' ORDER BY name"
        ).fetchall()
        saved = [self._save(name) for (name,) in tables]
        self._fresh.execute(_OPEN_LANES)
        self._label()
        return saved

    def _label(self) -> None:
        """Makes the index of labels say what the jobs that are there say."""
        self._fresh.execute("DELETE FROM tarry_label WHERE job NOT IN (SELECT id FROM tarry_job)")
        select = "SELECT id, headers FROM tarry_job WHERE instr(headers, ?)"
        labelled: list[Any] = self._fresh.execute(select, (LABEL_MARK,)).fetchall()
        for id, headers in labelled:
            for name, value in indexed_labels(headers).items():
                self._fresh.execute(sql.LABEL, (name, value, id))

    def _save(self, table: str) -> SavedTable:
        columns = self._columns(table)
        # It begins with a row of its own.
        self._fresh.execute(f"DELETE FROM {table}")
        try:
            names = ", ".join(column.name for column in columns)
            # Without this SQLite reads an index, if that has all columns, also in spite of NOT INDEXED.
            tree = "NOT INDEXED" if table in _NUMBERED else f"INDEXED BY sqlite_autoindex_{table}_1"
            for values in self._db.execute(f"SELECT {names} FROM {table} {tree}"):
                self._put(table, columns, values)
            lost: int | None = 0
        except (apsw.CorruptError, apsw.SQLError, UnicodeDecodeError):
            lost = self._save_rows(table, columns)
        return SavedTable(table, self._fresh.execute(f"SELECT count(*) FROM {table}").get, lost)

    def _columns(self, table: str) -> list[_TableColumn]:
        rows: list[Any] = self._fresh.execute(f"PRAGMA table_info({table})").fetchall()
        return [_TableColumn(name, _CLASSES[kind], bool(required or key)) for _, name, kind, required, _, key in rows]

    def _save_rows(self, table: str, columns: Sequence[_TableColumn]) -> int | None:
        for row in self._rows(table):
            values = _fit_row(row, columns, table in _NUMBERED)
            if values is not None:
                self._put(table, columns, values)
        return self._lost_jobs() if table == _JOBS else None

    def _lost_jobs(self) -> int | None:
        found = "SELECT 1 FROM tarry_job WHERE id = ?"
        try:
            return sum(self._fresh.execute(found, (id,)).get is None for (id,) in self._db.execute(_IDS))
        except (apsw.CorruptError, apsw.SQLError):
            return None

    def _rows(self, table: str) -> Iterator[PageRow]:
        kinds = (TABLE_LEAF,) if table in _NUMBERED else (INDEX_LEAF, INDEX_NODE)
        for number in sorted(self._candidates(table)):
            if self._pages.kind(number) in kinds:
                yield from self._pages.rows(number)

    def _candidates(self, table: str) -> set[int]:
        """The pages that may hold rows of a table: those it leads to, and those that nothing leads to."""
        roots = self._roots()
        own = self._pages.tree(roots.get(table, 0))
        # Pages of damaged trees without rowids look alike, and so do those of indexes.
        if table not in _NUMBERED and len(self._damaged) > 1:
            return own
        others = {page for name, root in roots.items() if name != table for page in self._pages.tree(root)}
        return (own | set(range(2, self._pages.count + 1))) - others - self._pages.free()

    def _roots(self) -> dict[str, int]:
        try:
            rows: list[Any] = self._db.execute("SELECT name, rootpage FROM sqlite_schema WHERE rootpage > 0").fetchall()
            return dict(rows)
        except (apsw.CorruptError, apsw.SQLError):
            return {}

    def _put(self, table: str, columns: Sequence[_TableColumn], values: RowValues) -> None:
        names, places = ", ".join(column.name for column in columns), ", ".join("?" * len(columns))
        if table != _JOBS:
            self._fresh.execute(f"INSERT OR IGNORE INTO {table} ({names}) VALUES ({places})", values)
            return
        row = dict(zip((column.name for column in columns), values, strict=True))
        # Its number is only its place in the file. A page that was written over may have an older copy of a job.
        row["n"] = None
        older = "DELETE FROM tarry_job WHERE id = ? AND epoch < ?"
        self._fresh.execute(older, (row["id"], row["epoch"]))
        insert = f"INSERT INTO tarry_job ({names}) VALUES ({places}) ON CONFLICT (id) DO NOTHING"
        try:
            self._fresh.execute(insert, tuple(row.values()))
        except apsw.ConstraintError:
            # Another job holds its key.
            self._fresh.execute(insert, tuple((row | {"key_held_until": 0}).values()))


def _fit_row(row: PageRow, columns: Sequence[_TableColumn], is_numbered: bool) -> RowValues | None:
    """The values of all columns; None if the row is of another table."""
    values: list[Any] = list(row.values)
    if is_numbered and values and values[0] is None:
        values[0] = row.number
    if len(values) != len(columns):
        return None
    fits = all(
        type(value) is column.kind or (value is None and not column.is_required)
        for value, column in zip(values, columns, strict=True)
    )
    return tuple(values) if fits else None
