"""Jobs on their way: kept in a file of this host, fsynced, until the store takes them.

One SQLite file that several processes may use at once. It is no store: nothing runs from here.
"""

import contextlib
import fcntl
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import apsw
import msgspec

from tarry import files
from tarry.errors import ConfigError, StoreForeign, StoreFull
from tarry.model.job import Job
from tarry.store.entry import Content, Entry
from tarry.store.sqlite import forked
from tarry.store.sqlite.file import PRODUCERS, TakeTurn, mapped, to_wal, transaction

MOST_BYTES = 64_000_000
_OURS = 0x7A4F7574
"""`application_id` of the file."""
_TABLES = (
    "CREATE TABLE entry (n INTEGER PRIMARY KEY AUTOINCREMENT, id BLOB UNIQUE NOT NULL, entry BLOB NOT NULL) STRICT",
    "CREATE TABLE total (jobs INTEGER NOT NULL, bytes INTEGER NOT NULL) STRICT",
    "INSERT INTO total VALUES (0, 0)",
    f"PRAGMA application_id = {_OURS}",
)
_ADD = "INSERT OR IGNORE INTO entry (id, entry) VALUES (?, ?)"


class Outbox:
    """Jobs in the order in which they came. Safe from several threads and processes, and over a fork.

    most_bytes: what the jobs in it may take; StoreFull beyond that. The file is made when the first is kept.
    """

    def __init__(self, path: Path, most_bytes: int = MOST_BYTES) -> None:
        self.path = path.absolute()
        if not self.path.parent.is_dir():
            raise ConfigError(f"outbox {self.path}: the directory {self.path.parent} does not exist; create it first")
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._database: apsw.Connection | None = None
        self._turns: set[int] = set()
        """Descriptors that hold the turn to forward, or ask for it."""
        forked.watch(self)

    def forked(self) -> None:
        """In a forked child: the file is opened anew at the next use. A turn is the parent's alone; were its descriptor
        left open here, nobody could forward for as long as this process lives, once the parent is gone."""
        forked.keep_alive(self._database)
        self._lock, self._database = threading.Lock(), None
        while self._turns:
            os.close(self._turns.pop())

    def keep(self, entries: Sequence[Entry]) -> list[bool]:
        """Keeps them, on disk once this returns; one that is there already is kept once. StoreFull: none is."""
        rows = [(entry.job.id, msgspec.msgpack.encode(entry)) for entry in entries]
        with self._used() as database, transaction(database):  # type: ignore[arg-type]
            jobs, size = database.execute("SELECT jobs, bytes FROM total").get
            for row in rows:
                database.execute(_ADD, row)
                jobs, size = jobs + database.changes(), size + database.changes() * len(row[1])
            if size > self._most_bytes:
                raise StoreFull(
                    f"outbox {self.path}: {jobs:,} jobs would take {size:,} bytes; outbox_bytes is"
                    f" {self._most_bytes:,}. They leave it when the store is back"
                )
            database.execute("UPDATE total SET jobs = ?, bytes = ?", (jobs, size))
        return [True] * len(entries)

    def page(self, after: int, limit: int) -> list[tuple[int, Entry]]:
        """The first entries after that number, each with its own."""
        with self._used() as database:
            query = "SELECT n, entry FROM entry WHERE n > ? ORDER BY n LIMIT ?"
            rows: list[Any] = database.execute(query, (after, limit)).fetchall()
        return [(n, msgspec.msgpack.decode(entry, type=Entry)) for n, entry in rows]

    def remove(self, numbers: Sequence[int]) -> None:
        """They are where they belong."""
        with self._used() as database, transaction(database):  # type: ignore[arg-type]
            for number in numbers:
                gone = database.execute("DELETE FROM entry WHERE n = ? RETURNING length(entry)", (number,)).get
                if gone is not None:
                    database.execute("UPDATE total SET jobs = jobs - 1, bytes = bytes - ?", (gone,))

    def find(self, ids: Sequence[bytes]) -> dict[bytes, Job]:
        """Those of these jobs that lie here."""
        if not self.path.exists():
            return {}
        found = {}
        with self._used() as database:
            for id in ids:
                entry = database.execute("SELECT entry FROM entry WHERE id = ?", (id,)).get
                if entry is not None:
                    found[id] = msgspec.msgpack.decode(entry, type=Entry).job
        return found

    def content(self) -> Content:
        """What lies here."""
        if not self.path.exists():
            return Content()
        with self._used() as database:
            jobs, size = database.execute("SELECT jobs, bytes FROM total").get
        first = self.page(0, 1)
        return Content(jobs, size, first[0][1].job.created if first else 0)

    @contextlib.contextmanager
    def turn(self) -> Iterator[bool]:
        """Whether it is this process's turn to forward, until the end of the block: one at a time, in order. Ends by
        itself when the process does."""
        fd = files.opened(f"{self.path}-turn", os.O_RDWR | os.O_CREAT, files.OURS)
        self._turns.add(fd)
        pid = os.getpid()
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
        else:
            yield True
        finally:
            if pid == os.getpid():
                self._turns.discard(fd)
                # Also where a child that was forked in another way still has the descriptor.
                fcntl.flock(fd, fcntl.LOCK_UN)
                os.close(fd)

    def close(self) -> None:
        """Gives back the file. Closing twice is fine; the next use opens it again."""
        with self._lock:
            if self._database is not None:
                self._database.close(True)
            self._database = None

    @contextlib.contextmanager
    def _used(self) -> Iterator[apsw.Connection]:
        with self._lock, mapped(self.path):
            if self._database is None:
                self._database = self._opened()
            yield self._database

    def _opened(self) -> apsw.Connection:
        files.make(self.path, files.OURS)
        database = apsw.Connection(str(self.path))
        try:
            database.set_busy_handler(TakeTurn(*PRODUCERS))
            to_wal(database)  # type: ignore[arg-type]
            database.execute("PRAGMA synchronous=FULL")
            with transaction(database):  # type: ignore[arg-type]
                self._bring_up(database)
        except BaseException:
            database.close(True)
            raise
        return database

    def _bring_up(self, database: apsw.Connection) -> None:
        if database.pragma("application_id") == _OURS:
            return
        if database.execute("SELECT count(*) FROM sqlite_schema").get:
            raise StoreForeign(f"{self.path} is a database of another program; give the outbox a file of its own")
        for statement in _TABLES:
            database.execute(statement)
