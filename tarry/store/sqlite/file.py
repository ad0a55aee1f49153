"""A SQLite file opened the way a queue needs it: journal, durability, schema, waiting for one's turn, and errors.

Through apsw, which brings a current SQLite of its own: the library's versions up to 3.51.2 could damage a database
with several writers when the write-ahead log was reset. But two copies of SQLite in one process do not see each
other's locks, and a file that both write is soon damaged; so where the file is shared with a program that uses
Python's own sqlite3, that one is used here too.
"""

import contextlib
import random
import time
from collections.abc import Iterator
from pathlib import Path

import apsw

from tarry import errors, files
from tarry.store.base import Fact
from tarry.store.shared.deadline import left
from tarry.store.sqlite import wal, wal_index
from tarry.store.sqlite.database import Database, connected
from tarry.store.sqlite.schema import SCHEMA_VERSION, bring_up, drop_statistics, has_statistics, version

BUSY_LIMIT = 5.0


def opened(path: Path, durable: bool, shared: str = "") -> Database:
    """A connection in WAL mode with the schema in place.

    durable: every commit is fsynced (FULL). Otherwise commits wait for the next checkpoint (NORMAL): after a power
    cut the last ones may be missing, which for a claim or an outcome means that a job runs once more.

    shared: the file is another program's too, which is in this process and uses "apsw", or Python's sqlite3 ("yes").
    """
    if not path.parent.is_dir():
        raise errors.StoreUnavailable(f"{path}: the directory {path.parent} does not exist; create it first")
    wal.refuse_emptied(path)
    wal_index.refuse_cut(path)
    with mapped(path):
        # The write-ahead log has the rights of the file that it is of.
        files.make(path)
        database = connected(path, shared)
        try:
            _prepare(database, path, durable, bool(shared))
        except apsw.BusyError:
            database.close(True)
            raise errors.StoreBusy(
                f"{path} is locked by another program for over {BUSY_LIMIT:g} s: see `fuser {path}`. If that is a"
                " transaction of your own: tarry makes its tables at the first use, so enqueue once outside of any, or"
                " start a worker first"
            ) from None
        except BaseException:
            database.close(True)
            raise
    return database


def _prepare(database: Database, path: Path, durable: bool, shared: bool) -> None:
    database.set_busy_handler(TakeTurn(*(PRODUCERS if durable else WORKERS)))
    if database.readonly("main"):
        raise errors.StoreReadOnly(f"{path} is read-only: make it and its directory writable for this user")
    with transaction(database, "BEGIN"):  # the file as it is at one moment: another process may be making its schema
        found = version(database, path, shared)
    to_wal(database)
    wal.check(database, path)
    database.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
    database.execute("PRAGMA cache_size=-65536")
    database.execute("PRAGMA mmap_size=0")
    database.execute("PRAGMA wal_autocheckpoint=2000")
    database.execute("PRAGMA journal_size_limit=67108864")
    # Only if there is something to do: whoever opens it first may hold the write lock himself, in another connection.
    if found != SCHEMA_VERSION:
        with transaction(database):
            bring_up(database, version(database, path, shared), shared)
    if has_statistics(database):
        with transaction(database):
            drop_statistics(database)


def to_wal(connection: Database) -> None:
    """SQLite does not ask the busy handler when the journal mode changes, so several first openers take turns here."""
    until = time.monotonic() + BUSY_LIMIT
    while connection.pragma("journal_mode") != "wal":
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except apsw.BusyError:
            if time.monotonic() > until:
                raise
            time.sleep(random.uniform(0.001, 0.01))


class transaction:  # noqa: N801 - used as a function
    """The write lock from the first statement on, unless another `begin` says otherwise; all or nothing.

    An exception may come between any two steps, from a signal's handler for instance. So no step stands outside a
    `try` except the call of `__exit__` itself; what is left by that, the next transaction here rolls back.
    """

    __slots__ = ("_begin", "_connection")

    def __init__(self, connection: Database, begin: str = "BEGIN IMMEDIATE") -> None:
        self._connection, self._begin = connection, begin

    def __enter__(self) -> None:
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            self._connection.execute(self._begin)
        except BaseException:
            self._roll_back()
            raise

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        try:
            if kind is None:
                self._connection.execute("COMMIT")
        finally:
            self._roll_back()

    def _roll_back(self) -> None:
        # After a full disk or an I/O error SQLite may have rolled back by itself.
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")


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
            self._until = now + left(BUSY_LIMIT)
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
        busy = errors.StoreBusy(f"{path} is locked by another program for over {BUSY_LIMIT:g} s: see `fuser {path}`")
        busy.stored = False  # the lock comes first
        raise busy from None
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
    except PermissionError as error:
        raise errors.StoreUnavailable(str(error)) from None
    except apsw.IOError as error:
        raise errors.StoreUnavailable(f"{path}: the disk fails ({error})") from None
    except apsw.Error as error:
        raise errors.StoreError(f"{path}: {type(error).__name__}: {error}") from error


def rights(path: Path) -> Fact:
    """For `tarry check`: who may open the file. One that was there before tarry keeps the rights that it has."""
    mode = path.stat().st_mode & 0o777
    others = f"others may read what jobs are about: chmod o= {path}*" if mode & 0o007 else ""
    return Fact("file rights", f"{mode:04o}", others)
