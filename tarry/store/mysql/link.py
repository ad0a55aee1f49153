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
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, NamedTuple, cast
from weakref import WeakSet

import pymysql
from pymysql.constants import CLIENT

from tarry import errors
from tarry.store.mysql.address import Address
from tarry.store.mysql.errors import translated
from tarry.store.mysql.password import Guarded, NoOldPassword
from tarry.store.mysql.sql import for_older
from tarry.store.shared.deadline import left
from tarry.store.shared.turns import Turns

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
        self._patience = patience
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
        driver: Any = self._connection  # its stubs leave this out
        driver._read_timeout = driver._write_timeout = left(self._patience)
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

    @property
    def encrypted(self) -> bool:
        """Whether TLS is spoken."""
        return bool(self.rows("SHOW STATUS LIKE 'Ssl_cipher'")[0][1])

    def close(self) -> None:
        """Says goodbye, unless the connection was made by the process that we were forked from."""
        with contextlib.suppress(pymysql.err.Error, OSError):
            if self._pid == os.getpid():
                self._connection.close()


_inherited: list[list[Link]] = []
"""A parent's connections, kept in its forked child, where they are not ours to use or to close."""


class Links:
    """A few connections, lent to one thread at a time.

    An exception may come between any two steps, from a signal's handler for instance. So the lock is taken by `with`
    alone, which is one step, and links in use are counted by a weak set: one that is lost is not missed for ever.
    """

    def __init__(self, address: Address, most: int, patience: float) -> None:
        self._address, self._most, self._patience = address, most, patience
        self._closed = False
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._queue = Turns(self._lock)
        self._idle: list[Link] = []
        self._lent: WeakSet[Link | _Opening] = WeakSet()

    def lent(self) -> "Lent":
        """A connection; what it has not committed in the end is rolled back, and one that broke is not lent again."""
        return Lent(self)

    def take(self, taken: list[Link]) -> None:
        """Puts a connection into the list."""
        if self._pid != os.getpid():
            _inherited.append(self._idle)
            self._begin()
        opening = _Opening()
        with self._lock:
            if not self._queue.wait_for(self._any, left(self._address.timeout)):
                raise errors.StoreUnavailable(
                    f"{self._address.shown}: all {self._most} connections are busy for {self._address.timeout:g} s:"
                    " is the server halted? Else say connections=N in the URL, or timeout="
                )
            if self._idle:
                taken.append(self._idle.pop())
                self._lent.add(taken[0])
                taken[0].decided, taken[0].used = False, True
                return
            self._lent.add(opening)
        try:
            taken.append(self._made())
            self._lent.add(taken[0])
        finally:
            with self._lock:
                self._lent.discard(opening)
                if not taken:
                    self._queue.notify()

    def _any(self) -> bool:
        return bool(self._idle) or len(self._lent) < self._most

    def _made(self) -> Link:
        try:
            return Link(self._address, self._patience)
        except errors.StoreUnavailable as error:
            if type(error) is errors.StoreUnavailable:
                raise errors.StoreAway(str(error)) from None
            raise

    def give_back(self, link: Link, healthy: bool) -> None:
        """What `take` gave."""
        with self._lock:
            self._lent.discard(link)
            keep = healthy and not self._closed
            if keep:
                self._idle.append(link)
            self._queue.notify()
        if not keep:
            link.close()

    def drop_idle(self) -> None:
        """They may all be as broken as the one that just was."""
        if self._pid != os.getpid():
            return
        with self._lock:
            idle, self._idle = self._idle, []
        for link in idle:
            link.close()

    def close(self) -> None:
        """Those that are lent are closed when they come back."""
        self._closed = True
        self.drop_idle()


class Lent:
    """`with links.lent() as link:`."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._taken: list[Link] = []

    def __enter__(self) -> Link:
        try:
            self._links.take(self._taken)
            return self._taken[0]
        except BaseException:
            self._end(False)
            raise

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        healthy = kind is None
        try:
            (link,) = self._taken
            if kind is not None and issubclass(kind, Exception) and not link.amid:
                with contextlib.suppress(Exception):
                    link.run("ROLLBACK")
                    healthy = True
        finally:
            self._end(healthy)

    def _end(self, healthy: bool) -> None:
        while self._taken:
            self._links.give_back(self._taken.pop(), healthy)


class _Opening:
    """Somebody is about to have one connection more."""


class _Connection(pymysql.connections.Connection):
    """Makes the TLS context of connections that verify nothing once. The driver makes one for each try to connect, and
    reads all of the host's certificates for it: 25 ms of CPU, also where nobody listens."""

    _unverified: ClassVar[ssl.SSLContext | None] = None

    def _create_ssl_ctx(self, sslp: Any) -> ssl.SSLContext:
        driver: Any = super()  # its stubs leave this out
        if sslp != {}:
            return cast("ssl.SSLContext", driver._create_ssl_ctx(sslp))
        if _Connection._unverified is None:
            _Connection._unverified = driver._create_ssl_ctx(sslp)
        return _Connection._unverified


def _connected(address: Address, patience: float) -> "pymysql.connections.Connection[Any]":
    tls: dict[str, Any] = {}
    if address.tls == "no":
        tls = {"ssl_disabled": True}
    elif address.tls != "preferred":
        tls = {"ssl": _context(address)}
    return _Connection(
        host=address.host,
        port=address.port,
        unix_socket=address.socket,
        user=address.user,
        password=_password(address),
        auth_plugin_map={"mysql_old_password": NoOldPassword},
        database=address.database,
        charset="utf8mb4",
        client_flag=CLIENT.MULTI_STATEMENTS | CLIENT.FOUND_ROWS,
        connect_timeout=left(address.timeout),
        read_timeout=left(patience),
        write_timeout=left(patience),
        autocommit=True,
        program_name="tarry",
        **tls,
    )


def _context(address: Address) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=address.tls_ca)
    except (OSError, ssl.SSLError) as error:
        raise errors.ConfigError(f"{address.shown}?tls_ca={address.tls_ca}: {error}") from None
    # The authorities that MySQL makes for itself lack what the strict reading of X.509 asks for.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.check_hostname = address.tls == "verify"
    context.verify_mode = ssl.CERT_REQUIRED if address.verifies else ssl.CERT_NONE
    return context


def _password(address: Address) -> bytes:
    """It may go only to a server that is surely the one that is meant: TLS that is verified is also asked for."""
    password = address.password.encode()
    safe = address.cleartext or address.transport(encrypted=address.verifies).safe
    return password if safe or not password else Guarded(password)


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
