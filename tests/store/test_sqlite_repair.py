"""Each table and each index of a SQLite file is damaged in turn: it is named, and repaired with an account."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from tarry.errors import StoreBusy, StoreCorrupt, StoreForeign, StoreFull
from tarry.model.job import label_headers
from tarry.model.limit import Limit
from tarry.store.conformance.cases.jobs import put
from tarry.store.rules.base import BANDS, Want
from tarry.store.sqlite.damage import repair as repairing
from tarry.store.sqlite.damage.repair import repair
from tarry.store.sqlite.damage.trees import UNKNOWN, integrity
from tarry.store.sqlite.link.damage_mark import DamageMark
from tarry.store.sqlite.schema import SCHEMA
from tarry.store.sqlite.store import SqliteStore

JOBS = 400
"""So many that their table has several levels."""
WANTS = [Want("default", band, JOBS) for band in BANDS]


def trees_of_schema() -> list[tuple[str, bool]]:
    """The name of each tree, and whether it is an index."""
    database = apsw.Connection(":memory:")
    for statement in SCHEMA.split(";"):
        database.execute(statement)
    found: list[Any] = database.execute(
        "SELECT name, type = 'index' FROM sqlite_schema WHERE rootpage > 0 ORDER BY 1"
    ).fetchall()
    database.close()
    return [(name, bool(is_index)) for name, is_index in found]


TREES = trees_of_schema()
TABLES = [name for name, is_index in TREES if not is_index]
INDEXES = [name for name, is_index in TREES if is_index]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with jobs in each state, of which some were deleted."""
    path = tmp_path_factory.mktemp("template") / "jobs.db"
    store = SqliteStore(path, fsync=False)
    store.limit("task:limited", Limit(1))
    put(store, JOBS, body=b"x" * 200)
    put(store, 20, body=b"y" * 9000)
    put(store, 20, task="limited", lane="a")
    labels = msgspec.json.encode(label_headers({"customer": "7", "plan": ""}))
    put(store, 20, due=store.time() + 10**12, headers=labels)
    for number in range(60):
        store.kv_cas(f"cell {number}", None, b"z" * 300)
    gone = put(store, 200, body=b"gone")
    store.claim(WANTS, 10, "me", 10**9, store.time())
    store._change_each("DELETE FROM tarry_job WHERE id = ?", [(job.id,) for job in gone])
    store.close()
    return path


@pytest.fixture
def path(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(template, tmp_path / "jobs.db"))


def damage(path: Path, tree: str, content: bytes = b"\xff") -> None:
    """Overwrites the first page of a tree."""
    database = apsw.Connection(str(path))
    root = database.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (tree,)).get
    size = database.pragma("page_size")
    database.close()
    with path.open("r+b") as file:
        file.seek((root - 1) * size)
        file.write(content * (size // len(content)))


def content(path: Path) -> dict[str, set[tuple[object, ...]]]:
    """All rows of all tables; jobs without their place in the file."""
    database = apsw.Connection(str(path))
    found = {name: set(database.execute(f"SELECT * FROM {name}").fetchall()) for name in TABLES}
    database.close()
    found["tarry_job"] = {row[1:] for row in found["tarry_job"]}
    return found


def is_whole(path: Path) -> bool:
    database = apsw.Connection(str(path))
    said = database.pragma("integrity_check")
    database.close()
    return bool(said == "ok")


def rows_of(report: repairing.RepairReport) -> dict[str, int | None]:
    return {table.table: table.lost for table in report.tables if table.lost != 0}


@pytest.mark.parametrize("fill", [b"\xff", b"\0"], ids=["ones", "zeros"])
@pytest.mark.parametrize("tree", INDEXES)
def test_a_damaged_index_is_named_and_nothing_is_lost(path: Path, tree: str, fill: bytes) -> None:
    before = content(path)
    damage(path, tree, fill)
    fact = integrity(path, "")
    assert fact.value == f"damaged: {tree}"
    assert fact.advice.startswith("only indexes, so no job is lost: ")
    report = repair(path)
    assert rows_of(report) == {}
    assert content(path) == before
    assert is_whole(path)
    assert integrity(path, "").value == "whole"


@pytest.mark.parametrize("tree", TABLES)
def test_a_damaged_table_is_named_and_what_can_be_read_is_saved(path: Path, tree: str) -> None:
    before, original = content(path), path.read_bytes()
    damage(path, tree)
    damaged = path.read_bytes()
    assert original != damaged
    fact = integrity(path, "")
    assert fact.value == f"damaged: {tree}"
    assert fact.advice.startswith("a table: stop all that use the file; then `tarry store repair`")
    report = repair(path)
    after = content(path)
    assert is_whole(path)
    assert after.pop("tarry_lane") <= before.pop("tarry_lane") if tree == "tarry_limit" else True
    lost = {name for name in after if after[name] != before[name]}
    assert lost <= {tree}, "all other tables are as they were"
    assert not lost or tree != "tarry_label", "jobs say what labels they have"
    assert after[tree] <= before[tree], "and what was deleted does not come back" if tree in after else ""
    if lost:
        assert rows_of(report) == {tree: None}
    assert Path(report.kept).stat().st_size == len(damaged)


def test_the_jobs_of_a_table_without_its_first_page_are_all_saved(path: Path) -> None:
    before = content(path)["tarry_job"]
    assert len(before) == JOBS + 60
    damage(path, "tarry_job")
    report = repair(path)
    assert rows_of(report) == {}
    assert content(path)["tarry_job"] == before
    store = SqliteStore(path, durable=False)
    claimed = store.claim(WANTS, 10**6, "me", 10**9, store.time())
    assert len(claimed) > JOBS, "they run"
    store.close()


def test_several_damaged_trees_at_once(path: Path) -> None:
    before = content(path)
    for tree in ("tarry_job", "tarry_cell", "tarry_ready", "tarry_owner"):
        damage(path, tree)
    report = repair(path)
    # Of a table that cannot be read at all, SQLite does not look at the indexes.
    assert {tree.name for tree in report.damaged} >= {"tarry_job", "tarry_cell", "tarry_owner"}
    after = content(path)
    assert is_whole(path)
    assert after["tarry_job"] == before["tarry_job"]
    assert after["tarry_cell"] <= before["tarry_cell"]
    assert rows_of(report).keys() == {"tarry_cell", "tarry_owner"}


def test_a_leaf_that_is_lost_is_counted(path: Path) -> None:
    """The account has the jobs that cannot be saved."""
    before = content(path)["tarry_job"]
    leaves = jobs_pages(path)
    with path.open("r+b") as file:
        file.seek((leaves[3] - 1) * 4096)
        file.write(b"\xff" * 4096)
    report = repair(path)
    after = content(path)["tarry_job"]
    assert after < before
    assert rows_of(report) == {"tarry_job": len(before) - len(after)}


def jobs_pages(path: Path) -> list[int]:
    """The leaves of the table of jobs."""
    with apsw.Connection(str(path)) as database:
        rows: list[Any] = database.execute(
            "SELECT pageno FROM dbstat WHERE name = 'tarry_job' AND pagetype = 'leaf'"
        ).fetchall()
    database.close()
    return sorted(number for (number,) in rows)


def test_a_whole_file_stays_as_it_is_and_takes_jobs_again(path: Path) -> None:
    DamageMark(path).set("a read failed")
    before = content(path)
    report = repair(path)
    assert (report.damaged, report.kept) == ([], "")
    assert content(path) == before
    assert sorted(file.name for file in path.parent.iterdir()) == ["jobs.db"]


@pytest.mark.parametrize("is_damaged", [False, True])
def test_a_file_that_another_process_has_open_is_left_alone(path: Path, is_damaged: bool) -> None:
    if is_damaged:
        damage(path, "tarry_ready")
    user = subprocess.Popen(
        [sys.executable, "-m", "tests.store.sqlite_producer", str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert user.stdin is not None
        assert user.stdout is not None
        user.stdin.write(b"\n")
        user.stdin.flush()
        assert user.stdout.readline()
        DamageMark(path).set("found")
        with pytest.raises(StoreBusy, match=r"is in use: stop all that use it first \(`tarry quit`"):
            repair(path)
        assert DamageMark(path).is_set()
    finally:
        user.kill()
        user.communicate()
    assert bool(repair(path).kept) == is_damaged


def test_what_is_not_to_be_saved_is_left_as_it_is(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "other.db"
    with apsw.Connection(str(other)) as database:
        database.execute("CREATE TABLE theirs (a)")
        database.execute("CREATE INDEX tarry_ready ON theirs (a)")
    database.close()
    damage(other, "tarry_ready")
    lost = tmp_path / "lost.db"
    lost.write_bytes(b"\xff" * 4096 + path.read_bytes()[4096:])
    for file in (other, lost):
        before = file.read_bytes()
        with pytest.raises(StoreForeign, match="nothing was changed"):
            repair(file)
        assert file.read_bytes() == before
    damage(path, "tarry_ready")
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result((4096, 4096, 9, 0, 0, 0, 0, 0, 0, 255)))
    with pytest.raises(StoreFull, match=r"needs .* MB of free disk"):
        repair(path)
    assert sorted(file.name for file in tmp_path.glob("jobs.db*")) == ["jobs.db"]


def test_the_log_of_a_killed_process_goes_into_the_new_file(path: Path) -> None:
    code = "import os, sys; from pathlib import Path; from tarry.store.sqlite.store import SqliteStore;"
    code += "from tarry.store.conformance.cases.jobs import put; put(SqliteStore(Path(sys.argv[1])), 7); os._exit(0)"
    subprocess.run([sys.executable, "-c", code, str(path)], check=True)
    assert path.with_name("jobs.db-wal").stat().st_size > 0
    with path.open("r+b") as file:
        file.seek((root(path, "tarry_finished") - 1) * 4096)
        file.write(b"\xff" * 4096)
    report = repair(path)
    assert rows_of(report) == {}
    assert not path.with_name("jobs.db-wal").exists(), "no log of the old file beside the new one"
    assert len(content(path)["tarry_job"]) == JOBS + 67


def root(path: Path, tree: str) -> int:
    database = apsw.Connection(f"file:{path}?immutable=1", flags=apsw.SQLITE_OPEN_URI | apsw.SQLITE_OPEN_READONLY)
    found: int = database.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (tree,)).get
    database.close()
    return found


def test_an_index_that_lacks_an_entry_is_found_where_damage_was_met(path: Path) -> None:
    """`quick_check` does not compare an index with its table; where damage was met, both are compared."""
    database = apsw.Connection(str(path))
    database.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
    database.execute("PRAGMA writable_schema=1")
    where = database.execute("SELECT sql FROM sqlite_schema WHERE name = 'tarry_finished'").get
    database.execute("UPDATE sqlite_schema SET sql = ? WHERE name = 'tarry_finished'", (where.replace(">= 3", ">= 1"),))
    database.close()
    assert integrity(path, "").value == "whole"
    DamageMark(path).set("an entry is missing")
    assert integrity(path, "").value.startswith("damaged: tarry_finished")
    assert DamageMark(path).is_set()


def test_a_check_that_finds_the_file_whole_takes_jobs_again(path: Path) -> None:
    store = SqliteStore(path)
    DamageMark(path).set("a read failed")
    with pytest.raises(StoreCorrupt, match="no job is taken: a read failed"):
        put(store)
    assert integrity(path, "").value.startswith("whole; jobs are taken again, which was refused: a read failed")
    put(store)
    DamageMark(path).set("replaced: by a copy")
    assert integrity(path, "").advice == "stop all that use it, then `tarry store repair`"
    assert DamageMark(path).is_set(), "only a repair ends this, which nobody can have missed"
    store.close()


def test_a_first_page_that_is_lost_is_named(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(100)
        file.write(b"\xff" * 900)
    assert integrity(path, "").value == f"damaged: {UNKNOWN.name}"
