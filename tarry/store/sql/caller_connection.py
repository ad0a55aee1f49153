"""A connection of the caller, of any library: what every store checks before it writes through it."""

import sys
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from msgspec import Struct

from tarry.errors import OtherDatabase
from tarry.store.sql.columns import Row

T = TypeVar("T")

NO_TRANSACTION = (
    "connection= has no transaction open, and commits each statement at once: begin one first, or leave connection= out"
)


class Driver(Struct, frozen=True):
    """A library for connections. kind: of database, as SQLAlchemy names it."""

    kind: str
    connection: tuple[str, str]
    """Module and name of the class."""
    cursor: tuple[str, str]


APSW = Driver("sqlite", ("apsw", "Connection"), ("apsw", "Cursor"))
SQLITE3 = Driver("sqlite", ("sqlite3", "Connection"), ("sqlite3", "Cursor"))
PSYCOPG = Driver("postgresql", ("psycopg", "Connection"), ("psycopg", "Cursor"))
PSYCOPG2 = Driver("postgresql", ("psycopg2.extensions", "connection"), ("psycopg2.extensions", "cursor"))
PYMYSQL = Driver("mysql", ("pymysql.connections", "Connection"), ("pymysql.cursors", "Cursor"))
MYSQLCLIENT = Driver("mysql", ("MySQLdb.connections", "Connection"), ("MySQLdb.cursors", "BaseCursor"))
DRIVERS = (APSW, SQLITE3, PSYCOPG, PSYCOPG2, PYMYSQL, MYSQLCLIENT)


class Accepted(Struct, frozen=True):
    """The connections that a store takes. kept: the name, for people, of the kind of database in which the jobs are."""

    kinds: Collection[str]
    kept: str
    what: str
    """All of them, for people."""


def is_a(value: Any, module: str, name: str) -> bool:
    """Whether the value is of that class."""
    # The module is not imported: a caller that has such a value has loaded it.
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(value, getattr(loaded, name, ()))


def recognise(
    connection: Any, accepted: Accepted, drivers: Mapping[Driver, Callable[[Any], T]], alchemy: Callable[[Any], T]
) -> T:
    """What is made of the connection: by its driver's function, or by `alchemy` of a `Connection` of SQLAlchemy, also
    of that within its Session. Django's, and a cursor, lead to the driver's connection.

    OtherDatabase if it is to a database of another kind; TypeError if it is no known kind of connection.
    """
    if any(is_a(connection, *driver.cursor) for driver in DRIVERS):
        connection = connection.connection
    connection = _underneath(connection, accepted)
    if _is_alchemy(connection):
        return alchemy(connection)
    for driver in DRIVERS:
        if is_a(connection, *driver.connection):
            _check_kind(driver.kind, accepted)
            return drivers[driver](connection)
    raise TypeError(f"connection={connection!r}: give {accepted.what}")


def alchemy_rows(connection: Any, statement: str, values: Any = ()) -> list[Row]:
    """The rows that a statement finds, if it is one that finds some. values: a tuple, or a dict by name."""
    # By SQLAlchemy's own API, so that it knows that a transaction has begun and commits it.
    result = connection.exec_driver_sql(statement, values or None)
    return [tuple(row) for row in result.fetchall()] if result.returns_rows else []


def _is_alchemy(connection: Any) -> bool:
    return is_a(connection, "sqlalchemy.engine", "Connection")


def _underneath(connection: Any, accepted: Accepted) -> Any:
    if is_a(connection, "sqlalchemy.orm", "Session"):
        # Checked before the next line, which opens a connection and begins a transaction.
        _check_kind(_bind(connection).dialect.name, accepted)
        connection = connection.connection()
    if _is_alchemy(connection):
        _check_kind(connection.dialect.name, accepted)
    elif _is_django(connection):
        _check_kind(connection.vendor, accepted)
        # Django connects at the first query: before it there is no driver's connection.
        connection.ensure_connection()
        # What is written in a transaction that failed is lost at its rollback.
        connection.validate_no_broken_transaction()
        return connection.connection
    return connection


def _bind(session: Any) -> Any:
    try:
        return session.get_bind()
    except sys.modules["sqlalchemy.exc"].UnboundExecutionError:
        raise OtherDatabase("connection= is a Session without a database of its own") from None


def _is_django(connection: Any) -> bool:
    return is_a(connection, "django.db.backends.base.base", "BaseDatabaseWrapper") or is_a(
        connection, "django.utils.connection", "ConnectionProxy"
    )


def _check_kind(kind: str, accepted: Accepted) -> None:
    if kind not in accepted.kinds:
        raise OtherDatabase(f"connection= is to a {kind} database, and the jobs are kept in {accepted.kept}")
