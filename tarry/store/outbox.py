"""The outbox: keeps jobs in a file of this host, fsynced, until the store takes them.

One SQLite file that several processes may use at once. It is no store: nothing runs from here.
"""

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from tarry import files, platform
from tarry.errors import ConfigError, StoreForeign, StoreFull
from tarry.model.checks.decoders import msgpack_decoder
from tarry.model.job import Job
from tarry.store.rules.entry import Content, Entry
from tarry.store.shared.schema_steps import SchemaStep
from tarry.store.sqlite.file import (
    FIRST_LIMIT,
    PRODUCERS,
    TakeTurn,
    bring_up,
    connect_alone,
    to_wal,
    transaction,
    translate_errors,
)
from tarry.store.sqlite.link import forked
from tarry.store.sqlite.link.database import Database, connect
from tarry.store.sqlite.schema import FileSchema

MOST_BYTES = 64_000_000
_OURS = 0x7A4F7574  # `application_id` of the file.
_TABLES = (
    "CREATE TABLE about (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID",
    "CREATE TABLE entry (n INTEGER PRIMARY KEY AUTOINCREMENT, id BLOB UNIQUE NOT NULL, entry BLOB NOT NULL) STRICT",
    "CREATE TABLE total (jobs INTEGER NOT NULL, bytes INTEGER NOT NULL) STRICT",
    "INSERT INTO total VALUES (0, 0)",
    f"PRAGMA application_id = {_OURS}",
)
STEPS = (SchemaStep("makes the tables", _TABLES),)
_ADD = "INSERT OR IGNORE INTO entry (id, entry) VALUES (?, ?)"


class Outbox:
    """Jobs in the order in which they came. Safe for several threads and processes, and across a fork.

    most_bytes: the bytes that its jobs may take; StoreFull beyond that. The file is made with the first job.
    """

    def __init__(self, path: Path, most_bytes: int = MOST_BYTES) -> None:
        self.path = path.absolute()
        if not self.path.parent.is_dir():
            raise ConfigError(f"outbox {self.path}: the directory {self.path.parent} does not exist; create it first")
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._database: Database | None = None
        self._turns: set[int] = set()
        """Descriptors of the lock file that hold the turn to forward, or ask for it."""
        forked.watch(self)

    def after_fork(self) -> None:
        """In a forked child: opens the file anew at the next use, and gives up a turn."""
        # A turn is the parent's alone. While its descriptor is open here, the lock outlives the parent, and no other
        # process could forward.
        forked.keep_alive(self._database)
        self._lock, self._database = threading.Lock(), None
        while self._turns:
            os.close(self._turns.pop())

    def keep(self, entries: Sequence[Entry]) -> list[bool]:
        """Keeps the entries; they are on disk once this returns. Known jobs are kept once. StoreFull: none is kept."""
        rows = [(entry.job.id, msgspec.msgpack.encode(entry)) for entry in entries]
        with self._connection() as database, transaction(database):
            jobs, size = database.execute("SELECT jobs, bytes FROM total").get
            for row in rows:
                database.execute(_ADD, row)
                # A known job changes no row, and counts for nothing.
                jobs, size = jobs + database.changes(), size + database.changes() * len(row[1])
            # Inside the transaction: the error rolls back all entries.
            if size > self._most_bytes:
                raise StoreFull(
                    f"outbox {self.path}: {jobs:,} jobs would take {size:,} bytes; outbox_bytes is"
                    f" {self._most_bytes:,}. They leave it when the store is back"
                )
            database.execute("UPDATE total SET jobs = ?, bytes = ?", (jobs, size))
        return [True] * len(entries)

    def page(self, after: int, limit: int) -> list[tuple[int, Entry]]:
        """The first entries after that number, each with its number."""
        with self._connection() as database:
            query = "SELECT n, entry FROM entry WHERE n > ? ORDER BY n LIMIT ?"
            rows: list[Any] = database.execute(query, (after, limit)).fetchall()
        return [(n, msgpack_decoder(Entry).decode(entry)) for n, entry in rows]

    def remove(self, numbers: Sequence[int]) -> None:
        """Removes entries that have been forwarded."""
        with self._connection() as database, transaction(database):
            for number in numbers:
                gone = database.execute("DELETE FROM entry WHERE n = ? RETURNING length(entry)", (number,)).get
                # Another process may have removed it.
                if gone is not None:
                    database.execute("UPDATE total SET jobs = jobs - 1, bytes = bytes - ?", (gone,))

    def find(self, ids: Sequence[bytes]) -> dict[bytes, Job]:
        """The jobs with these ids that are in the outbox."""
        # To look must not make the file.
        if not self.path.exists():
            return {}
        found = {}
        with self._connection() as database:
            for id in ids:
                entry = database.execute("SELECT entry FROM entry WHERE id = ?", (id,)).get
                if entry is not None:
                    found[id] = msgpack_decoder(Entry).decode(entry).job
        return found

    def content(self) -> Content:
        """How much is in the outbox."""
        if not self.path.exists():
            return Content()
        with self._connection() as database:
            jobs, size = database.execute("SELECT jobs, bytes FROM total").get
        first = self.page(0, 1)
        return Content(jobs, size, first[0][1].job.created if first else 0)

    @contextmanager
    def turn(self) -> Iterator[bool]:
        """Whether it is this process's turn to forward, until the end of the block."""
        # One process at a time, so that the order is kept. A lock on a file ends with its process, also after a crash.
        fd = files.open_private(f"{self.path}-turn", os.O_RDWR | os.O_CREAT, files.OURS)
        self._turns.add(fd)
        pid = os.getpid()
        try:
            yield platform.try_lock(fd)
        finally:
            # A child that was forked inside the block must not end the parent's turn.
            if pid == os.getpid():
                self._turns.discard(fd)
                # A child that was forked without Python's hooks still has the descriptor: closing it is not enough.
                platform.unlock(fd)
                os.close(fd)

    def pending_steps(self) -> list[str]:
        """What `migrate` would do, one line for each step."""
        # To look must not make the file.
        if not self.path.exists():
            return []
        with translate_errors(self.path), closing(connect(self.path, "")) as database, transaction(database, "BEGIN"):
            return OutboxSchema(database, self.path, STEPS, "about").pending_steps()

    def migrate(self) -> list[str]:
        """Brings the tables up to date; returns what was done. StoreError if that would stop a program that has the
        file open."""
        steps = self.pending_steps()
        with self._connection():
            return steps

    def close(self) -> None:
        """Closes the file. It may be closed twice; the next use opens it again."""
        with self._lock:
            if self._database is not None:
                self._database.close(True)
            self._database = None

    @contextmanager
    def _connection(self) -> Iterator[Database]:
        with self._lock, translate_errors(self.path):
            if self._database is None:
                self._database = self._open()
            yield self._database

    def _open(self) -> Database:
        files.make(self.path, files.OURS)
        database = connect_alone(self.path, "", FIRST_LIMIT, self._prepare)
        database.set_busy_handler(TakeTurn(*PRODUCERS))
        return database

    def _prepare(self, database: Database) -> None:
        schema = OutboxSchema(database, self.path, STEPS, "about")
        # Before anything is written into a file that is not ours.
        with transaction(database, "BEGIN"):
            schema.version()
        to_wal(database, FIRST_LIMIT)
        # An acknowledged job must survive a power cut.
        database.execute("PRAGMA synchronous=FULL")
        bring_up(database, schema)


class OutboxSchema(FileSchema):
    """The tables of an outbox."""

    def version(self) -> int:
        if self._database.pragma("application_id") == _OURS:
            return self.noted_version()
        if self._database.execute("SELECT count(*) FROM sqlite_schema").get:
            raise StoreForeign(f"{self.where} is a database of another program; give the outbox a file of its own")
        return 0
