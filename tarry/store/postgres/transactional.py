"""Stores jobs in the caller's own transaction: they are stored if, and only if, the caller commits.

One statement runs on a cursor of our own. The caller gets its errors, and must roll back. NOTIFY is part of the
transaction, so PostgreSQL sends it at the commit.
"""

import itertools
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from tarry.errors import OtherDatabase, StoreError
from tarry.model.job import Job
from tarry.model.wake import WakeReason
from tarry.store.postgres import sql
from tarry.store.postgres.job_columns import NEW_TYPES, OF_KIND, OWN
from tarry.store.postgres.link.pool import PostgresPool
from tarry.store.postgres.link.url import PostgresUrl
from tarry.store.postgres.notify import channel
from tarry.store.rules.history.journal import record_of_new
from tarry.store.sql.caller_connection import (
    NO_TRANSACTION,
    PSYCOPG,
    PSYCOPG2,
    Accepted,
    Driver,
    alchemy_rows,
    is_a,
    recognise,
)
from tarry.store.sql.columns import Row, values_of

ACCEPTED = Accepted(
    ("postgresql",),
    "PostgreSQL",
    "a connection or cursor of psycopg or psycopg2, a Connection or Session of SQLAlchemy on one of these (with"
    " aenqueue also the asynchronous ones, on psycopg or asyncpg), or a connection of Django",
)
_TYPES = (*NEW_TYPES, "boolean", "boolean", "text", "text", "bytea")
_own, _of_kind = values_of(OWN[1:]), values_of(OF_KIND)
_INSERT = f"SELECT place, lives FROM {{s}}.insert_v1({', '.join(f'%s::{kind}' for kind in _TYPES)})"
_EXISTS = "SELECT to_regclass('{s}.about') IS NOT NULL"
# A copy of a database has the same `identity`; the server's identifier and the database's name tell the two apart.
_IDENTITY = """SELECT current_database()::text, (SELECT system_identifier::text FROM pg_control_system()),
    (SELECT value FROM {s}.about WHERE name = 'identity')"""


class CallerConnection(Protocol):
    """A caller's own connection."""

    @property
    def may_notify(self) -> bool:
        """Whether the transaction may send a NOTIFY."""

    def is_transactional(self) -> bool:
        """Whether a transaction is open, or the next statement begins one."""

    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        """The rows that a statement finds. Its values are at %s."""


class _DriverConnection:
    """A connection of psycopg or psycopg2."""

    may_notify = True

    def __init__(self, connection: Any) -> None:
        self.driver = connection

    def is_transactional(self) -> bool:
        # With autocommit, too, the caller may have begun a transaction.
        return not self.driver.autocommit or bool(self.driver.info.transaction_status)

    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        # Not connection.cursor(): that one has the caller's row factory.
        if is_a(self.driver, "psycopg", "Connection"):
            cursor = sys.modules["psycopg"].Cursor(self.driver, row_factory=sys.modules["psycopg.rows"].tuple_row)
        else:
            cursor = self.driver.cursor(cursor_factory=sys.modules["psycopg2.extensions"].cursor)
        with cursor:
            cursor.execute(statement, tuple(values))
            return [tuple(row) for row in cursor.fetchall()]


class _AlchemyConnection:
    """A SQLAlchemy `Connection`."""

    def __init__(self, connection: Any) -> None:
        driver = connection.dialect.driver
        if driver not in ("psycopg", "psycopg_async", "psycopg2", "asyncpg"):
            raise TypeError(
                f"connection= is SQLAlchemy's on {driver}: use postgresql+psycopg:// (or psycopg2, asyncpg)"
            )
        self._connection, self._is_asyncpg = connection, driver == "asyncpg"

    @property
    def may_notify(self) -> bool:
        # PostgreSQL does not prepare a transaction with one. Then workers find the job when they look by themselves.
        return not is_a(self._connection.get_transaction(), "sqlalchemy.engine", "TwoPhaseTransaction")

    def is_transactional(self) -> bool:
        pooled = self._connection.connection
        if self._is_asyncpg:
            # The driver itself has no such mode: SQLAlchemy begins its transactions, or does not.
            return not pooled.dbapi_connection.autocommit or pooled.driver_connection.is_in_transaction()
        return _DriverConnection(pooled.driver_connection).is_transactional()

    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        if self._is_asyncpg:
            numbers = itertools.count(1)
            statement = re.sub("%s", lambda _: f"${next(numbers)}", statement)
        return alchemy_rows(self._connection, statement, tuple(values))


def insert_within(connection: Any, jobs: Sequence[Job], pool: PostgresPool) -> list[bytes]:
    """`Store.insert_within`."""
    return insert_jobs(caller_connection(connection, pool), jobs, pool.url)


def caller_connection(connection: Any, pool: PostgresPool) -> CallerConnection:
    """The connection, once it is known to be fit for inserts; the errors of `Store.insert_within`."""
    caller = _recognise(connection)
    if not caller.is_transactional():
        raise StoreError(NO_TRANSACTION)
    _check_same(caller, pool)
    return caller


def insert_jobs(caller: CallerConnection, jobs: Sequence[Job], url: PostgresUrl) -> list[bytes]:
    """Stores jobs through a caller's connection; answers the id under which each lives."""
    statement = sql.for_schema(_INSERT, url.schema)
    stored_ids = [job.id for job in jobs]
    for place, id in caller.rows(statement, _values(jobs, url, caller.may_notify)) if jobs else ():
        stored_ids[place - 1] = bytes(id)
    return stored_ids


def _values(jobs: Sequence[Job], url: PostgresUrl, may_notify: bool) -> list[Any]:
    """Arguments of `insert_v1`."""
    # Each job has a kind of its own: that is simple, and works with every driver.
    rows = [(number, job.id.hex(), *_own(job), *_of_kind(job)) for number, job in enumerate(jobs, 1)]
    columns = zip(*rows, strict=True)
    keyed = any(job.key is not None for job in jobs)
    # True: all are out of order, since nobody knows when the caller will commit.
    notice = channel(url.schema, WakeReason.WORK) if url.notify and may_notify else None
    return [*map(list, columns), keyed, True, notice, "", record_of_new(jobs)]


def _recognise(connection: Any) -> CallerConnection:
    if is_a(connection, "psycopg", "AsyncConnection") or is_a(connection, "psycopg", "AsyncCursor"):
        raise TypeError(
            "connection= is psycopg's asynchronous one: give one of SQLAlchemy (AsyncSession), or a sync one"
        )
    drivers: dict[Driver, Callable[[Any], CallerConnection]] = {PSYCOPG: _DriverConnection, PSYCOPG2: _DriverConnection}
    return recognise(connection, ACCEPTED, drivers, _AlchemyConnection)


def _check_same(caller: CallerConnection, pool: PostgresPool) -> None:
    url = pool.url
    identity = sql.for_schema(_IDENTITY, url.schema)
    # First whether the table is there: a failing statement would break the caller's transaction.
    ((exists,),) = caller.rows(sql.for_schema(_EXISTS, url.schema))
    if not exists or tuple(caller.rows(identity)[0]) != pool.identity(identity):
        raise OtherDatabase(f"connection= is to another database than {url.shown}, where the jobs are kept")
