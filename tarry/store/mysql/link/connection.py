"""Connections to the server: each prepared for our work, a few at most, made anew when one breaks.

PyMySQL is the driver: maintained and pure Python, so it installs anywhere without a compiler or MySQL's headers. It is
slow at reading rows, so few columns are read (see `mysql.sql.PAYLOAD`). Many statements go in one packet and one round
trip.
"""

import contextlib
import os
import ssl
import struct
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, NamedTuple, cast

# From the modules and not by way of `pymysql.err`: `pymysql.install_as_MySQLdb()` and Django put copies of them there.
from pymysql.connections import Connection
from pymysql.constants import CLIENT
from pymysql.err import Error

from tarry import errors
from tarry.store.mysql.link.address import Address
from tarry.store.mysql.link.literals import for_older
from tarry.store.mysql.link.mysql_errors import translate
from tarry.store.mysql.link.password import Guarded, NoOldPassword
from tarry.store.shared.deadline import left
from tarry.store.shared.pool import ConnectionPool, Loan

OLDEST = {"MariaDB": (10, 3), "MySQL": (8, 0)}
PASSES_BY_LOCKED = {"MariaDB": (10, 6), "MySQL": (8, 0, 1)}
"""The first versions with SKIP LOCKED."""
_READS_JSON = {"MariaDB": (10, 6), "MySQL": (8, 0, 4)}
"""The first versions with JSON_TABLE."""
_HEADROOM = 65_536
COMMIT = "COMMIT"
# From RuntimeError on: what the driver raises if something answers that is no MySQL server.
_TROUBLE = (Error, OSError, EOFError, RuntimeError, ValueError, LookupError, AssertionError, struct.error)
# An error with another number is the server's: its answer was read to the end.
_OF_THE_CLIENT = range(2000, 3000)
"""The numbers of the client's own errors."""


class StatementResult(NamedTuple):
    """The answer to one statement: the rows that it found, or how many it changed."""

    rows: Sequence[tuple[Any, ...]]
    changed: int


class MysqlConnection:
    """One connection. patience: seconds that an answer may take."""

    def __init__(self, address: Address, patience: float) -> None:
        self.address = address
        self._patience = patience
        self.decided = False
        """Whether a COMMIT was sent: the work may then be done, even if no answer came."""
        self.used = False
        """Whether it was lent before: it may have broken since."""
        self.amid = False
        """Whether an answer was not read to its end."""
        self._pid = os.getpid()
        with self._translate_errors(connecting=True):
            self._connection = _connect(address, patience)
            self.version = _version(self._connection, address)
            self._cursor = self._connection.cursor()
            self._cursor.execute(_session(self.version, patience))
            (self.number, packet), *_ = self._rows()
        kind, number = self.version
        self._older = number < _READS_JSON[kind] or not address.skip_locked
        self._most = min(int(packet), 2**24) - _HEADROOM

    def run(self, *statements: str) -> list[StatementResult]:
        """Runs all statements in as few packets as the server takes. After an error the statements behind it have not
        run, and the transaction has to be rolled back."""
        answers: list[StatementResult] = []
        if self._older:
            statements = tuple(map(for_older, statements))
        self.decided = self.decided or COMMIT in statements
        driver: Any = self._connection  # its stubs leave this out
        # For each call anew: the deadline of the caller may be nearer than the connection's own limit.
        driver._read_timeout = driver._write_timeout = left(self._patience)
        with self._translate_errors():
            for packet in _packets(statements, self._most):
                self._cursor.execute(packet)
                answers += self._answers()
        return answers

    def rows(self, statement: str) -> Sequence[tuple[Any, ...]]:
        """The rows that one statement finds."""
        return self.run(statement)[0].rows

    def _answers(self) -> Iterator[StatementResult]:
        cursor = self._cursor
        while True:
            yield StatementResult(cursor.fetchall() if cursor.description else (), cursor.rowcount)
            if not cursor.nextset():
                return

    def _rows(self) -> Sequence[tuple[Any, ...]]:
        return [answer.rows for answer in self._answers()][-1]

    @contextlib.contextmanager
    def _translate_errors(self, connecting: bool = False) -> Iterator[None]:
        # True until the answer is read: other exceptions than errors, such as KeyboardInterrupt, leave it so.
        self.amid = True
        try:
            yield
        except _TROUBLE as error:
            self.amid = not (error.args and isinstance(error.args[0], int) and error.args[0] not in _OF_THE_CLIENT)
            raise translate(error, self.address, connecting) from None
        self.amid = False

    @property
    def is_encrypted(self) -> bool:
        """Whether the connection uses TLS."""
        return bool(self.rows("SHOW STATUS LIKE 'Ssl_cipher'")[0][1])

    def close(self) -> None:
        """Closes the connection, unless the parent process of a fork made it."""
        # A goodbye on the inherited socket would end the parent's session.
        with contextlib.suppress(Error, OSError):
            if self._pid == os.getpid():
                self._connection.close()


class MysqlPool(ConnectionPool[MysqlConnection]):
    """A few connections. After a failed loan its transaction is rolled back. patience: as in `MysqlConnection`."""

    def __init__(self, address: Address, most: int, patience: float) -> None:
        super().__init__(most)
        self._address, self._patience = address, patience

    def lent(self) -> Loan[MysqlConnection]:
        """Lends a connection: `with links.lent() as link:`."""
        return self.lend(self._address.timeout)

    def _open(self, end: float) -> MysqlConnection:
        try:
            return MysqlConnection(self._address, self._patience)
        except errors.StoreUnavailable as error:
            if type(error) is errors.StoreUnavailable:
                raise errors.StoreAway(str(error)) from None
            raise

    def _prepare(self, connection: MysqlConnection) -> bool:
        connection.decided, connection.used = False, True
        return True

    def _restore(self, connection: MysqlConnection, error: BaseException | None) -> bool:
        if error is None:
            return True
        # With an answer still unread, the next statement would read that one as its own.
        if isinstance(error, Exception) and not connection.amid:
            with contextlib.suppress(Exception):
                connection.run("ROLLBACK")
                return True
        return False

    def _discard(self, connection: MysqlConnection) -> None:
        connection.close()

    def _busy_error(self) -> Exception:
        return errors.StoreUnavailable(
            f"{self._address.shown}: all {self._most} connections are busy for {self._address.timeout:g} s:"
            " is the server halted? Else say connections=N in the URL, or timeout="
        )


class _MySqlConnection(Connection):
    """Shares one TLS context between all connections that verify nothing."""

    # The driver makes a context for each attempt to connect and reads all certificates of the host for it: 25 ms of
    # CPU, even if no server listens.
    _unverified: ClassVar[ssl.SSLContext | None] = None

    def _create_ssl_ctx(self, sslp: Any) -> ssl.SSLContext:
        driver: Any = super()  # its stubs leave this out
        if sslp != {}:
            return cast("ssl.SSLContext", driver._create_ssl_ctx(sslp))
        if _MySqlConnection._unverified is None:
            _MySqlConnection._unverified = driver._create_ssl_ctx(sslp)
        return _MySqlConnection._unverified


def _connect(address: Address, patience: float) -> "Connection[Any]":
    tls: dict[str, Any] = {}
    if address.tls == "no":
        tls = {"ssl_disabled": True}
    elif address.tls != "preferred":
        tls = {"ssl": _context(address)}
    return _MySqlConnection(
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
    # The authorities that MySQL makes for itself lack what strict X.509 checks require.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.check_hostname = address.tls == "verify"
    context.verify_mode = ssl.CERT_REQUIRED if address.verifies else ssl.CERT_NONE
    return context


def _password(address: Address) -> bytes:
    """The password, guarded unless the connection will prove who the server is."""
    # Not by whether the connection turns out to be encrypted: only TLS that the URL makes us verify is proof.
    password = address.password.encode()
    safe = address.cleartext or address.transport(encrypted=address.verifies).safe
    return password if safe or not password else Guarded(password)


def _version(connection: "Connection[Any]", address: Address) -> tuple[str, tuple[int, ...]]:
    """MySQL or MariaDB, and the version; ConfigError if it is too old."""
    driver: Any = connection  # its stubs leave this out
    said = str(driver.server_version)
    kind = "MariaDB" if "mariadb" in said.lower() else "MySQL"
    # MariaDB may put 5.5.5- before its real version.
    number = said.removeprefix("5.5.5-") if kind == "MariaDB" else said
    version = tuple(int(part) for part in number.split("-")[0].split("+")[0].split(".")[:3] if part.isdigit())
    if version < OLDEST[kind]:
        oldest = ".".join(map(str, OLDEST[kind]))
        raise errors.ConfigError(f"{address.shown} is {kind} {number}: tarry needs {kind} {oldest} or newer")
    return kind, version


def _session(version: tuple[str, tuple[int, ...]], patience: float) -> str:
    kind, _ = version
    # Without these limits the servers turn a long list of ids into a join or into a scan of the whole table.
    own = "in_predicate_conversion_threshold=0" if kind == "MariaDB" else "range_optimizer_max_mem_size=0"
    return (
        "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; SET SESSION sql_mode='STRICT_ALL_TABLES',"
        f" SESSION time_zone='+00:00', SESSION innodb_lock_wait_timeout={max(1, int(patience * 0.6))}, SESSION {own},"
        # A server may have it on for all, to protect people at a prompt: statements without a key in WHERE fail then.
        " SESSION sql_safe_updates=0;"
        " SELECT CONNECTION_ID(), @@max_allowed_packet"
    )


def _packets(statements: Sequence[str], most: int) -> Iterator[str]:
    """The statements in packets, as many in each as fit."""
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
