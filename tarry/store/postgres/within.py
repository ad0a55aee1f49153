"""The caller's own connection as a way into the store: jobs that are there if, and only if, the caller commits.

Its transaction stays as it is: one statement runs on a cursor of our own, and its errors are its owner's, who began the
transaction and has to roll it back. The news goes out within it, so PostgreSQL tells it when it is committed.
"""

import sys
from collections.abc import Sequence
from typing import Any, Protocol

from tarry.errors import OtherDatabase, StoreError
from tarry.model.job import Job
from tarry.store.postgres import sql
from tarry.store.postgres.connection import Connections
from tarry.store.postgres.link import Row
from tarry.store.postgres.ringing import WORK, channel
from tarry.store.postgres.rows import CODE
from tarry.store.postgres.url import Place
from tarry.store.shared.theirs import NO_TRANSACTION, is_a, is_alchemy, underneath

ACCEPTED = (
    "a connection or cursor of psycopg or psycopg2, a Connection or Session of SQLAlchemy (with aenqueue also the"
    " asynchronous ones) on one of these, or a connection of Django"
)
_TYPES = (
    "uuid[]", "int[]", "bigint[]", "bigint[]", "bytea[]", "text[]", "text[]", "bigint[]", "smallint[]", "int[]",
    "int[]", "int[]", "bigint[]", "bigint[]", "text[]", "bytea[]", "bigint[]", "bigint[]", "text[]", "bytea[]",
    "bytea[]", "boolean", "boolean", "text", "text",
)  # fmt: skip
_INSERT = f"SELECT place, lives FROM {{s}}.insert_v1({', '.join(f'%s::{kind}' for kind in _TYPES)})"
_HERE = "SELECT to_regclass('{s}.about') IS NOT NULL"
_IDENTITY = """SELECT current_database()::text, (SELECT system_identifier::text FROM pg_control_system()),
    (SELECT value FROM {s}.about WHERE name = 'identity')"""
_DRIVERS = ("psycopg", "psycopg2.extensions")


class _Theirs(Protocol):
    driver: Any
    """The driver's connection."""

    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[Row]: ...


class _OfDriver:
    """A connection of psycopg or psycopg2."""

    def __init__(self, connection: Any) -> None:
        self.driver = connection

    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        # Not connection.cursor(): that one would come with the caller's row factory.
        if is_a(self.driver, "psycopg", "Connection"):
            cursor = sys.modules["psycopg"].Cursor(self.driver, row_factory=sys.modules["psycopg.rows"].tuple_row)
        else:
            cursor = self.driver.cursor(cursor_factory=sys.modules["psycopg2.extensions"].cursor)
        with cursor:
            cursor.execute(statement, tuple(values))
            return [tuple(row) for row in cursor.fetchall()]


class _OfAlchemy:
    """A SQLAlchemy `Connection`. Through its own API, so that it knows that a transaction has begun."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.driver = connection.connection.driver_connection

    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        return [tuple(row) for row in self._connection.exec_driver_sql(statement, tuple(values)).fetchall()]


def inserted_within(connection: Any, jobs: Sequence[Job], place: Place, connections: Connections) -> list[bytes]:
    """`Store.insert_within`."""
    theirs = _recognised(connection)
    _check_transactional(theirs.driver)
    _check_same(theirs, place, connections)
    statement = sql.at(_INSERT, place.schema)
    lives = [job.id for job in jobs]
    for start, id in theirs.rows(statement, _values(jobs, place)) if jobs else ():
        lives[start - 1] = bytes(id)
    return lives


def _values(jobs: Sequence[Job], place: Place) -> list[Any]:
    """Each job is of a kind of its own here: what is simple is the same through every driver. All are put `aside`, as
    nobody knows when the caller will commit."""
    columns = zip(
        *[
            (
                job.id.hex(), number, job.due, job.since, job.body, job.task, job.queue, -job.priority,
                CODE[job.state], job.epoch, job.failures, job.losses, job.until, job.expires, job.key, job.note,
                job.unique, job.holds, job.lane, job.headers, job.progress,
            )
            for number, job in enumerate(jobs, 1)
        ],
        strict=True,
    )  # fmt: skip
    keyed = any(job.key is not None for job in jobs)
    return [*map(list, columns), keyed, True, channel(place.schema, WORK) if place.notify else None, ""]


def _recognised(connection: Any) -> _Theirs:
    if is_a(connection, "psycopg", "Cursor") or is_a(connection, "psycopg2.extensions", "cursor"):
        connection = connection.connection
    connection = underneath(connection, ("postgresql",), "PostgreSQL")
    if is_a(connection, "psycopg", "Connection") or is_a(connection, "psycopg2.extensions", "connection"):
        return _OfDriver(connection)
    if is_alchemy(connection):
        _check_driver(connection.dialect.driver)
        return _OfAlchemy(connection)
    if is_a(connection, "psycopg", "AsyncConnection") or is_a(connection, "psycopg", "AsyncCursor"):
        raise TypeError(
            "connection= is psycopg's asynchronous one: give one of SQLAlchemy (AsyncSession), or a sync one"
        )
    if any(is_a(connection, *other) for other in _OTHERS):
        raise OtherDatabase("connection= is to another kind of database, and the jobs are kept in PostgreSQL")
    raise TypeError(f"connection={connection!r}: give {ACCEPTED}")


_OTHERS = (
    ("sqlite3", "Connection"), ("sqlite3", "Cursor"), ("apsw", "Connection"), ("apsw", "Cursor"),
    ("pymysql.connections", "Connection"), ("pymysql.cursors", "Cursor"), ("MySQLdb.connections", "Connection"),
)  # fmt: skip


def _check_driver(driver: str) -> None:
    if driver not in ("psycopg", "psycopg_async", "psycopg2"):
        raise TypeError(f"connection= is SQLAlchemy's on {driver}: use postgresql+psycopg:// (or psycopg2)")


def _check_transactional(driver: Any) -> None:
    """A transaction that is open counts also where each statement would be committed at once without one."""
    if driver.autocommit and not driver.info.transaction_status:
        raise StoreError(NO_TRANSACTION)


def _check_same(theirs: _Theirs, place: Place, connections: Connections) -> None:
    identity = sql.at(_IDENTITY, place.schema)
    ((here,),) = theirs.rows(sql.at(_HERE, place.schema))
    if not here or tuple(theirs.rows(identity)[0]) != connections.identity(identity):
        raise OtherDatabase(f"connection= is to another database than {place.url}, where the jobs are kept")
