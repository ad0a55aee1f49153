"""Learning that somebody else's transaction was committed, to wake the workers for the jobs in it.

SQLite tells of commits only through hooks that belong to the connection's user. But one may ask cheaply whether the
database has changed (`PRAGMA data_version`), and then look whether the jobs are there. While the transaction is open
it has the write lock; so when somebody else can have that and they are not there, it was rolled back. All this is for
a hint: a worker that is not woken looks by itself within a second.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Collection
from pathlib import Path

import apsw

from tarry.store.shared.bellboard import BellBoard
from tarry.store.sqlite.database import Database, connected

CLOSELY = 1.0
"""Seconds for which a transaction is looked after every QUICK seconds; then every SLOW, and again closely with the
next."""
QUICK, SLOW = 0.002, 0.05
PROBE = 1.0
"""Seconds between looks whether the transaction has ended at all."""
AT_MOST = 600.0
"""Seconds after which an open transaction is forgotten."""


class CommitWatch:
    """For one store in one process; its thread lives while a transaction is pending."""

    def __init__(self, path: Path, shared: str) -> None:
        self._path, self._shared = path, shared
        self._lock = threading.Lock()
        self._awaited: set[bytes] = set()
        self._since = 0.0
        self._news = threading.Event()
        self._thread: threading.Thread | None = None
        self._closed = False

    def expect(self, ids: Collection[bytes]) -> None:
        """These jobs were just inserted in a transaction that is still open."""
        if not ids:
            return
        with self._lock:
            # One transaction may be rolled back in parts, so each of its inserts is looked for by itself.
            self._awaited.add(min(ids))
            self._since = time.monotonic()
            self._news.set()
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name="tarry-commits", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Ends the thread."""
        with self._lock:
            self._closed, thread = True, self._thread
            self._news.set()
        if thread is not None:
            thread.join(timeout=5)

    def _run(self) -> None:
        board = BellBoard(Path(f"{self._path}-bells"))
        try:
            database = connected(self._path, self._shared)
            try:
                self._watch(database, board)
            finally:
                database.close(True)
        except apsw.Error as error:
            logging.getLogger("tarry.store").info("%s: cannot watch for commits: %s", self._path, error)
            self._give_up()
        finally:
            board.close()

    def _watch(self, database: Database, board: BellBoard) -> None:
        seen: object = None
        probe_at = time.monotonic() + PROBE
        while awaited := self._pending():
            with contextlib.suppress(apsw.BusyError):
                ended = time.monotonic() >= probe_at and _nobody_writes(database)
                now = (database.pragma("data_version"), awaited)
                if ended or now != seen:
                    self._look(database, board, awaited, ended)
                    seen = now
            if time.monotonic() >= probe_at:
                probe_at = time.monotonic() + PROBE
            self._news.wait(QUICK if time.monotonic() - self._since < CLOSELY else SLOW)
            self._news.clear()

    def _pending(self) -> frozenset[bytes]:
        """What is awaited; when that is nothing, the thread is to end."""
        with self._lock:
            if self._closed or time.monotonic() - self._since > AT_MOST:
                self._awaited.clear()
            if not self._awaited:
                self._thread = None
            return frozenset(self._awaited)

    def _look(self, database: Database, board: BellBoard, awaited: frozenset[bytes], ended: bool) -> None:
        there = {id for id in awaited if database.execute("SELECT 1 FROM tarry_job WHERE id = ?", (id,)).get}
        if there:
            board.ring_work()
        with self._lock:
            self._awaited -= awaited if ended else there

    def _give_up(self) -> None:
        with self._lock:
            self._awaited.clear()
            self._thread = None


def _nobody_writes(database: Database) -> bool:
    try:
        database.execute("BEGIN IMMEDIATE")
    except apsw.BusyError:
        return False
    database.execute("ROLLBACK")
    return True
