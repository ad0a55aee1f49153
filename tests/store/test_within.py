"""Inserting through the caller's own connection, on the store's own file: the SQLite store's side of it."""

import select
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from tarry import errors
from tarry.model.job import HELD, Job
from tarry.model.limit import TASK, Limit
from tarry.store.memory.store import MemoryStore
from tarry.store.rules.base import BANDS, Want
from tarry.store.rules.ids import uuid7
from tarry.store.rules.sleeper import Wakeup
from tarry.store.sqlite import watch as sqlite_watch
from tarry.store.sqlite.store import SqliteStore
from tests.worker.bench import LIMIT, until

WANTS = [Want("default", band, 0) for band in BANDS]


def job(key: str | None = None, **more: Any) -> Job:
    return Job(uuid7(), "t", b"[]", due=1, key=key, key_held_until=HELD if key else 0, **more)


@pytest.fixture
def close() -> Iterator[ExitStack]:
    """Closes what was opened, whatever happens."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "app.db"


@pytest.fixture
def own(close: ExitStack, path: Path) -> SqliteStore:
    """A store in a file of its own, which apsw has open."""
    store = SqliteStore(path)
    close.callback(store.close)
    return store


@pytest.fixture
def shared(close: ExitStack, path: Path) -> SqliteStore:
    """A store in a file shared with a program that uses sqlite3."""
    store = SqliteStore(path, shared="yes")
    close.callback(store.close)
    return store


@pytest.fixture
def theirs(close: ExitStack, path: Path) -> sqlite3.Connection:
    return close.enter_context(closing(sqlite3.connect(path, timeout=0)))


def count(store: SqliteStore) -> int:
    return sum(tally.count for tally in store.counts())


def test_it_is_there_once_they_commit(shared: SqliteStore, theirs: sqlite3.Connection) -> None:
    jobs = [job() for _ in range(3)]
    assert shared.insert_within(theirs, jobs) == [one.id for one in jobs]
    assert theirs.in_transaction
    assert count(shared) == 0
    theirs.commit()
    assert shared.get([one.id for one in jobs]) == jobs
    shared.insert_within(theirs, [job()])
    theirs.rollback()
    assert count(shared) == 3


def test_the_same_by_apsw_in_a_file_of_ones_own(own: SqliteStore, path: Path) -> None:
    with closing(apsw.Connection(str(path))) as db:
        with db:
            own.insert_within(db, [job()])
            own.insert_within(db.cursor(), [job("k")])
            assert count(own) == 0
        assert count(own) == 2
        db.execute("BEGIN")
        own.insert_within(db, [job()])
        db.execute("ROLLBACK")
    assert count(own) == 2


def test_savepoints(shared: SqliteStore, theirs: sqlite3.Connection) -> None:
    first, second, third = job(), job(), job()
    theirs.isolation_level = None
    theirs.execute("BEGIN")
    shared.insert_within(theirs, [first])
    theirs.execute("SAVEPOINT a")
    shared.insert_within(theirs, [second])
    theirs.execute("ROLLBACK TO a")
    shared.insert_within(theirs, [third])
    theirs.execute("RELEASE a")
    theirs.execute("COMMIT")
    assert shared.get([first.id, second.id, third.id]) == [first, None, third]


def test_keys_are_held_as_ever(shared: SqliteStore, theirs: sqlite3.Connection) -> None:
    (first,) = shared.insert([job("a")])
    second = job("b")
    assert shared.insert_within(theirs, [job("a"), second, job("b")]) == [first, second.id, second.id]
    assert shared.insert_within(theirs, [second]) == [second.id]
    theirs.commit()
    assert count(shared) == 2


def test_a_key_whose_time_was_over_is_free(shared: SqliteStore, theirs: sqlite3.Connection) -> None:
    outlived = Job(uuid7(), "t", b"[]", key="a", key_ttl=5, key_held_until=10, state_since=1)
    shared.insert([outlived])
    later = job("a", state_since=11)
    assert shared.insert_within(theirs, [later]) == [later.id]


def test_a_limited_task_gets_its_lane(shared: SqliteStore, theirs: sqlite3.Connection) -> None:
    shared.limit(TASK + "t", Limit(most=1))
    limited = job()
    shared.insert_within(theirs, [limited])
    theirs.commit()
    kept = shared.get([limited.id])[0]
    assert kept is not None
    assert kept.lane == ""
    shared.insert([job()])
    assert len(shared.claim(WANTS, 9, "me", 30_000_000, shared.time())) == 1


@pytest.mark.parametrize("factory", [sqlite3.Row, lambda cursor, row: {"row": row}, lambda cursor, row: None])
def test_rows_of_any_shape(shared: SqliteStore, theirs: sqlite3.Connection, factory: Any) -> None:
    theirs.row_factory = factory
    level = theirs.isolation_level
    (first,) = shared.insert_within(theirs, [job("a")])
    assert shared.insert_within(theirs.cursor(), [job("a")]) == [first]
    assert theirs.row_factory is factory
    assert theirs.isolation_level == level


def test_rows_of_any_shape_by_apsw(own: SqliteStore, path: Path) -> None:
    with closing(apsw.Connection(str(path))) as db:
        db.row_trace = lambda cursor, row: None
        with db:
            (first,) = own.insert_within(db, [job("a")])
            assert own.insert_within(db, [job("a")]) == [first]


def test_their_error_if_somebody_else_writes(shared: SqliteStore, theirs: sqlite3.Connection, path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(sqlite3.OperationalError, match="database is locked"):
            shared.insert_within(theirs, [job()])


def test_their_error_by_apsw(own: SqliteStore, path: Path) -> None:
    with closing(apsw.Connection(str(path))) as db, closing(apsw.Connection(str(path))) as other:
        other.execute("BEGIN IMMEDIATE")
        db.execute("BEGIN")
        with pytest.raises(apsw.BusyError):
            own.insert_within(db, [job()])


def test_where_each_statement_is_committed_at_once(shared: SqliteStore, path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        with pytest.raises(errors.StoreError, match=r"no transaction open.*begin one first"):
            shared.insert_within(db, [job()])
        db.execute("BEGIN")
        shared.insert_within(db, [job()])
        db.execute("COMMIT")
    assert count(shared) == 1


def test_the_same_by_apsw(own: SqliteStore, path: Path) -> None:
    with closing(apsw.Connection(str(path))) as db, pytest.raises(errors.StoreError, match="no transaction open"):
        own.insert_within(db, [job()])


def test_two_copies_of_sqlite_are_kept_apart(own: SqliteStore, theirs: sqlite3.Connection) -> None:
    with pytest.raises(errors.StoreError, match=r"two copies of SQLite .* open the store as .*app\.db\?shared=yes"):
        own.insert_within(theirs, [job()])


def test_two_copies_the_other_way_round(shared: SqliteStore, path: Path) -> None:
    told = r"two copies of SQLite .*app\.db\?shared=apsw"
    with closing(apsw.Connection(str(path))) as db, db, pytest.raises(errors.StoreError, match=told):
        shared.insert_within(db, [job()])


def test_another_database(shared: SqliteStore, tmp_path: Path) -> None:
    for other in (tmp_path / "other.db", ":memory:", ""):
        with closing(sqlite3.connect(other)) as db, pytest.raises(errors.OtherDatabase, match="another database than"):
            shared.insert_within(db, [job()])


def test_an_attached_database(shared: SqliteStore, tmp_path: Path, path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "other.db")) as db:
        db.execute("ATTACH ? AS jobs", (str(path),))
        with pytest.raises(errors.StoreError, match="attached, as jobs: SQLite does not commit several files as one"):
            shared.insert_within(db, [job()])


def test_the_same_file_by_another_name(shared: SqliteStore, tmp_path: Path, path: Path) -> None:
    (tmp_path / "link.db").symlink_to(path)
    with closing(sqlite3.connect(f"file:{tmp_path}/link.db?cache=private", uri=True)) as db:
        shared.insert_within(db, [job()])
        db.commit()
    assert count(shared) == 1


def test_no_connection_at_all(own: SqliteStore) -> None:
    with pytest.raises(TypeError, match=r"connection='app\.db': give a connection or cursor of sqlite3 or apsw"):
        own.insert_within("app.db", [job()])


def test_a_store_that_cannot(theirs: sqlite3.Connection) -> None:
    with pytest.raises(errors.OtherDatabase, match=r"memory://.* cannot take part"):
        MemoryStore().insert_within(theirs, [job()])


def test_a_full_disk_refuses_these_too(shared: SqliteStore, theirs: sqlite3.Connection, path: Path) -> None:
    Path(f"{path}-reserve").touch()
    with pytest.raises(errors.StoreFull, match="the disk is full"):
        shared.insert_within(theirs, [job()])
    assert not theirs.in_transaction


# Wake-up


@pytest.fixture
def sleeper(shared: SqliteStore, close: ExitStack, monkeypatch: pytest.MonkeyPatch) -> Wakeup:
    """Of a worker that sleeps."""
    monkeypatch.setattr(sqlite_watch, "PROBE", 0.05)
    sleeper = shared.wakeup()
    close.callback(sleeper.close)
    sleeper.listen("work:default")
    return sleeper


def is_woken(sleeper: Wakeup, seconds: float) -> bool:
    """Whether it is woken within that time."""
    return bool(select.select(sleeper.filenos(), [], [], seconds)[0])


def watching() -> bool:
    return any(thread.name == "tarry-commits" for thread in threading.enumerate())


def test_a_commit_wakes(shared: SqliteStore, theirs: sqlite3.Connection, sleeper: Wakeup) -> None:
    shared.insert_within(theirs, [job()])
    assert watching()
    theirs.commit()
    assert is_woken(sleeper, LIMIT)
    until(lambda: not watching())


def test_a_rollback_wakes_nobody(shared: SqliteStore, theirs: sqlite3.Connection, sleeper: Wakeup) -> None:
    shared.insert_within(theirs, [job()])
    theirs.rollback()
    until(lambda: not watching())
    assert not is_woken(sleeper, 0)


def test_it_is_not_left_behind_by_a_rollback(shared: SqliteStore, theirs: sqlite3.Connection, sleeper: Wakeup) -> None:
    shared.insert_within(theirs, [job()])
    theirs.rollback()
    shared.insert_within(theirs, [job()])
    theirs.commit()
    assert is_woken(sleeper, LIMIT)
    until(lambda: not watching())


def test_somebody_elses_commit_rings_nothing(
    shared: SqliteStore, theirs: sqlite3.Connection, sleeper: Wakeup, path: Path
) -> None:
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE orders (id)")
        shared.insert_within(theirs, [job()])
        theirs.rollback()
        other.execute("INSERT INTO orders VALUES (1)")
        other.commit()
    until(lambda: not watching())
    assert not is_woken(sleeper, 0)


def test_a_transaction_that_takes_its_time(
    shared: SqliteStore, theirs: sqlite3.Connection, sleeper: Wakeup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_watch, "CLOSELY", 0.0)
    monkeypatch.setattr(sqlite_watch, "PROBE", 0.0)
    shared.insert_within(theirs, [job()])
    assert not is_woken(sleeper, 0.2)
    assert watching()
    theirs.commit()
    assert is_woken(sleeper, LIMIT)


def test_a_transaction_that_is_left_open(
    shared: SqliteStore, theirs: sqlite3.Connection, sleeper: Wakeup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_watch, "AT_MOST", 0.0)
    shared.insert_within(theirs, [job()])
    until(lambda: not watching())
    assert not is_woken(sleeper, 0)


def test_closing_the_store_ends_the_watch(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "x.db")) as db:
        store = SqliteStore(tmp_path / "x.db", shared="yes")
        store.insert_within(db, [job()])
        store.close()
        assert not watching()
        db.commit()
    with closing(SqliteStore(tmp_path / "x.db", shared="yes")) as store:
        assert count(store) == 1


def test_nothing_new_is_not_watched_for(shared: SqliteStore, theirs: sqlite3.Connection) -> None:
    shared.insert([job("a")])
    shared.insert_within(theirs, [job("a")])
    assert not watching()
