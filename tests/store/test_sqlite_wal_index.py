"""A write-ahead log that was cut or deleted after a crash is told from all that crashes and other processes leave."""

import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tarry.errors import StoreCorrupt
from tarry.store.conformance.cases.jobs import put
from tarry.store.rules.base import Query
from tarry.store.sqlite.link import wal, wal_index
from tarry.store.sqlite.store import SqliteStore
from tests.cli.forked import ModuleProcess
from tests.seeds import seeded_random

ROUNDS = 6
"""Of killing one to three of three writers."""
CRASHES = """
import os, sys
from tarry.store.conformance.cases.jobs import put
from tarry.store.sqlite.store import SqliteStore
store = SqliteStore(sys.argv[1], shared=sys.argv[2])
for _ in range(20):
    put(store)
{then}
os._exit(0)
"""
LOCKED = """
import sqlite3, sys
sqlite3.connect(sys.argv[1], timeout=0).execute("BEGIN IMMEDIATE")
"""


def run(code: str, *arguments: str) -> int:
    return subprocess.run([sys.executable, "-c", code, *arguments], stderr=subprocess.DEVNULL, check=False).returncode


def crash(path: Path, then: str = "", shared: str = "") -> None:
    """Leaves a store with twenty jobs as a process that is killed leaves it."""
    assert run(CRASHES.format(then=then), str(path), shared) == 0


def beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)


def jobs(path: Path, shared: str = "") -> int:
    store = SqliteStore(path, shared=shared)
    try:
        return len(store.find(Query(limit=100_000)))
    finally:
        store.close()


@pytest.fixture(params=["", "yes"], ids=["ours", "shared"])
def shared(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


def test_a_log_that_is_whole_is_taken(path: Path, shared: str) -> None:
    crash(path, shared=shared)
    assert jobs(path, shared) == 20


def test_a_deleted_log_is_refused(path: Path, shared: str) -> None:
    crash(path, shared=shared)
    beside(path, "-wal").unlink()
    for _ in range(2):
        with pytest.raises(StoreCorrupt, match=r"jobs.db-wal is missing, .* Put the log back, .*: rm .*jobs.db-shm"):
            jobs(path, shared)
    assert not beside(path, "-wal").exists()


@pytest.mark.parametrize("kept", [0, 20, wal.HEADER, 0.3, -1], ids=["all", "header", "frames", "half", "byte"])
def test_a_cut_log_is_refused_and_put_back_it_is_taken(path: Path, kept: float) -> None:
    crash(path)
    log = beside(path, "-wal")
    whole = log.read_bytes()
    log.write_bytes(whole[: int(kept * len(whole)) if 0 < kept < 1 else int(kept)])
    with pytest.raises(StoreCorrupt, match=r"jobs.db-wal was cut to "):
        jobs(path)
    log.write_bytes(whole)
    assert jobs(path) == 20


def test_the_way_out_of_the_message_opens_it(path: Path) -> None:
    crash(path, "store._db.execute('PRAGMA wal_checkpoint')\nput(store)")
    beside(path, "-wal").unlink()
    with pytest.raises(StoreCorrupt):
        jobs(path)
    beside(path, "-shm").unlink()
    assert jobs(path) == 20


def test_it_is_seen_through_a_link(path: Path, tmp_path: Path) -> None:
    crash(path)
    beside(path, "-wal").unlink()
    link = tmp_path / "elsewhere" / "linked.db"
    link.parent.mkdir()
    link.symlink_to(path)
    with pytest.raises(StoreCorrupt, match=r"jobs.db-wal is missing"):
        jobs(link)


@pytest.mark.parametrize("mode", ["PASSIVE", "RESTART", "TRUNCATE"])
def test_a_log_that_is_in_the_database_may_be_deleted(path: Path, mode: str) -> None:
    crash(path, f"store._db.execute('PRAGMA wal_checkpoint({mode})')")
    beside(path, "-wal").unlink()
    assert jobs(path) == 20


def test_a_log_begun_anew_may_lack_its_old_rest(path: Path) -> None:
    crash(path, "store._db.execute('PRAGMA wal_checkpoint(RESTART)')\nput(store)")
    log = beside(path, "-wal")
    index = wal_index._index(wal_index.kept_descriptor(beside(path, "-shm")))
    assert index is not None
    assert index.length < log.stat().st_size
    os.truncate(log, index.length)
    assert jobs(path) == 21


def test_what_is_begun_anew_is_taken(path: Path) -> None:
    crash(path)
    path.unlink()
    beside(path, "-wal").unlink()
    assert jobs(path) == 0


def test_an_index_that_is_not_whole_tells_nothing(path: Path) -> None:
    crash(path)
    beside(path, "-wal").unlink()
    with beside(path, "-shm").open("r+b") as file:
        file.seek(20)
        file.write(b"\xff")
    assert jobs(path) >= 0


def test_after_a_power_failure_it_is_only_told(
    path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    crash(path, "store._db.execute('PRAGMA wal_checkpoint')\nput(store)")
    beside(path, "-wal").unlink()
    monkeypatch.setattr(wal, "_since_start", lambda moment: False)
    caplog.set_level(logging.ERROR, "tarry.store")
    assert jobs(path) == 20
    assert "jobs.db-wal is missing" in caplog.text


@pytest.mark.parametrize("again", [1, 3])
def test_the_look_ends_no_lock_of_this_process(path: Path, again: int) -> None:
    store = SqliteStore(path)
    put(store)
    store._db.execute("BEGIN IMMEDIATE")
    for _ in range(again):
        wal_index.refuse_cut(path)
        assert run(LOCKED, str(path)) == 1, "another process has the write lock, too"
    store._db.execute("ROLLBACK")
    assert run(LOCKED, str(path)) == 0
    store.close()


def test_opening_again_and_again_leaves_no_descriptors(path: Path) -> None:
    def count() -> int:
        return len(os.listdir("/proc/self/fd"))

    for _ in range(3):
        jobs(path)
    before = count()
    for _ in range(5):
        crash(path)
        jobs(path)
    assert count() <= before + 1


def test_a_descriptor_that_somebody_closed_is_not_trusted(path: Path) -> None:
    crash(path)
    wal_index.refuse_cut(path)
    inode = beside(path, "-shm").stat().st_ino
    (number,) = (number for number, (_, kept) in wal_index._kept.items() if kept == inode)
    os.close(number)
    with beside(path, "-wal").open("rb") as other:
        assert other.fileno() == number, "the number is another file's"
        wal_index.refuse_cut(path)
        assert other.read(4)
    assert jobs(path) == 20


class Writers:
    """Processes that write, open and begin the log anew."""

    def __init__(self, path: Path, shared: str) -> None:
        self._errors = path.with_name("errors").open("w+b")
        self._words = [str(path), shared]
        self._running: list[ModuleProcess] = []
        self.begin()

    def begin(self) -> None:
        while len(self._running) < 3:
            one = ModuleProcess("tests.store.wal_writer", self._words, stdout=subprocess.PIPE, stderr=self._errors)
            self._running.append(one)

    def kill(self, number: int) -> None:
        """So many of them, at any moment."""
        for one in self._running[:number]:
            one.kill()
            one.communicate()
        del self._running[:number]

    def wait(self) -> None:
        """Until the last one that was begun writes."""
        stdout = self._running[-1].stdout
        assert stdout is not None
        assert stdout.read(1) == b".", self.errors()

    def close(self) -> None:
        self.kill(3)
        self._errors.close()

    def errors(self) -> str:
        self._errors.seek(0)
        return self._errors.read().decode()


@pytest.fixture
def writers(path: Path, shared: str) -> Iterator[Writers]:
    writers = Writers(path, shared)
    yield writers
    writers.close()


def test_no_alarm_however_writers_are_killed(path: Path, shared: str, writers: Writers) -> None:
    """Those that are left, those that begin and this process open it again and again meanwhile."""
    chance = seeded_random()
    for _ in range(ROUNDS):
        writers.wait()
        end = time.monotonic() + chance.uniform(0, 0.2)
        while time.monotonic() < end:
            jobs(path, shared)
        writers.kill(chance.choice([1, 2, 3]))
        jobs(path, shared)
        writers.begin()
    assert writers.errors() == ""
