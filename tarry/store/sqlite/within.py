"""The caller's own connection as a way into the store: jobs that are there if, and only if, the caller commits.

Nothing of the connection is changed: statements run on cursors of our own, and its errors are its owner's, who began
the transaction and has to roll it back.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import apsw

from tarry.errors import OtherDatabase, StoreError
from tarry.store.shared.theirs import NO_TRANSACTION, is_a, is_alchemy, underneath
from tarry.store.sqlite.connection import Rows, Statements

ACCEPTED = (
    "a connection or cursor of sqlite3 or apsw, a Connection or Session of SQLAlchemy (with aenqueue also the"
    " asynchronous ones), or a connection of Django"
)


class Theirs(Statements, Protocol):
    """A connection that somebody else opened."""

    copy: str
    """Whose copy of SQLite it runs on: "apsw", or "yes" for Python's own (as `sqlite.connection.SHARED`)."""

    def transactional(self) -> bool:
        """Whether what is written now waits for a commit."""


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
        cursor.row_trace = lambda cursor, row: row  # else the connection's own would shape our rows
        return cursor


class OfPython:
    """A `sqlite3.Connection`."""

    copy = "yes"

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def transactional(self) -> bool:
        return _transactional(self._connection)

    def execute(self, statement: str, bindings: tuple[Any, ...] = ()) -> Rows:
        return Rows(self._cursor().execute(statement, bindings).fetchall())

    def executemany(self, statement: str, bindings: Sequence[tuple[Any, ...]]) -> Rows:
        self._cursor().executemany(statement, bindings)
        return Rows()

    def _cursor(self) -> Any:
        # Not connection.cursor(): that one would come with the caller's row factory.
        return sys.modules["sqlite3"].Cursor(self._connection)


class OfAlchemy:
    """A SQLAlchemy `Connection`. Through its own API, so that it knows that a transaction has begun."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._driver = connection.connection.driver_connection
        own = is_a(self._driver, "sqlite3", "Connection") or is_a(self._driver, "aiosqlite", "Connection")
        self.copy = "yes" if own else f"that of {type(self._driver).__module__}"

    def transactional(self) -> bool:
        return _transactional(self._driver)

    def execute(self, statement: str, bindings: tuple[Any, ...] = ()) -> Rows:
        result = self._connection.exec_driver_sql(statement, bindings)
        return Rows(map(tuple, result.fetchall())) if result.returns_rows else Rows()

    def executemany(self, statement: str, bindings: Sequence[tuple[Any, ...]]) -> Rows:
        self._connection.exec_driver_sql(statement, list(bindings))
        return Rows()


def through(connection: Any, path: Path, shared: str) -> Statements:
    """The caller's connection, found fit to insert into the store at `path` with.

    OtherDatabase if it is to another one; StoreError if what it writes would not be safe there, or not wait for a
    commit; TypeError if it is no connection that is known here.
    """
    theirs = _recognised(connection)
    _check_same(theirs, path)
    if theirs.copy != (shared or "apsw"):
        raise StoreError(_two_copies(theirs.copy, path, shared))
    if not theirs.transactional():
        raise StoreError(NO_TRANSACTION)
    return theirs


def _recognised(connection: Any) -> Theirs:
    if isinstance(connection, apsw.Cursor) or is_a(connection, "sqlite3", "Cursor"):
        connection = connection.connection
    connection = underneath(connection, ("sqlite",), "SQLite")
    if isinstance(connection, apsw.Connection):
        return OfApsw(connection)
    if is_a(connection, "sqlite3", "Connection"):
        return OfPython(connection)
    if is_alchemy(connection):
        return OfAlchemy(connection)
    raise TypeError(f"connection={connection!r}: give {ACCEPTED}")


def _check_same(theirs: Theirs, path: Path) -> None:
    for _, name, file in theirs.execute("PRAGMA database_list").fetchall():
        if not _same(file, path):
            continue
        if name == "main":
            return
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
    by_itself = connection.isolation_level is not None and getattr(connection, "autocommit", -1) is not True
    return bool(connection.in_transaction) or by_itself


def _two_copies(copy: str, path: Path, shared: str) -> str:
    names = {"apsw": "apsw", "yes": "Python's sqlite3"}
    way_out = f"open the store as sqlite:///{path}?shared={copy}" if copy in names else "use sqlite3"
    return (
        f"{path} is open here through {names[shared or 'apsw']}, and connection= is through {names.get(copy, copy)}:"
        f" two copies of SQLite in one process do not see each other's locks and damage the file; {way_out}"
    )
