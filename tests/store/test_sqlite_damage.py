"""A file that was damaged, moved, replaced, cut or written over under running processes is noticed by all of them."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

from tarry.errors import StoreCorrupt, StoreError, StoreUnavailable
from tarry.store.conformance.cases.jobs import put
from tarry.store.rules.base import BANDS, Want
from tarry.store.sqlite import file as sqlite_file
from tarry.store.sqlite.link.damage_mark import DamageMark
from tarry.store.sqlite.link.guard import FileGuard
from tarry.store.sqlite.store import SqliteStore

WANTS = [Want("default", band, 10) for band in BANDS]


class Producer:
    """Another process with the store open."""

    def __init__(self, path: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.store.sqlite_producer", str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def insert(self) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return self._process.stdout.readline()

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(path, durable=False)
    yield store
    store.close()


@pytest.fixture
def producer(path: Path, store: SqliteStore) -> Iterator[Producer]:
    producer = Producer(path)
    try:
        assert producer.insert().startswith("stored")
        yield producer
    finally:
        producer.close()


def root_of(path: Path, tree: str) -> tuple[int, int]:
    """Where the tree's first page begins in the file, and its length, in bytes."""
    database = apsw.Connection(str(path))
    root = database.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (tree,)).get
    size = database.pragma("page_size")
    database.close()
    return (root - 1) * size, size


def test_what_one_process_finds_refuses_producers_in_all(path: Path, producer: Producer) -> None:
    damage(path, "tarry_scheduled")
    worker = SqliteStore(path, durable=False)
    with pytest.raises(StoreCorrupt, match=r"jobs\.db is damaged"):
        worker.exchange((), WANTS, 10, "me", 1_000_000, worker.time())
    said = producer.insert()
    assert said.startswith("StoreCorrupt False"), "surely not stored"
    assert "jobs.db is damaged, so no job is taken: " in said
    assert "`tarry check`" in said
    DamageMark(path).clear()
    assert producer.insert().startswith("stored")
    worker.close()


def shell(command: str, path: Path) -> None:
    """Runs a command in the directory of the file."""
    # In another process: SQLite's locks end when anything in this one closes the file.
    subprocess.run(command, shell=True, cwd=path.parent, check=True, stderr=subprocess.DEVNULL)


def damage(path: Path, tree: str) -> None:
    """Overwrites the tree's first page as a disk may, which no time of writing tells."""
    database = apsw.Connection(str(path))
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    at, size = root_of(path, tree)
    database.close()
    page = f"bs={size} seek={at // size} count=1 conv=notrunc"
    shell(f"touch -r {path.name} time; dd if=/dev/urandom of={path.name} {page}; touch -r time {path.name}", path)


PAGE = "dd if=/dev/zero of=jobs.db bs=4096 seek=3 count=1 conv=notrunc"
OVER = "written over by another program"
HARMS: list[tuple[str, type[StoreError], str]] = [
    ("cp backup.db jobs.db", StoreCorrupt, OVER),
    (PAGE, StoreCorrupt, OVER),
    ("truncate -s 0 jobs.db", StoreCorrupt, "it has 0 bytes now"),
    ("truncate -s 4096 jobs.db", StoreCorrupt, "it has 4,096 bytes now"),
    ("mv backup.db jobs.db", StoreCorrupt, "another file was put in its place, beside the log of the old one"),
    ("mv jobs.db away.db", StoreUnavailable, "was moved or deleted while in use"),
    ("rm jobs.db", StoreUnavailable, "was moved or deleted while in use"),
    ("rm jobs.db*; mv backup.db jobs.db", StoreUnavailable, "was moved or deleted while in use"),
]


@pytest.mark.parametrize(("harm", "kind", "told"), HARMS, ids=[harm for harm, _, _ in HARMS])
def test_nothing_is_acknowledged_once_the_file_is_another(
    path: Path, store: SqliteStore, producer: Producer, harm: str, kind: type[StoreError], told: str
) -> None:
    back_up(path)
    put(store, 3)
    shell(harm, path)
    said = producer.insert()
    assert said.startswith(f"{kind.__name__} False"), "surely not stored"
    assert told in said
    for call in (lambda: put(store), lambda: store.exchange((), WANTS, 1, "me", 1_000_000, store.time())):
        with pytest.raises(kind, match=told) as caught:
            call()
        assert str(path) in str(caught.value), "it names the file"


def back_up(path: Path) -> None:
    """As `sqlite3 jobs.db ".backup backup.db"`."""
    source, target = apsw.Connection(str(path)), apsw.Connection(str(path.with_name("backup.db")))
    with target.backup("main", source, "main") as backup:
        backup.step(-1)
    source.close()
    target.close()


def test_a_process_that_comes_later_stores_nothing_either(path: Path, store: SqliteStore) -> None:
    put(store)
    shell(PAGE, path)
    with pytest.raises(StoreCorrupt):
        put(store)
    late = SqliteStore(path)
    for call in (lambda: put(late), lambda: late.exchange((), WANTS, 1, "me", 1_000_000, late.time())):
        with pytest.raises(StoreCorrupt, match=r"was replaced while in use, .* `tarry store repair`"):
            call()
    late.close()


def test_an_insert_during_which_the_file_is_replaced_is_not_acknowledged(
    path: Path, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store)
    insert = store._insert_any

    def harmed(jobs: object) -> object:
        answer = insert(jobs)  # type: ignore[arg-type]
        shell(PAGE, path)
        return answer

    monkeypatch.setattr(store, "_insert_any", harmed)
    with pytest.raises(StoreCorrupt) as caught:
        put(store)
    assert caught.value.stored is None, "it may be stored"


def test_what_sqlite_itself_writes_to_the_file_is_no_alarm(path: Path, store: SqliteStore) -> None:
    other, guard = apsw.Connection(str(path)), FileGuard(path)
    for mode in ("PASSIVE", "FULL", "RESTART", "TRUNCATE") * 3:
        written = path.stat().st_mtime_ns
        put(store)
        other.execute(f"PRAGMA wal_checkpoint({mode})")
        assert path.stat().st_mtime_ns > written
        guard.check()
    for statement in ("VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)", "REINDEX", "ANALYZE"):
        other.execute(statement)
        guard.check()
        put(store)
    other.close()


def test_a_merge_that_is_seen_in_its_middle_is_no_alarm(path: Path, store: SqliteStore) -> None:
    """A reader in between leaves part of the log unmerged, at each of many lengths."""
    other, guard = apsw.Connection(str(path)), FileGuard(path)
    for _ in range(20):
        put(store)
        other.execute("BEGIN")
        other.execute("SELECT count(*) FROM tarry_job").get  # noqa: B018 - it begins the snapshot
        put(store)
        store._db.execute("PRAGMA wal_checkpoint")
        guard.check()
        other.execute("COMMIT")
        store._db.execute("PRAGMA wal_checkpoint")
        guard.check()
    other.close()


class FailingOnce:
    """A connection of which the first call of one statement fails, and no later one."""

    def __init__(self, database: object, error: Exception, statement: str) -> None:
        self._database, self._error, self._statement = database, error, statement
        self.failed = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._database, name)

    def execute(self, statement: str, *bindings: object) -> object:
        if not self.failed and self._statement in statement:
            self.failed = 1
            raise self._error
        return self._database.execute(statement, *bindings)  # type: ignore[attr-defined]


def failed_read(code: int = apsw.SQLITE_IOERR_READ) -> Exception:
    error = apsw.exception_for(code)
    error.args = ("disk I/O error",)
    return error


TRANSIENT = [failed_read(), failed_read(apsw.SQLITE_IOERR_CORRUPTFS), apsw.CorruptError("malformed")]
CALLS: list[tuple[str, Callable[[SqliteStore], object]]] = [
    ("SELECT queue FROM tarry_paused", lambda store: store.exchange((), WANTS, 1, "me", 1_000_000, store.time())),
    ("UPDATE tarry_job", lambda store: store.exchange((), WANTS, 1, "me", 1_000_000, store.time())),
    ("tarry_put", put),
    ("GROUP BY", lambda store: store.counts()),
]


@pytest.mark.parametrize("error", TRANSIENT, ids=["read", "eio", "malformed"])
@pytest.mark.parametrize(("statement", "call"), CALLS, ids=["look", "claim", "insert", "read"])
def test_a_read_that_fails_once_is_asked_again_and_is_no_damage(
    store: SqliteStore, path: Path, error: Exception, statement: str, call: Callable[[SqliteStore], object]
) -> None:
    put(store)
    failing = FailingOnce(store._db, error, statement)
    store._db = failing  # type: ignore[assignment]
    call(store)
    assert failing.failed == 1
    assert not DamageMark(path).is_set()


def test_another_failure_of_the_disk_is_not_asked_again(path: Path) -> None:
    calls = []

    def fails() -> None:
        calls.append(1)
        raise failed_read(apsw.SQLITE_IOERR_WRITE)

    with pytest.raises(apsw.IOError):
        sqlite_file.call_again(fails, path)
    assert len(calls) == 1


def test_a_database_that_was_moved_without_its_log_is_not_begun_anew(path: Path) -> None:
    """SQLite would delete the log, and what was acknowledged and is nowhere else."""
    crash = "import os, sys; from pathlib import Path; from tarry.store.sqlite.store import SqliteStore;"
    crash += "from tarry.store.conformance.cases.jobs import put; put(SqliteStore(Path(sys.argv[1])), 7); os._exit(0)"
    subprocess.run([sys.executable, "-c", crash, str(path)], check=True)
    path.rename(path.with_name("away.db"))
    with pytest.raises(StoreCorrupt, match=r"jobs\.db is missing, and jobs\.db-wal beside it is not: .* Put it back"):
        SqliteStore(path)
    assert not path.exists()
    path.with_name("away.db").rename(path)
    store = SqliteStore(path)
    assert sum(tally.count for tally in store.counts()) == 7
    store.close()
