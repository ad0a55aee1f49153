"""A write-ahead log that was damaged: told apart from what a crash leaves."""

import logging
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tarry.errors import StoreCorrupt
from tarry.store.conformance.cases.jobs import made, put
from tarry.store.rules.base import Query
from tarry.store.sqlite.link import wal
from tarry.store.sqlite.link.database import ApswDatabase
from tarry.store.sqlite.store import SqliteStore

TRANSACTIONS = 20
HALF = 48 + 8
"""A byte in the second copy of the index's header."""


class Crashed:
    """A database as its processes left it when they were killed: nothing of the log is merged."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "copy" / "jobs.db"
        self.path.parent.mkdir()
        self.log = self.path.with_name("jobs.db-wal")
        self._live = SqliteStore(directory / "jobs.db")
        self.frame = wal.FRAME + 4096

    def put(self, transactions: int = TRANSACTIONS) -> None:
        for _ in range(transactions):
            put(self._live)

    def put_many(self) -> None:
        """One transaction of many frames."""
        self._live.insert(made(self._live, 200))

    def crash(self) -> None:
        for name in ("", "-wal"):
            shutil.copy(f"{self._live.path}{name}", f"{self.path}{name}")

    def jobs(self) -> int:
        store = SqliteStore(self.path)
        try:
            return len(store.find(Query(limit=100_000)))
        finally:
            store.close()

    def close(self) -> None:
        self._live.close()

    def flip(self, at: int) -> None:
        content = bytearray(self.log.read_bytes())
        content[at] ^= 0xFF
        self.log.write_bytes(content)

    def length(self) -> int:
        return self.log.stat().st_size


@pytest.fixture
def crashed(tmp_path: Path) -> Iterator[Crashed]:
    crashed = Crashed(tmp_path)
    crashed.put()
    yield crashed
    crashed.close()


def test_what_was_committed_is_there_after_a_crash(crashed: Crashed) -> None:
    crashed.crash()
    assert crashed.jobs() == TRANSACTIONS


def test_a_log_that_ends_anywhere_is_what_a_crash_leaves(crashed: Crashed) -> None:
    crashed.crash()
    whole, last = crashed.log.read_bytes(), TRANSACTIONS
    for length in range(crashed.length(), 0, -(crashed.frame // 3)):
        crashed.crash()
        crashed.log.write_bytes(whole[:length])
        there = crashed.jobs()
        assert there <= last
        last = there


@pytest.mark.parametrize("place", [0.1, 0.3, 0.5, 0.7])
@pytest.mark.parametrize("within", [5, 12, 20, 700], ids=["commit", "salt", "checksum", "page"])
def test_a_flipped_byte_before_committed_transactions_is_refused(crashed: Crashed, place: float, within: int) -> None:
    crashed.crash()
    number = int(place * (crashed.length() // crashed.frame))
    crashed.flip(wal.HEADER + number * crashed.frame + within)
    before = crashed.log.read_bytes()
    for _ in range(2):
        with pytest.raises(StoreCorrupt, match=r"is damaged: .* Restore the database from a backup; or accept"):
            crashed.jobs()
    assert crashed.log.read_bytes() == before, "what may be saved is kept"


@pytest.mark.parametrize("at", [0, 9, 17, 25])
def test_a_damaged_header_is_refused(crashed: Crashed, at: int) -> None:
    crashed.crash()
    crashed.flip(at)
    with pytest.raises(StoreCorrupt, match="reads it up to frame 0"):
        crashed.jobs()


def test_the_way_out_of_the_message_opens_it(crashed: Crashed) -> None:
    crashed.crash()
    crashed.flip(wal.HEADER + crashed.length() // 2)
    with pytest.raises(StoreCorrupt):
        crashed.jobs()
    import sqlite3  # noqa: PLC0415 -- only here; a test of what people do

    with closing(sqlite3.connect(crashed.path)) as connection, connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    assert 0 < crashed.jobs() < TRANSACTIONS


def test_a_database_that_another_process_makes_meanwhile_is_not_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, log_of = tmp_path / "new.db", wal.log_of
    path.touch()

    def making(path: Path) -> Path:
        path.write_bytes(b"x" * 4096)
        log_of(path).write_bytes(b"x" * 4096)
        return log_of(path)

    monkeypatch.setattr(wal, "log_of", making)
    wal.refuse_emptied(path)


def test_an_emptied_database_beside_its_log_is_refused(crashed: Crashed) -> None:
    crashed.crash()
    crashed.path.write_bytes(b"")
    with pytest.raises(StoreCorrupt, match=r"jobs.db is empty, and jobs.db-wal beside it is not"):
        crashed.jobs()
    assert crashed.length() > 0


def test_the_rest_of_a_transaction_that_nobody_was_told_of_is_no_damage(crashed: Crashed) -> None:
    """Its process was killed once all was written and before the others knew; then they wrote over its first frames."""
    crashed.crash()
    before = crashed.length()
    crashed.put_many()
    crashed.crash()
    written = crashed.log.read_bytes()
    assert len(written) > before + 10 * crashed.frame
    # As the others went on from before it: one frame that follows no more stands for their transaction.
    damaged = bytearray(written)
    damaged[before + 100] ^= 0xFF
    crashed.log.write_bytes(damaged)
    assert crashed.jobs() == TRANSACTIONS


def test_a_log_begun_anew_is_no_damage(crashed: Crashed) -> None:
    """Behind its end lie frames of the log before."""
    crashed._live._db.execute("PRAGMA wal_checkpoint(RESTART)")
    crashed.put(3)
    crashed.crash()
    assert crashed.length() > 10 * crashed.frame
    assert crashed.jobs() == TRANSACTIONS + 3


def test_after_a_power_failure_it_is_only_told(
    crashed: Crashed, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    crashed.crash()
    crashed.flip(wal.HEADER + crashed.length() // 2)
    monkeypatch.setattr(wal, "_since_start", lambda moment: False)
    caplog.set_level(logging.ERROR, "tarry.store")
    assert 0 < crashed.jobs() < TRANSACTIONS
    assert "is damaged: " in caplog.text
    assert "After a power failure" in caplog.text


def test_others_that_write_while_it_is_looked_are_no_damage(crashed: Crashed, monkeypatch: pytest.MonkeyPatch) -> None:
    """The frame of an older log was read just before others wrote over it, those behind it just after."""
    crashed._live._db.execute("PRAGMA wal_checkpoint(RESTART)")
    crashed.put(2)
    read = wal.Log.frame
    wrote: list[int] = []

    def frame(self: wal.Log, number: int) -> wal.Frame | None:
        found = read(self, number)
        if found is not None and found.salt != self.salt and not wrote:
            wrote.append(number)
            crashed.put(5)
        return found

    monkeypatch.setattr(wal.Log, "frame", frame)
    SqliteStore(crashed._live.path).close()
    assert wrote


def test_others_that_write_meanwhile_are_no_damage(crashed: Crashed) -> None:
    for _ in range(50):
        crashed.put(2)
        SqliteStore(crashed._live.path).close()


@pytest.mark.parametrize("within", [0.05, 60.0], ids=["a moment", "too long"])
def test_a_header_that_another_process_is_writing_refuses_no_opening(
    crashed: Crashed, monkeypatch: pytest.MonkeyPatch, within: float
) -> None:
    """SQLite's reads wait for the header of the index; its count of the log's frames answers "busy" at once."""
    monkeypatch.setattr(wal, "COUNTED_WITHIN", 0.1 if within > 1 else 30.0)
    path = crashed._live.path
    reader = ApswDatabase(path)
    reader.execute("SELECT count(*) FROM tarry_job").fetchall()
    # Closing a descriptor ends SQLite's locks of this process, so it stays open until both connections are closed.
    index = os.open(f"{path}-shm", os.O_RDWR)
    byte = os.pread(index, 1, HALF)
    crashed._live._db.execute("BEGIN IMMEDIATE")
    os.pwrite(index, bytes([byte[0] ^ 1]), HALF)
    whole = threading.Timer(within, os.pwrite, (index, byte, HALF))
    try:
        whole.start()
        wal.check(reader, path)
    finally:
        whole.cancel()
        whole.join()
        os.pwrite(index, byte, HALF)
        crashed._live._db.execute("ROLLBACK")
        reader.close()
        crashed._live.close()
        os.close(index)
