"""Notices when a caller's transaction is committed, to wake the workers for the jobs in it.

It is only a hint: a worker that is not woken looks by itself within a second.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Collection
from pathlib import Path

import apsw

from tarry.model.wake import WakeReason
from tarry.store.shared.wakeup.board import WakeupBoard, board_directory
from tarry.store.sqlite.link.database import Database, connect

log = logging.getLogger("tarry.store")

CLOSELY = 1.0
"""Seconds after an insert during which the thread looks every QUICK seconds; after that it looks every SLOW seconds."""
QUICK, SLOW = 0.002, 0.05
PROBE = 1.0
"""Seconds between attempts to learn whether the transaction has ended at all."""
AT_MOST = 600.0
"""Seconds after which the thread gives up an open transaction."""


class CommitWatch:
    """Watches for one store in one process; its thread lives while a transaction is pending."""

    def __init__(self, path: Path, shared: str) -> None:
        self._path, self._shared = path, shared
        self._lock = threading.Lock()
        self._awaited: set[bytes] = set()
        self._since = 0.0
        self._news = threading.Event()
        self._thread: threading.Thread | None = None
        self._closed = False

    def expect(self, ids: Collection[bytes]) -> None:
        """Starts to look for these jobs, just inserted in a transaction that is still open."""
        if not ids:
            return
        with self._lock:
            # A transaction may be rolled back in part (SAVEPOINT), so each insert has a job of its own to look for.
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
        board = WakeupBoard(board_directory(self._path))
        try:
            database = connect(self._path, self._shared)
            try:
                self._watch(database, board)
            finally:
                database.close(True)
        except apsw.Error as error:
            log.info("%s: cannot watch for commits: %s", self._path, error)
            self._give_up()
        except Exception:
            log.exception("%s: cannot watch for commits", self._path)
            self._give_up()
        finally:
            board.close()

    def _watch(self, database: Database, board: WakeupBoard) -> None:
        # SQLite tells of commits only through hooks, and those belong to the connection's user. But `data_version`
        # tells cheaply that the database has changed, and only then is it worth a look for the jobs.
        seen: object = None
        probe_at = time.monotonic() + PROBE
        while awaited := self._pending_ids():
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

    def _pending_ids(self) -> frozenset[bytes]:
        """The jobs to look for; if there are none, the thread has to end."""
        with self._lock:
            if self._closed or time.monotonic() - self._since > AT_MOST:
                self._awaited.clear()
            # Under the lock: a later `expect` sees that it has to start a new thread.
            if not self._awaited:
                self._thread = None
            return frozenset(self._awaited)

    def _look(self, database: Database, board: WakeupBoard, awaited: frozenset[bytes], ended: bool) -> None:
        there = {id for id in awaited if database.execute("SELECT 1 FROM tarry_job WHERE id = ?", (id,)).get}
        if there:
            board.wake(WakeReason.WORK)
        with self._lock:
            # Jobs that are not there after the end of the transaction were rolled back.
            self._awaited -= awaited if ended else there

    def _give_up(self) -> None:
        with self._lock:
            self._awaited.clear()
            self._thread = None


def _nobody_writes(database: Database) -> bool:
    # An open transaction that has inserted jobs has the write lock: if we can have it, the transaction has ended.
    try:
        database.execute("BEGIN IMMEDIATE")
    except apsw.BusyError:
        return False
    database.execute("ROLLBACK")
    return True
