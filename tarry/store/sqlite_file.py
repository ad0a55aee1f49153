"""A SQLite file opened the way a queue needs it: journal, durability, schema, waiting for one's turn, and errors.

Through apsw, which brings a current SQLite of its own: the library's versions up to 3.51.2 could damage a database
with several writers when the write-ahead log was reset.
"""

import contextlib
import random
import time
from collections.abc import Iterator
from pathlib import Path

import apsw

from tarry import errors

APPLICATION_ID = 0x74617279  # "tary": how `file` and we tell our databases from others
SCHEMA_VERSION = 1
BUSY_LIMIT = 5.0

SCHEMA = """
CREATE TABLE job (
    n        INTEGER PRIMARY KEY,
    id       BLOB NOT NULL UNIQUE,
    state    INTEGER NOT NULL,
    queue    TEXT NOT NULL,
    rank     INTEGER NOT NULL,
    due      INTEGER NOT NULL,
    epoch    INTEGER NOT NULL,
    failures INTEGER NOT NULL,
    losses   INTEGER NOT NULL,
    owner    TEXT,
    since    INTEGER NOT NULL,
    until    INTEGER NOT NULL,
    expires  INTEGER NOT NULL,
    key      TEXT,
    task     TEXT NOT NULL,
    body     BLOB NOT NULL,
    note     BLOB NOT NULL
) STRICT;
CREATE INDEX ready     ON job (queue, rank, due, id) WHERE state = 1;
CREATE INDEX scheduled ON job (due, id)              WHERE state = 0;
CREATE INDEX running   ON job (owner)                WHERE state = 2;
CREATE INDEX finished  ON job (until, id)            WHERE state >= 3;
CREATE UNIQUE INDEX key ON job (task, key)           WHERE key IS NOT NULL AND state < 3;
CREATE TABLE owner  (name TEXT PRIMARY KEY, until INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE hold   (name TEXT PRIMARY KEY, owner TEXT NOT NULL, until INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE paused (queue TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;
"""


def opened(path: Path, durable: bool) -> apsw.Connection:
    """A connection in WAL mode with the schema in place.

    durable: every commit is fsynced (FULL). Otherwise commits wait for the next checkpoint (NORMAL): after a power
    cut the last ones may be missing, which for a claim or an outcome means that a job runs once more.
    """
    if not path.parent.is_dir():
        raise errors.StoreUnavailable(f"{path}: the directory {path.parent} does not exist; create it first")
    with mapped(path):
        connection = apsw.Connection(str(path))
        try:
            _prepare(connection, path, durable)
        except BaseException:
            connection.close(True)
            raise
    return connection


def _prepare(connection: apsw.Connection, path: Path, durable: bool) -> None:
    connection.set_busy_handler(TakeTurn(*(PRODUCERS if durable else WORKERS)))
    if connection.readonly("main"):
        raise errors.StoreReadOnly(f"{path} is read-only: make it and its directory writable for this user")
    with connection:  # one look at the file as it is at one moment: another process may be making its schema
        _check_ours(connection, path)
    _to_wal(connection)
    connection.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
    connection.execute("PRAGMA cache_size=-65536")
    connection.execute("PRAGMA mmap_size=0")
    connection.execute("PRAGMA wal_autocheckpoint=2000")
    connection.execute("PRAGMA journal_size_limit=67108864")
    with transaction(connection):
        if not _check_ours(connection, path):
            connection.execute(SCHEMA)
            connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")


def _check_ours(connection: apsw.Connection, path: Path) -> bool:
    """True: our schema is there. False: the file is empty. Anything else is an error that changes nothing."""
    application, version = connection.pragma("application_id"), connection.pragma("user_version")
    if application == APPLICATION_ID:
        if version > SCHEMA_VERSION:
            raise errors.StoreNewer(
                f"{path} has schema {version}, this tarry knows {SCHEMA_VERSION}: upgrade tarry on this host"
            )
        return True
    if application or connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").get:
        raise errors.StoreForeign(f"{path} is a database of another program; give tarry a file of its own")
    return False


def _to_wal(connection: apsw.Connection) -> None:
    """SQLite does not ask the busy handler when the journal mode changes, so several first openers take turns here."""
    until = time.monotonic() + BUSY_LIMIT
    while connection.pragma("journal_mode") != "wal":
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except apsw.BusyError:
            if time.monotonic() > until:
                raise
            time.sleep(random.uniform(0.001, 0.01))


@contextlib.contextmanager
def transaction(connection: apsw.Connection) -> Iterator[None]:
    """The write lock from the first statement on; all or nothing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # After a full disk or an I/O error SQLite may have rolled back by itself.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


class TakeTurn:
    """SQLite's busy handler: waits with jitter, and producers before workers.

    A writer here holds the lock for a millisecond or less, and SQLite's own steps of up to 100 ms leave the file idle.
    A producer's caller waits for the answer; a worker that waits a little longer has more to do at once. With equal
    waits a producer beside two workers stores half as many jobs a second (measured: docs/performance.md).
    """

    def __init__(self, shortest: float, longest: float) -> None:
        self._range = (shortest, longest)
        self._until = 0.0

    def __call__(self, tries: int) -> bool:
        now = time.monotonic()
        if tries == 0:
            self._until = now + BUSY_LIMIT
        time.sleep(random.uniform(*self._range) * min(1 + tries / 4, 8))
        return now < self._until


PRODUCERS, WORKERS = (0.00003, 0.0001), (0.0005, 0.0015)
"""Seconds of a first wait, from and to."""


@contextlib.contextmanager
def mapped(path: Path) -> Iterator[None]:
    """SQLite's errors as ours, each one line that says what to do."""
    try:
        yield
    except apsw.BusyError:
        raise errors.StoreBusy(
            f"{path} is locked by another program for over {BUSY_LIMIT:g} s: see `fuser {path}`"
        ) from None
    except apsw.FullError:
        raise errors.StoreFull(f"{path}: the disk is full; free some space and try again") from None
    except apsw.ReadOnlyError:
        raise errors.StoreReadOnly(f"{path} is read-only: make it and its directory writable") from None
    except (apsw.NotADBError, apsw.CorruptError) as error:
        raise errors.StoreCorrupt(
            f"{path} is damaged or no database ({error}): restore it, or move it away to start anew"
        ) from None
    except apsw.CantOpenError:
        raise errors.StoreUnavailable(f"{path} cannot be opened: check that it is a file this user may write") from None
    except apsw.IOError as error:
        raise errors.StoreUnavailable(f"{path}: the disk fails ({error})") from None
    except apsw.Error as error:
        raise errors.StoreError(f"{path}: {type(error).__name__}: {error}") from error
