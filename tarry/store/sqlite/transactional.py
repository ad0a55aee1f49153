"""Inserts jobs through the caller's own connection: the jobs are there if, and only if, the caller commits.

Nothing of the connection changes: statements run on cursors of our own. Its errors reach the caller as they are, since
the caller began the transaction and has to roll it back.
"""

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import apsw

from tarry.errors import OtherDatabase, StoreError
from tarry.store.sql.caller_connection import (
    APSW,
    NO_TRANSACTION,
    SQLITE3,
    Accepted,
    Driver,
    alchemy_rows,
    is_a,
    recognise,
)
from tarry.store.sqlite.link.connection import Rows, Statements, bound

ACCEPTED = Accepted(
    ("sqlite",),
    "SQLite",
    "a connection or cursor of sqlite3 or apsw, a Connection or Session of SQLAlchemy (with aenqueue also the"
    " asynchronous ones), or a connection of Django",
)


class CallerDatabase(Statements, Protocol):
    """A connection that the caller opened."""

    copy: str
    """The copy of SQLite that it runs on: "apsw", or "yes" for Python's own (as `sqlite.database.SHARED`)."""

    def transactional(self) -> bool:
        """Whether writes wait for a commit from now on."""


class OfApsw:
    """An `apsw.Connection`."""

    copy = "apsw"

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    def transactional(self) -> bool:
        return self._connection.in_transaction

    def execute(self, statement: str, bindings: tuple[Any, ...] = ()) -> Rows:
        return Rows(self._cursor().execute(statement, bindings))

    def executemany(self, statement: str, bindings: Sequence[tuple[Any, ...]]) -> Rows:
        return Rows(self._cursor().executemany(statement, bindings))

    def _cursor(self) -> apsw.Cursor:
        cursor = apsw.Cursor(self._connection)
        # Otherwise the connection's own row trace would shape our rows.
        cursor.row_trace = lambda cursor, row: row
        return cursor


class OfPython:
    """A `sqlite3.Connection`."""

    copy = "yes"

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def transactional(self) -> bool:
        return _transactional(self._connection)

    def execute(self, statement: str, bindings: tuple[Any, ...] = ()) -> Rows:
        return Rows(self._cursor().execute(statement, bound(statement, bindings)).fetchall())

    def executemany(self, statement: str, bindings: Sequence[tuple[Any, ...]]) -> Rows:
        self._cursor().executemany(statement, [bound(statement, one) for one in bindings])
        return Rows()

    def _cursor(self) -> Any:
        # Not connection.cursor(): that cursor would have the caller's row factory.
        return sys.modules["sqlite3"].Cursor(self._connection)


class OfAlchemy:
    """A SQLAlchemy `Connection`."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._driver = connection.connection.driver_connection
        own = is_a(self._driver, "sqlite3", "Connection") or is_a(self._driver, "aiosqlite", "Connection")
        self.copy = "yes" if own else f"that of {type(self._driver).__module__}"

    def transactional(self) -> bool:
        return _transactional(self._driver)

    def execute(self, statement: str, bindings: tuple[Any, ...] = ()) -> Rows:
        return Rows(alchemy_rows(self._connection, statement, bound(statement, bindings)))

    def executemany(self, statement: str, bindings: Sequence[tuple[Any, ...]]) -> Rows:
        self._connection.exec_driver_sql(statement, [bound(statement, one) for one in bindings])
        return Rows()


def caller_statements(connection: Any, path: Path, shared: str) -> Statements:
    """The caller's connection, once it is known to be fit for inserts into the store at `path`.

    OtherDatabase if it is to another file; StoreError if its writes would not be safe, or would not wait for a commit;
    TypeError if it is no known kind of connection.
    """
    caller_db = _recognise(connection)
    _check_same(caller_db, path)
    # Two copies of SQLite in one process do not see each other's locks and damage the file.
    if caller_db.copy != (shared or "apsw"):
        raise StoreError(_two_copies(caller_db.copy, path, shared))
    if not caller_db.transactional():
        raise StoreError(NO_TRANSACTION)
    return caller_db


def _recognise(connection: Any) -> CallerDatabase:
    drivers: dict[Driver, Callable[[Any], CallerDatabase]] = {APSW: OfApsw, SQLITE3: OfPython}
    return recognise(connection, ACCEPTED, drivers, OfAlchemy)


def _check_same(caller_db: CallerDatabase, path: Path) -> None:
    for _, name, file in caller_db.execute("PRAGMA database_list").fetchall():
        if not _same(file, path):
            continue
        if name == "main":
            return
        # The caller would take the jobs for part of a transaction that SQLite does not commit as one.
        raise StoreError(
            f"connection= has {path} attached, as {name}: SQLite does not commit several files as one in WAL mode."
            " Give a connection that was opened on that file itself"
        )
    raise OtherDatabase(f"connection= is to another database than {path}, where the jobs are kept")


def _same(file: str, path: Path) -> bool:
    try:
        return os.path.samefile(file, path) if file else False
    except OSError:
        return False


def _transactional(connection: Any) -> bool:
    # With an isolation level sqlite3 begins a transaction by itself before the first write; with autocommit=True
    # (Python 3.12 and later) it ignores the level.
    by_itself = connection.isolation_level is not None and getattr(connection, "autocommit", -1) is not True
    return bool(connection.in_transaction) or by_itself


def _two_copies(copy: str, path: Path, shared: str) -> str:
    names = {"apsw": "apsw", "yes": "Python's sqlite3"}
    way_out = f"open the store as sqlite:///{path}?shared={copy}" if copy in names else "use sqlite3"
    return (
        f"{path} is open here through {names[shared or 'apsw']}, and connection= is through {names.get(copy, copy)}:"
        f" two copies of SQLite in one process do not see each other's locks and damage the file; {way_out}"
    )
