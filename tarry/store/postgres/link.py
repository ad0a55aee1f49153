"""One connection to PostgreSQL: every wait bounded in time, one type for each kind of value, no goodbye after a
fork."""

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
from tarry.store.postgres.password import guarded
from tarry.store.postgres.url import Place
from tarry.store.shared.deadline import left

Row = tuple[Any, ...]
OLDEST = 130000
"""As the driver writes versions: 13."""


class Packed(bytes):
    """An array in PostgreSQL's binary form; a class for each kind of element."""


class Uuids(Packed):
    """`uuid[]`."""


class Ints(Packed):
    """`int[]`."""


class SmallInts(Packed):
    """`smallint[]`."""


class BigInts(Packed):
    """`bigint[]`."""


class Texts(Packed):
    """`text[]`."""


class Blobs(Packed):
    """`bytea[]`."""


class _PackedDumper(Dumper):
    format = Format.BINARY

    def dump(self, obj: Any) -> Buffer | None:
        return bytes(obj)


def _adapters() -> AdaptersMap:
    adapters = AdaptersMap(psycopg.adapters)
    # One type for each kind of value, however great or small: then a statement is prepared once.
    adapters.register_dumper(int, Int8BinaryDumper)
    adapters.register_dumper(str, StrBinaryDumper)
    for kind, oid in ((Uuids, 2951), (Ints, 1007), (SmallInts, 1005), (BigInts, 1016), (Texts, 1009), (Blobs, 1001)):
        adapters.register_dumper(kind, type(f"{kind.__name__}Dumper", (_PackedDumper,), {"oid": oid}))
    return adapters


ADAPTERS = _adapters()


class Link(psycopg.Connection[Row]):
    """One connection. Every wait for the server ends after `seconds`."""

    seconds = 5.0
    made_in = 0

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        return super().wait(gen, interval, left(self.seconds) if timeout is None else timeout)

    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        """What the statement answers; its parameters are $1, $2 ..."""
        cursor = psycopg.RawCursor(self, row_factory=tuple_row)
        return cursor.execute(statement, values, binary=True).fetchall()

    def run(self, statement: str, values: Sequence[Any] = ()) -> int:
        """How many rows the statement changed. Without values there may be several, parted by semicolons."""
        cursor = psycopg.RawCursor(self, row_factory=tuple_row)
        if not values:
            return cursor.execute(statement, prepare=False).rowcount
        return cursor.execute(statement, values).rowcount

    @contextlib.contextmanager
    def transaction_of(self, *first: str) -> Iterator["Link"]:
        """A transaction that begins with these; committed at the end, rolled back by an error."""
        self.run("; ".join(("BEGIN", *first)))
        try:
            yield self
        except BaseException:
            with contextlib.suppress(psycopg.Error):
                self.run("ROLLBACK")
            raise
        self.run("COMMIT")

    @property
    def usable(self) -> bool:
        """Nothing is left over, and the server has not said goodbye while nobody looked."""
        if self.pgconn.status != ConnStatus.OK or self.pgconn.transaction_status != TransactionStatus.IDLE:
            return False
        waiter = select.poll()
        waiter.register(self.pgconn.socket, select.POLLIN | select.POLLHUP | select.POLLERR)
        if waiter.poll(0):
            with contextlib.suppress(psycopg.Error):
                self.pgconn.consume_input()
                return self.pgconn.status == ConnStatus.OK and not waiter.poll(0)
            return False
        return True

    def leave(self) -> None:
        """Closes it; an inherited one is only let go of: its goodbye would end that of the parent."""
        if self.made_in == os.getpid():
            self.close()

    def __del__(self, *_: Any) -> None:
        """Left open on purpose where it is another process's."""


def connected(place: Place) -> Link:
    """A new connection; raises what the driver raises, and ConfigError for a server that is too old."""
    given = guarded(place)
    if place.notify:
        given["options"] = f"{_options(place)} {given.get('options', '')}".strip()
    defaults = {
        "connect_timeout": str(max(2, round(left(place.seconds)))),
        "fallback_application_name": "tarry",
        "tcp_user_timeout": f"{place.seconds * 1000:.0f}",
        "keepalives_idle": "10",
    }
    link = Link.connect(
        **(defaults | given),
        client_encoding="UTF8",
        autocommit=True,
        prepare_threshold=0 if place.notify else None,
        context=ADAPTERS,
    )
    # The server's own limit comes first, so that the connection can be kept.
    link.made_in, link.seconds = os.getpid(), place.seconds + (0.5 if place.notify else 0)
    link.prepared_max = 200
    try:
        _check(link, place)
    except BaseException:
        link.leave()
        raise
    return link


def _options(place: Place) -> str:
    """What the server watches too: a command whose client is gone must not go on for ever. And a plan that was made
    when the tables were small must not be to read them whole."""
    limit = f"{place.seconds * 1000:.0f}"
    plans = "-c jit=off -c enable_seqscan=off"
    return f"-c statement_timeout={limit} -c idle_in_transaction_session_timeout={limit} {plans}"


def _check(link: Link, place: Place) -> None:
    if link.info.server_version < OLDEST:
        raise ConfigError(
            f"{place.url}: PostgreSQL {link.info.server_version // 10000} is too old: 13 or later is needed"
        )
    encoding = link.info.parameter_status("server_encoding")
    if encoding not in (None, "UTF8"):
        raise ConfigError(
            f"{place.url}: the database's encoding is {encoding}: tarry needs one in UTF8 (createdb -E UTF8)"
        )
