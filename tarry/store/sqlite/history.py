"""The history in the embedded store's file."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from tarry.store.rules.history.history import Taken
from tarry.store.rules.history.sums import Place
from tarry.store.sql.history import RAISE, SqlHistory, Tables
from tarry.store.sqlite.file import transaction
from tarry.store.sqlite.link.database import Database

_FORGET = "DELETE FROM tarry_journal WHERE n = ?"
_DELETE = "DELETE FROM tarry_history WHERE resolution = ? AND start = ? AND queue = ? AND task = ?"
_WRITE = """INSERT INTO tarry_history (resolution, start, queue, task, value) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT DO UPDATE SET value = excluded.value"""


class SqliteHistory(SqlHistory):
    """The history of one file. store: its reads; it lends its connection for as long as `lend` is open."""

    def __init__(self, store: "SqliteTables") -> None:
        super().__init__(store, "tarry_")
        self._lend = store.lend

    def _fold(self, taken: Taken, rows: Sequence[tuple[Any, ...]], gone: Sequence[Place]) -> bool:
        with self._lend() as db, transaction(db):
            db.execute(RAISE.format("tarry_"), (taken.number,))
            # The write lock is held from the start, so whoever was first has committed.
            if not db.changes():
                return False
            db.executemany(_FORGET, [(n,) for n in taken.places])
            db.executemany(_WRITE, rows)
            db.executemany(_DELETE, gone)
        return True


class SqliteTables(Tables, Protocol):
    """What it needs of the store."""

    def lend(self) -> AbstractContextManager[Database]:
        """The connection, for nobody else meanwhile."""
        ...
