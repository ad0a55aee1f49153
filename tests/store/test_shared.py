"""A file that is another program's too: the promises hold there, its header is left alone, older schemas come along."""

import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from tarry import errors
from tarry.config.config import load
from tarry.model.job import Job
from tarry.store.conformance import Conformance
from tarry.store.opening import open_store
from tarry.store.rules.base import BANDS, Store, Want
from tarry.store.rules.ids import uuid7
from tarry.store.shared.schema_steps import SchemaStep
from tarry.store.sqlite import schema
from tarry.store.sqlite.store import SqliteStore

WANTS = [Want("default", band, 0) for band in BANDS]


def job(body: bytes = b"[]") -> Job:
    return Job(uuid7(), "t", body, due=1)


def theirs(path: Path) -> Path:
    """A database of a program that keeps its own version in the header."""
    with closing(sqlite3.connect(path)) as db:
        db.executescript(
            "CREATE TABLE orders (id INTEGER PRIMARY KEY, state TEXT); INSERT INTO orders VALUES (1, 'new');"
            "PRAGMA application_id = 4711; PRAGMA user_version = 42"
        )
    return path


@pytest.fixture(scope="session")
def their_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return theirs(tmp_path_factory.mktemp("theirs") / "app.db")


class SharedFile(Conformance):
    is_variant = True
    shared = ""

    @pytest.fixture
    def store(self, tmp_path: Path, their_file: Path) -> Iterator[Store]:
        path = Path(shutil.copy(their_file, tmp_path / "app.db"))
        store = SqliteStore(path, durable=False, shared=self.shared)
        yield store
        store.close()

    def reopen(self, store: Store) -> Store:
        store.close()
        return open_store(store.url)


class TestSharedWithPython(SharedFile):
    shared = "yes"


class TestSharedWithApsw(SharedFile):
    shared = "apsw"


@pytest.mark.parametrize("shared", ["yes", "apsw"])
def test_what_was_there_is_left_alone(tmp_path: Path, shared: str) -> None:
    path = theirs(tmp_path / "app.db")
    for _ in range(2):
        with closing(open_store(f"sqlite:///{path}?shared={shared}")) as store:
            store.insert([job()])
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA application_id").fetchone() == (4711,)
        assert db.execute("PRAGMA user_version").fetchone() == (42,)
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert db.execute("SELECT * FROM orders").fetchall() == [(1, "new")]
        assert db.execute("SELECT count(*) FROM tarry_job").fetchone() == (2,)
        names = {name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%'")}
    assert all(name.startswith("tarry_") for name in names - {"orders"})


def test_without_being_asked_a_foreign_file_is_refused_and_the_way_out_named(tmp_path: Path) -> None:
    path = theirs(tmp_path / "app.db")
    with pytest.raises(errors.StoreForeign, match=r"another program.*shared=yes"):
        SqliteStore(path)
    SqliteStore(path, shared="yes").close()
    with pytest.raises(errors.StoreForeign, match=r"open it as sqlite:///.*/app\.db\?shared=yes"):
        SqliteStore(path)


@pytest.mark.parametrize("first", ["", "yes"])
def test_a_file_that_is_new_may_be_shared_from_the_start(tmp_path: Path, first: str) -> None:
    path = tmp_path / "app.db"
    SqliteStore(path, shared=first).close()
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE orders (id)")
        db.execute("INSERT INTO orders VALUES (1)")
        db.commit()
    store = SqliteStore(path, shared="yes")
    store.insert([job()])
    store.close()
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT (SELECT count(*) FROM orders), (SELECT count(*) FROM tarry_job)").fetchone() == (1, 1)


def test_tables_of_yours_in_a_file_of_tarrys(tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path / "x.db")) as store:
        with closing(apsw.Connection(str(tmp_path / "x.db"))) as db:
            db.execute("CREATE TABLE orders (id)")
        store.insert([job()])
    with closing(SqliteStore(tmp_path / "x.db")) as store:
        assert len(store.claim(WANTS, 9, "me", 30_000_000, store.time())) == 1


def test_a_newer_schema_in_a_shared_file(tmp_path: Path) -> None:
    path = theirs(tmp_path / "app.db")
    SqliteStore(path, shared="yes").close()
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE tarry_about SET value = value + 1")
        db.commit()
    with pytest.raises(errors.StoreNewer, match="upgrade tarry on this host"):
        SqliteStore(path, shared="yes")


def test_the_errors_are_the_same_as_of_a_file_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tarry.store.sqlite.file.BUSY_LIMIT", 0.05)
    path = theirs(tmp_path / "app.db")
    with closing(SqliteStore(path, shared="yes")) as store, closing(sqlite3.connect(path)) as db:
        db.execute("BEGIN IMMEDIATE")
        with pytest.raises(errors.StoreBusy, match="locked by another program"):
            store.insert([job()])
        db.rollback()
        store.insert([job()])
    (tmp_path / "no.db").write_bytes(b"no database at all " * 100)
    with pytest.raises(errors.StoreCorrupt, match="damaged or no database"):
        SqliteStore(tmp_path / "no.db", shared="yes")


def test_a_sqlite_that_is_too_old_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 36, 0))
    with pytest.raises(errors.ConfigError, match=r"needs 3\.37 or later"):
        SqliteStore(tmp_path / "x.db", shared="yes")


def test_the_url(tmp_path: Path) -> None:
    (tmp_path / "tarry.toml").write_text('store = "sqlite:///app.db?shared=yes"\n')
    (url,) = load(directory=tmp_path).stores
    with closing(open_store(url)) as store:
        assert isinstance(store, SqliteStore)
        assert store.path == tmp_path / "app.db"
        assert store.url == f"sqlite:///{tmp_path}/app.db?shared=yes" == url
    with closing(open_store(f"sqlite:///{tmp_path}/own.db?shared=no")) as store:
        assert store.url == f"sqlite:///{tmp_path}/own.db"


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("shared=perhaps", "shared='perhaps': one of no, yes, apsw"),
        ("share=yes", "no option 'share' here; did you mean shared"),
        ("shared=yes&mode=ro", "no option 'mode' here; there are shared, fsync"),
        ("shared=", "shared='': one of no, yes, apsw"),
    ],
)
def test_a_query_that_means_nothing(tmp_path: Path, query: str, told: str) -> None:
    with pytest.raises(errors.ConfigError, match=told):
        open_store(f"sqlite:///{tmp_path}/x.db?{query}")


def test_a_question_mark_in_the_name_of_a_directory(tmp_path: Path) -> None:
    (tmp_path / "what?=").mkdir()
    with closing(open_store(f"sqlite:///{tmp_path}/what?=/x.db")) as store:
        assert store.url == f"sqlite:///{tmp_path}/what?=/x.db"


def test_in_one_process_with_sqlite3_nothing_is_lost_and_the_file_stays_whole(tmp_path: Path) -> None:
    path = theirs(tmp_path / "app.db")
    code = [sys.executable, "-c", BESIDE, str(path)]
    done = subprocess.run(code, timeout=250, stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout == "600 600 ok\n"


BESIDE = """
import sqlite3, sys, threading
from tarry.model.job import Job
from tarry.store.rules.ids import uuid7
from tarry.store.sqlite.store import SqliteStore
def orders():
    db = sqlite3.connect(sys.argv[1], timeout=60)
    for n in range(600):
        db.execute("INSERT INTO orders (state) VALUES (?)", ("x" * 300,))
        db.commit()
store = SqliteStore(sys.argv[1], durable=False, shared="yes")
other = threading.Thread(target=orders)
other.start()
for n in range(600):
    store.insert([Job(uuid7(), "t", b"x" * 300, due=1)])
other.join()
db = sqlite3.connect(sys.argv[1])
print(db.execute("SELECT count(*) - 1 FROM orders").fetchone()[0], sum(t.count for t in store.counts()),
    db.execute("PRAGMA integrity_check").fetchone()[0])
"""


# Steps

STEP = SchemaStep("adds a column", ("ALTER TABLE tarry_job ADD COLUMN weight INTEGER NOT NULL DEFAULT 3",))
"""A made-up one."""


@pytest.fixture(params=["", "yes"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param:
        theirs(tmp_path / "x.db")
    return str(request.param)


def weights(path: Path) -> list[int]:
    with closing(apsw.Connection(str(path))) as db:
        rows: list[tuple[int]] = db.execute("SELECT weight FROM tarry_job").fetchall()  # type: ignore[assignment]
        return [weight for (weight,) in rows]


def test_a_file_is_brought_up_to_date(tmp_path: Path, shared: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path, kept = tmp_path / "x.db", Job(uuid7(), "t", b"[1]", due=1)
    with closing(SqliteStore(path, shared=shared)) as store:
        store.insert([kept])
    monkeypatch.setattr(schema, "STEPS", (*schema.STEPS, STEP))
    for _ in range(2):
        with closing(SqliteStore(path, shared=shared)) as store:
            assert store.get([kept.id]) == [kept]
    assert weights(path) == [3]


OPENER = """
import sys
from tarry.store.rules.base import Query
from tarry.store.shared.schema_steps import SchemaStep
from tarry.store.sqlite import schema
from tarry.store.sqlite.store import SqliteStore
schema.STEPS = (*schema.STEPS, SchemaStep("adds a column", (sys.argv[2],)))
sys.stdin.readline()
print(len(SqliteStore(sys.argv[1], durable=False).find(Query(limit=10_000))), flush=True)
"""


def test_several_who_open_an_old_file_at_once(tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path / "x.db", durable=False)) as store:
        store.insert([Job(uuid7(), "t", b"[1]", due=1) for _ in range(2000)])
    code = [sys.executable, "-c", OPENER, str(tmp_path / "x.db"), *STEP.statements]
    openers = [subprocess.Popen(code, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(5)]
    for opener in openers:
        assert opener.stdin is not None
        opener.stdin.write("go\n")
        opener.stdin.flush()
    assert [opener.communicate(timeout=250)[0] for opener in openers] == ["2000\n"] * 5
    assert weights(tmp_path / "x.db") == [3] * 2000


def test_an_update_that_fails_leaves_the_old_file_as_it_was(
    tmp_path: Path, shared: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, kept = tmp_path / "x.db", Job(uuid7(), "t", b"[1]", due=1)
    with closing(SqliteStore(path, shared=shared)) as store:
        store.insert([kept])
    with monkeypatch.context() as broken:
        step = SchemaStep("breaks", (*STEP.statements, "CREATE TABLE tarry_cell (; what)"))
        broken.setattr(schema, "STEPS", (*schema.STEPS, step))
        with pytest.raises(errors.StoreError):
            SqliteStore(path, shared=shared)
    with closing(SqliteStore(path, shared=shared)) as store:
        assert store.get([kept.id]) == [kept]
