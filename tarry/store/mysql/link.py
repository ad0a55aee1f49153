"""Connections to the server: each made ready for our work, a few at most, made anew when one breaks.

PyMySQL is the driver: maintained, pure Python, so it installs anywhere without a compiler or MySQL's headers. What it
costs is the reading of rows, so few columns are read (see `mysql.sql.PAYLOAD`). Many statements go in one packet and
one round trip.
"""

import contextlib
import os
import ssl
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pymysql
from pymysql.constants import CLIENT

from tarry import errors
from tarry.store.mysql.address import Address
from tarry.store.mysql.errors import translated
from tarry.store.mysql.sql import for_older

OLDEST = {"MariaDB": (10, 3), "MySQL": (8, 0)}
PASSES_BY_LOCKED = {"MariaDB": (10, 6), "MySQL": (8, 0, 1)}
"""Since when there is SKIP LOCKED."""
_READS_JSON = {"MariaDB": (10, 6), "MySQL": (8, 0, 4)}
"""Since when there is JSON_TABLE."""
_HEADROOM = 65_536
COMMIT = "COMMIT"
_TROUBLE = (pymysql.err.Error, OSError, EOFError, RuntimeError, ValueError, LookupError, AssertionError, struct.error)
"""The last ones where something answers that is no MySQL server."""
_OF_THE_CLIENT = range(2000, 3000)
"""Errors with other numbers are the server's: its answer was read to the end."""


class Answer(NamedTuple):
    """To one statement: what it found, or how many rows it changed."""

    rows: Sequence[tuple[Any, ...]]
    changed: int


class Link:
    """One connection. patience: seconds that an answer may take."""

    def __init__(self, address: Address, patience: float) -> None:
        self.address = address
        self.decided = False
        """Whether a COMMIT was sent: from then on what was asked may have been done, even if no answer came."""
        self.used = False
        """Whether it was lent before: then it may have broken since."""
        self.amid = False
        """An answer was not read to its end."""
        self._pid = os.getpid()
        with self._mapped():
            self._connection = _connected(address, patience)
            self.version = _version(self._connection, address)
            self._cursor = self._connection.cursor()
            self._cursor.execute(_session(self.version, patience))
            (self.number, packet), *_ = self._rows()
        kind, number = self.version
        self._older = number < _READS_JSON[kind] or not address.skip_locked
        self._most = min(int(packet), 2**24) - _HEADROOM

    def run(self, *statements: str) -> list[Answer]:
        """All of them in as few packets as the server takes; the answers. After an error those that follow were not
        run, and the transaction is to be rolled back."""
        answers: list[Answer] = []
        if self._older:
            statements = tuple(map(for_older, statements))
        self.decided = self.decided or COMMIT in statements
        with self._mapped():
            for packet in _packets(statements, self._most):
                self._cursor.execute(packet)
                answers += self._answers()
        return answers

    def rows(self, statement: str) -> Sequence[tuple[Any, ...]]:
        """What one statement finds."""
        return self.run(statement)[0].rows

    def _answers(self) -> Iterator[Answer]:
        cursor = self._cursor
        while True:
            yield Answer(cursor.fetchall() if cursor.description else (), cursor.rowcount)
            if not cursor.nextset():
                return

    def _rows(self) -> Sequence[tuple[Any, ...]]:
        return [answer.rows for answer in self._answers()][-1]

    @contextlib.contextmanager
    def _mapped(self) -> Iterator[None]:
        self.amid = True
        try:
            yield
        except _TROUBLE as error:
            self.amid = not (error.args and isinstance(error.args[0], int) and error.args[0] not in _OF_THE_CLIENT)
            raise translated(error, self.address) from None
        self.amid = False

    def close(self) -> None:
        """Says goodbye, unless the connection was made by the process that we were forked from."""
        with contextlib.suppress(pymysql.err.Error, OSError):
            if self._pid == os.getpid():
                self._connection.close()


class Links:
    """A few connections, lent to one thread at a time."""

    def __init__(self, address: Address, most: int, patience: float) -> None:
        self._address, self._most, self._patience = address, most, patience
        self._free = threading.Condition()
        self._idle: list[Link] = []
        self._lent = 0
        self._closed = False

    @contextlib.contextmanager
    def lent(self) -> Iterator[Link]:
        """A connection; what it has not committed in the end is rolled back, and one that broke is not lent again."""
        link = self._taken()
        healthy = False
        try:
            yield link
            healthy = True
        except Exception:
            if not link.amid:
                with contextlib.suppress(Exception):
                    link.run("ROLLBACK")
                    healthy = True
            raise
        finally:
            self._given_back(link, healthy)

    def _taken(self) -> Link:
        end = time.monotonic() + self._address.timeout
        with self._free:
            while not self._idle and self._lent >= self._most:
                if not self._free.wait(end - time.monotonic()):
                    raise errors.StoreUnavailable(
                        f"{self._address.shown}: all {self._most} connections are busy for {self._address.timeout:g} s:"
                        " is the server halted? Else say connections=N in the URL, or timeout="
                    )
            self._lent += 1
            link = self._idle.pop() if self._idle else None
        if link is None:
            return self._made()
        link.decided, link.used = False, True
        return link

    def _made(self) -> Link:
        try:
            return Link(self._address, self._patience)
        except BaseException as error:
            with self._free:
                self._lent -= 1
                self._free.notify()
            if type(error) is errors.StoreUnavailable:
                raise errors.StoreAway(str(error)) from None
            raise

    def _given_back(self, link: Link, healthy: bool) -> None:
        with self._free:
            self._lent -= 1
            keep = healthy and not self._closed
            if keep:
                self._idle.append(link)
            self._free.notify()
        if not keep:
            link.close()

    def drop_idle(self) -> None:
        """They may all be as broken as the one that just was."""
        with self._free:
            idle, self._idle = self._idle, []
        for link in idle:
            link.close()

    def close(self) -> None:
        """Those that are lent are closed when they come back."""
        self._closed = True
        self.drop_idle()


def _connected(address: Address, patience: float) -> "pymysql.connections.Connection[Any]":
    tls: dict[str, Any] = {}
    if address.tls == "no":
        tls = {"ssl_disabled": True}
    elif address.tls != "preferred":
        tls = {"ssl": _context(address)}
    return pymysql.connect(
        host=address.host,
        port=address.port,
        unix_socket=address.socket,
        user=address.user,
        password=address.password.encode(),
        database=address.database,
        charset="utf8mb4",
        client_flag=CLIENT.MULTI_STATEMENTS | CLIENT.FOUND_ROWS,
        connect_timeout=address.timeout,
        read_timeout=patience,
        write_timeout=patience,
        autocommit=True,
        program_name="tarry",
        **tls,
    )


def _context(address: Address) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=address.tls_ca)
    except (OSError, ssl.SSLError) as error:
        raise errors.ConfigError(f"{address.shown}?tls_ca={address.tls_ca}: {error}") from None
    if address.tls != "verify":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _version(connection: "pymysql.connections.Connection[Any]", address: Address) -> tuple[str, tuple[int, ...]]:
    """Whose server it is, and its version; ConfigError if it is too old."""
    driver: Any = connection  # its stubs leave this out
    said = str(driver.server_version)
    kind = "MariaDB" if "mariadb" in said.lower() else "MySQL"
    number = said.removeprefix("5.5.5-") if kind == "MariaDB" else said
    version = tuple(int(part) for part in number.split("-")[0].split("+")[0].split(".")[:3] if part.isdigit())
    if version < OLDEST[kind]:
        oldest = ".".join(map(str, OLDEST[kind]))
        raise errors.ConfigError(f"{address.shown} is {kind} {number}: tarry needs {kind} {oldest} or newer")
    return kind, version


def _session(version: tuple[str, tuple[int, ...]], patience: float) -> str:
    kind, _ = version
    own = "in_predicate_conversion_threshold=0" if kind == "MariaDB" else "range_optimizer_max_mem_size=0"
    return (
        "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; SET SESSION sql_mode='STRICT_ALL_TABLES',"
        f" SESSION time_zone='+00:00', SESSION innodb_lock_wait_timeout={max(1, int(patience * 0.6))}, SESSION {own};"
        " SELECT CONNECTION_ID(), @@max_allowed_packet"
    )


def _packets(statements: Sequence[str], most: int) -> Iterator[str]:
    """Statements, as many at once as fit."""
    packet: list[str] = []
    size = 0
    for statement in statements:
        if packet and size + len(statement) > most:
            yield ";".join(packet)
            packet, size = [], 0
        packet.append(statement)
        size += len(statement) + 1
    if packet:
        yield ";".join(packet)
