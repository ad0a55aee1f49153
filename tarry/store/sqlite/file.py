"""Opens a SQLite file the way a queue needs it: journal, durability, schema, taking turns at the lock, and errors.

The store uses apsw, which brings a current SQLite of its own: SQLite's versions up to 3.51.2 could damage a database
with several writers when the write-ahead log was reset. But two copies of SQLite in one process do not see each
other's locks, and soon damage a file that both write. So the store uses Python's own sqlite3 for a file that it shares
with a program that uses sqlite3.
"""

import logging
import os
import random
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import apsw

from tarry import errors, files
from tarry.store.rules.base import Diagnostic
from tarry.store.shared.creation import check_creation
from tarry.store.shared.deadline import left
from tarry.store.shared.diagnostics import size
from tarry.store.sqlite import sql
from tarry.store.sqlite.link import wal, wal_index
from tarry.store.sqlite.link.database import Database, connect
from tarry.store.sqlite.link.reserve import most_logged
from tarry.store.sqlite.schema import FileSchema, SqliteSchema, drop_statistics, has_statistics

if TYPE_CHECKING:
    from tarry.store.sqlite.link.guard import FileGuard

log = logging.getLogger("tarry.store")

T = TypeVar("T")
BUSY_LIMIT = 5.0
FIRST_LIMIT = 30.0
"""Seconds that who opens a new file waits for the process that makes its tables: on a busy disk that takes a while."""
ALONE_WITHIN = 3.0
"""Seconds that who opens an older file waits until no other program has it open, if a step stops older programs."""


def open_database(path: Path, durable: bool, shared: str = "", fsync: bool = True) -> Database:
    """A connection in WAL mode with the schema in place.

    durable: every commit is fsynced (FULL). Otherwise commits wait for the next checkpoint (NORMAL): a power cut may
    undo the last claims and outcomes, and those jobs run once more.

    shared: another program in this process uses the file too, through "apsw" or through Python's sqlite3 ("yes").

    fsync: False: NORMAL also where `durable`.
    """
    # Where a program shares the file, the lock may be held by a transaction of the caller itself, which would wait here
    # for nothing.
    limit = BUSY_LIMIT if shared else FIRST_LIMIT
    refuse_lost(path)
    if not os.path.exists(path):
        check_creation(f"sqlite:///{path}")
    with translate_errors(path):
        # SQLite gives its write-ahead log the rights of the database, so the file is made private before SQLite has it.
        files.make(path)
        prepare = partial(_prepare, path=path, shared=bool(shared), limit=limit)
        try:
            database = connect_alone(path, shared, limit, prepare)
        except apsw.BusyError:
            raise errors.StoreBusy(
                f"{path} is locked by another program for over {limit:g} s: see `fuser {path}`. If that is a"
                " transaction of your own: tarry makes its tables at the first use, so enqueue once outside of any, or"
                " start a worker first"
            ) from None
        database.set_busy_handler(TakeTurn(*(PRODUCERS if durable else WORKERS)))
        database.execute(f"PRAGMA synchronous={'FULL' if durable and fsync else 'NORMAL'}")
        if sys.platform == "darwin":
            # There an fsync leaves what is written in the cache of the disk. https://sqlite.org/pragma.html#pragma_fullfsync
            database.execute("PRAGMA fullfsync=1")
    return database


def refuse_lost(path: Path) -> None:
    """An error for a file whose directory is missing, or whose log is lost. Call it before the file is opened."""
    if not path.parent.is_dir():
        raise errors.StoreUnavailable(f"{path}: the directory {path.parent} does not exist; create it first")
    # Both checks come before SQLite opens the file: it deletes the log of an empty database, and rebuilds the index.
    wal.refuse_emptied(path)
    wal_index.refuse_cut(path)


def connect_alone(path: Path, shared: str, limit: float, prepare: Callable[[Database], object]) -> Database:
    """A connection that `prepare` has made ready: again and again while it raises SchemaInUse. limit: seconds to wait
    for a lock."""
    until = time.monotonic() + left(ALONE_WITHIN)
    while True:
        database = connect(path, shared)
        try:
            database.set_busy_handler(TakeTurn(*PRODUCERS, limit))
            prepare(database)
            return database
        except BaseException as error:
            database.close(True)
            if not isinstance(error, SchemaInUse) or time.monotonic() > until:
                raise
        # Without a connection: of several new programs that wait for each other, one finds itself alone.
        time.sleep(random.uniform(0.02, 0.2))


def _prepare(database: Database, path: Path, shared: bool, limit: float) -> None:
    if database.readonly("main"):
        raise errors.StoreReadOnly(f"{path} is read-only: make it and its directory writable for this user")
    schema = SqliteSchema(database, path, shared)
    # In one transaction, to see the file as it is at one moment: another process may be making its schema.
    with transaction(database, "BEGIN"):
        schema.version()
    # Only now: a database of another program is refused before anything in it changes.
    to_wal(database, limit)
    wal.check(database, path)
    database.execute("PRAGMA cache_size=-65536")
    database.execute("PRAGMA mmap_size=0")
    pages = most_logged(path.parent) // database.pragma("page_size")
    database.execute(f"PRAGMA wal_autocheckpoint={pages}")
    database.execute("PRAGMA journal_size_limit=67108864")
    bring_up(database, schema)
    if has_statistics(database):
        with transaction(database):
            drop_statistics(database)
    for statement in sql.PUT_VIEW:
        database.execute(statement)


def bring_up(database: Database, schema: FileSchema) -> None:
    """Makes the tables, or brings them up to date. SchemaInUse: a step would stop a program that has the file open.
    The file is in WAL mode, in which whoever has it open holds a lock on it."""
    # A write lock only if there is something to do: the caller may hold it already, in another connection.
    with transaction(database, "BEGIN"):
        if not schema.missing_steps():
            return
    # Read again under the lock: another process may have made the tables before this one had it.
    with transaction(database):
        if not schema.breaks_older():
            schema.bring_up()
            return
    with _alone(database, schema), transaction(database):
        schema.bring_up()


class SchemaInUse(errors.StoreError):
    """Other programs have the file open, and a step that it needs may stop them."""

    def __init__(self, schema: FileSchema) -> None:
        missing = schema.missing_steps()
        super().__init__(
            f"{schema.where} has schema {missing.start - 1}, this tarry knows {len(schema.steps)}, and other programs"
            f" have the file open, which must not go on with that one: stop them (`fuser {schema.where}`), then run"
            " `tarry migrate`"
        )


@contextmanager
def _alone(database: Database, schema: FileSchema) -> Iterator[None]:
    """Keeps other programs out of the file. SchemaInUse if one has it open."""
    try:
        take_alone(database)
    except apsw.BusyError:
        raise SchemaInUse(schema) from None
    yield
    # After an error the connection is closed, which frees the file, too.
    database.execute("PRAGMA locking_mode=NORMAL")
    database.set_busy_handler(TakeTurn(*PRODUCERS, FIRST_LIMIT))
    to_wal(database, FIRST_LIMIT)


def take_alone(database: Database) -> None:
    """Locks the file for this connection, and merges the log into it. apsw.BusyError, at once, if another connection
    has it open."""
    database.set_busy_handler(lambda tries: False)
    database.execute("PRAGMA locking_mode=EXCLUSIVE")
    # It stays locked between the two modes, so nobody opens it before the next transaction.
    database.execute("PRAGMA journal_mode=DELETE")


def to_wal(connection: Database, limit: float) -> None:
    """Switches the file to WAL mode. limit: seconds to wait for others that do so."""
    # SQLite does not call the busy handler when the journal mode changes, so several first openers take turns here.
    until = time.monotonic() + left(limit)
    while connection.pragma("journal_mode") != "wal":
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except apsw.BusyError:
            if time.monotonic() > until:
                raise
            time.sleep(random.uniform(0.001, 0.01))


def free_bytes(database: Database) -> int:
    """The bytes in the file that hold nothing."""
    return int(database.pragma("freelist_count") * database.pragma("page_size"))


def merge_log(database: Database) -> bool:
    """Writes the log into the file, so that the next transaction uses its room again; False if not all of it could
    be."""
    try:
        busy, logged, merged = database.execute("PRAGMA wal_checkpoint").get
    except apsw.FullError:
        return False
    return not busy and logged == merged


class transaction:  # noqa: N801 - used as a function
    """A transaction: all or nothing. It has the write lock from its start, unless `begin` is another statement."""

    # An exception may come between any two steps, from a signal's handler for instance. So every step stands inside a
    # `try`, except the call of `__exit__` itself; the next transaction rolls back what that one exception leaves open.
    __slots__ = ("_begin", "_connection")

    def __init__(self, connection: Database, begin: str = "BEGIN IMMEDIATE") -> None:
        self._connection, self._begin = connection, begin

    def __enter__(self) -> None:
        try:
            # An exception at the call of `__exit__` left the last transaction open.
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
    """SQLite's busy handler: waits with jitter. shortest, longest: seconds of the first wait. limit: seconds in all,
    BUSY_LIMIT if not given."""

    # A writer holds the lock for a millisecond or less; SQLite's own waits of up to 100 ms would leave the file idle.
    def __init__(self, shortest: float, longest: float, limit: float | None = None) -> None:
        self._range = (shortest, longest)
        self._limit = limit
        self._until = 0.0

    def __call__(self, tries: int) -> bool:
        now = time.monotonic()
        if tries == 0:
            self._until = now + left(BUSY_LIMIT if self._limit is None else self._limit)
        time.sleep(random.uniform(*self._range) * min(1 + tries / 4, 8))
        return now < self._until


# Producers wait less than workers: a producer's caller waits for the answer, while a worker that waits a little longer
# has more to do at once. With equal waits a producer beside two workers stores half as many jobs a second (measured:
# bench/RESULTS.md).
PRODUCERS, WORKERS = (0.00003, 0.0001), (0.0005, 0.0015)
"""Seconds of a first wait, from and to."""


class translate_errors:  # noqa: N801 - used as a function
    """Raises our error for each of SQLite's, with one line that says what to do."""

    # A class, since every call of the store enters it: a generator takes three times as long.
    # guard: tells all processes of damage. Without one, as for a file that is being opened, nobody is told.
    __slots__ = ("_guard", "_path")

    def __init__(self, path: Path, guard: "FileGuard | None" = None) -> None:
        self._path, self._guard = path, guard

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, UnicodeDecodeError):
            # apsw reads text strictly, and SQLite stores whatever bytes another program gave it as text.
            raise errors.StoreCorrupt(
                f"{self._path}: a name in it is no UTF-8, so another program has written it: see the names by"
                " SELECT DISTINCT hex(queue), hex(task) FROM tarry_job, and delete such rows"
            ) from None
        if isinstance(error, apsw.Error | PermissionError):
            # SQLite's own error stays visible only where ours says no more than that one.
            translated = _translate(error, self._path)
            if self._guard is not None and isinstance(error, _DAMAGE):
                self._guard.tell(error)
            raise translated from (error if type(translated) is errors.StoreError else None)


_DAMAGE = (apsw.CorruptError, apsw.NotADBError)
_FAILED_READS = (apsw.SQLITE_IOERR_READ, apsw.SQLITE_IOERR_SHORT_READ, apsw.SQLITE_IOERR_CORRUPTFS)


def call_again(call: Callable[[], T], path: Path, make_room: Callable[[], bool] = lambda: False) -> T:
    """What the call answers; it is called a second time if a read failed, or if the disk was full and `make_room`
    answers True. call: a whole transaction, or a read."""
    # SQLite says that a file is damaged, too, where the disk could not read it just now.
    try:
        return call()
    except apsw.FullError:
        if not make_room():
            raise
        return call()
    except (*_DAMAGE, apsw.IOError) as error:
        if isinstance(error, apsw.IOError) and getattr(error, "extendedresult", 0) not in _FAILED_READS:
            raise
        answer = call()
        log.warning("%s: a read failed (%s), and asked again it did not: see to the disk", path, error)
        return answer


def _translate(error: apsw.Error | PermissionError, path: Path) -> errors.StoreError:
    match error:
        case apsw.BusyError():
            busy = errors.StoreBusy(
                f"{path} is locked by another program for over {BUSY_LIMIT:g} s: see `fuser {path}`"
            )
            # Every transaction takes the lock before it writes, so nothing was stored.
            busy.stored = False
            return busy
        case apsw.FullError():
            return errors.StoreFull(f"{path}: the disk is full; free some space and try again")
        case apsw.ReadOnlyError():
            return errors.StoreReadOnly(f"{path} is read-only: make it and its directory writable for this user")
        case apsw.NotADBError() | apsw.CorruptError():
            return errors.StoreCorrupt(
                f"{path} is damaged or no database ({error}): `tarry check` says what is, `tarry store repair` saves"
                " what can be read; or restore it, or move it away to start anew"
            )
        case apsw.CantOpenError():
            return errors.StoreUnavailable(f"{path} cannot be opened: check that it is a file this user may write")
        case PermissionError():
            return errors.StoreUnavailable(str(error))
        case apsw.IOError():
            return errors.StoreUnavailable(f"{path}: the disk fails ({error})")
    return errors.StoreError(f"{path}: {type(error).__name__}: {error}")


def _rights(path: Path) -> Diagnostic:
    """Who may open the file."""
    # A file that was there before tarry keeps its rights, so others may be able to read it.
    mode = path.stat().st_mode & 0o777
    others = f"others may read what jobs are about: chmod o= {path}*" if mode & 0o007 else ""
    return Diagnostic("file rights", f"{mode:04o}", others)


def diagnose(db: Database, path: Path, schema: int) -> list[Diagnostic]:
    """For `tarry check`: what an operator should know of the file. schema: the version of its tables."""
    version = db.execute("SELECT sqlite_version()").get
    synchronous, journal = db.pragma("synchronous"), db.pragma("journal_mode")
    free = shutil.disk_usage(path.parent).free
    tight = "" if free > 256 * 2**20 else "under 256 MB: free some space before enqueues are refused"
    return [
        Diagnostic("sqlite", version),
        Diagnostic("schema", str(schema)),
        Diagnostic("durability", f"journal {journal}, synchronous {'FULL' if synchronous == 2 else 'NORMAL'}"),
        size(path.stat().st_size),
        Diagnostic("free disk", f"{free / 1e9:.1f} GB", tight),
        _rights(path),
    ]
