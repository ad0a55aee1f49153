"""One connection to PostgreSQL: each wait has a limit, each kind of value has one type."""

import contextlib
import os
import select
from collections.abc import Iterator, Sequence
from typing import Any

import psycopg
from psycopg.adapt import AdaptersMap, Buffer, Dumper
from psycopg.pq import ConnStatus, Format, TransactionStatus
from psycopg.rows import tuple_row
from psycopg.types.numeric import Int8BinaryDumper
from psycopg.types.string import StrBinaryDumper

from tarry.errors import ConfigError
from tarry.store.postgres.link.password import connect_options
from tarry.store.postgres.link.url import PostgresUrl
from tarry.store.shared.deadline import left
from tarry.store.sql.columns import Row

OLDEST = 130000
"""Version 13, as the driver writes it."""


class BinaryArray(bytes):
    """An array in PostgreSQL's binary form. Each subclass is for one type of elements."""


class UuidArray(BinaryArray):
    """`uuid[]`."""


class IntArray(BinaryArray):
    """`int[]`."""


class SmallIntArray(BinaryArray):
    """`smallint[]`."""


class BigIntArray(BinaryArray):
    """`bigint[]`."""


class TextArray(BinaryArray):
    """`text[]`."""


class ByteaArray(BinaryArray):
    """`bytea[]`."""


_ARRAY_OIDS = {
    UuidArray: 2951, IntArray: 1007, SmallIntArray: 1005, BigIntArray: 1016, TextArray: 1009, ByteaArray: 1001
}  # fmt: skip


class _ArrayDumper(Dumper):
    format = Format.BINARY

    def dump(self, obj: Any) -> Buffer | None:
        return bytes(obj)


def _adapters() -> AdaptersMap:
    adapters = AdaptersMap(psycopg.adapters)
    # One type for each kind of value: by default the driver chooses the type of an int by its size, and a statement
    # with other types is prepared once more.
    adapters.register_dumper(int, Int8BinaryDumper)
    adapters.register_dumper(str, StrBinaryDumper)
    for kind, oid in _ARRAY_OIDS.items():
        adapters.register_dumper(kind, type(f"{kind.__name__}Dumper", (_ArrayDumper,), {"oid": oid}))
    return adapters


ADAPTERS = _adapters()


class PostgresConnection(psycopg.Connection[Row]):
    """One connection. Each wait for the server ends after `timeout` seconds."""

    timeout = 5.0
    owner_pid = 0

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        return super().wait(gen, interval, left(self.timeout) if timeout is None else timeout)

    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        """The rows that the statement returns. Its parameters are $1, $2 ..."""
        cursor = psycopg.RawCursor(self, row_factory=tuple_row)
        return cursor.execute(statement, values, binary=True).fetchall()

    def run(self, statement: str, values: Sequence[Any] = ()) -> int:
        """Runs the statement; answers how many rows it changed. Without values it may be several statements (`;`)."""
        cursor = psycopg.RawCursor(self, row_factory=tuple_row)
        # Several statements in one text cannot be prepared.
        if not values:
            return cursor.execute(statement, prepare=False).rowcount
        return cursor.execute(statement, values).rowcount

    @contextlib.contextmanager
    def transaction_with(self, *settings: str) -> Iterator["PostgresConnection"]:
        """A transaction that begins with these SET statements. Commits at the end; an error rolls back."""
        # BEGIN and settings in one round trip.
        self.run("; ".join(("BEGIN", *settings)))
        try:
            yield self
        except BaseException:
            # If the connection broke, the first error is the one to see; the server rolls back by itself.
            with contextlib.suppress(psycopg.Error):
                self.run("ROLLBACK")
            raise
        self.run("COMMIT")

    @property
    def is_idle(self) -> bool:
        """Whether it is open and in no transaction."""
        return self.pgconn.status == ConnStatus.OK and self.pgconn.transaction_status == TransactionStatus.IDLE

    @property
    def is_usable(self) -> bool:
        """Whether it is idle, and the server has not closed it meanwhile."""
        if not self.is_idle:
            return False
        # An idle server sends only notices, or the end of the connection. After a notice is read, nothing more is
        # there; after the end, the socket stays readable.
        waiter = select.poll()
        waiter.register(self.pgconn.socket, select.POLLIN | select.POLLHUP | select.POLLERR)
        if waiter.poll(0):
            with contextlib.suppress(psycopg.Error):
                self.pgconn.consume_input()
                return self.pgconn.status == ConnStatus.OK and not waiter.poll(0)
            return False
        return True

    def discard(self) -> None:
        """Closes it; does nothing in a forked child."""
        # The driver tells the server goodbye, which would end the parent's connection.
        if self.owner_pid == os.getpid():
            self.close()

    def __del__(self, *_: Any) -> None:
        """Does nothing. The driver would warn of a connection left open, also in a child that must not close it."""


def connect(url: PostgresUrl) -> PostgresConnection:
    """A new connection. Raises the driver's errors, and ConfigError if the server is not fit for tarry."""
    given = connect_options(url)
    # A pooler refuses session settings, or gives a session with them to others.
    if url.notify:
        given["options"] = f"{_options(url)} {given.get('options', '')}".strip()
    defaults = {
        "connect_timeout": str(max(2, round(left(url.timeout)))),
        "fallback_application_name": "tarry",
        "tcp_user_timeout": f"{url.timeout * 1000:.0f}",
        "keepalives_idle": "10",
    }
    # Prepared at the first use, since most statements come again; but not behind a pooler, where the next transaction
    # may be on another session, which does not know the statement.
    connection = PostgresConnection.connect(
        **(defaults | given),
        client_encoding="UTF8",
        autocommit=True,
        prepare_threshold=0 if url.notify else None,
        context=ADAPTERS,
    )
    # The server's own limit (`_options`) ends first. Its error leaves the connection usable; ours would not.
    connection.owner_pid, connection.timeout = os.getpid(), url.timeout + (0.5 if url.notify else 0)
    connection.prepared_max = 200
    try:
        _check(connection, url)
    except BaseException:
        connection.discard()
        raise
    return connection


def _options(url: PostgresUrl) -> str:
    """Settings of the session."""
    # The server watches the time, too: a command whose client is gone must not go on for ever.
    limit = f"{url.timeout * 1000:.0f}"
    # A plan that was made when the tables were small must not read them whole.
    plans = "-c jit=off -c enable_seqscan=off"
    return f"-c statement_timeout={limit} -c idle_in_transaction_session_timeout={limit} {plans}"


def _check(connection: PostgresConnection, url: PostgresUrl) -> None:
    if connection.info.server_version < OLDEST:
        raise ConfigError(
            f"{url.shown}: PostgreSQL {connection.info.server_version // 10000} is too old: 13 or later is needed"
        )
    encoding = connection.info.parameter_status("server_encoding")
    if encoding not in (None, "UTF8"):
        raise ConfigError(
            f"{url.shown}: the database's encoding is {encoding}: tarry needs one in UTF8 (createdb -E UTF8)"
        )
