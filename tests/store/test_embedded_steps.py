"""Who opens an older file makes its steps; one that stops older programs only while nobody else has the file open."""

import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tarry.errors import StoreError, StoreNewer
from tarry.store import migrating
from tarry.store.outbox import Outbox
from tarry.store.sqlite import file as sqlite_file
from tests.store.embedded_files import FILES, content, further, opened, owner, put, use

Program = Callable[[str], subprocess.Popen[str]]


@pytest.fixture(params=FILES)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def path(tmp_path: Path, kind: str) -> Path:
    """A file of the older version, with a job."""
    use(kind, tmp_path / "x.db")
    return tmp_path / "x.db"


@pytest.fixture
def program(kind: str, path: Path) -> Iterator[Program]:
    started: list[subprocess.Popen[str]] = []

    def start(act: str) -> subprocess.Popen[str]:
        words = [sys.executable, "-m", "tests.store.embedded_files", kind, str(path), act]
        started.append(subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def answer(process: subprocess.Popen[str], asked: str = "") -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(asked)
    process.stdin.flush()
    return process.stdout.readline()


def migrate(kind: str, path: Path) -> list[str]:
    if kind == "outbox":
        return Outbox(path).migrate()
    return migrating.migrate(f"sqlite:///{path}" + "?shared=yes" * (kind == "shared"))


def newer(kind: str, patch: pytest.MonkeyPatch, older_go_on: bool = False) -> None:
    """Lets this process be of a version with a further step."""
    patch.setattr(owner(kind), "STEPS", (*owner(kind).STEPS, further(older_go_on=older_go_on)))


def test_a_step_that_stops_older_programs_waits_for_their_end(
    kind: str, path: Path, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_file, "ALONE_WITHIN", 0)
    older = program("hold")
    assert answer(older) == "ok\n"
    with monkeypatch.context() as patch:
        newer(kind, patch)
        says = f"{path} has schema 1, this tarry knows 2, and other programs have the file open, .* `tarry migrate`"
        for brings_up in (use, migrate):
            with pytest.raises(StoreError, match=says) as refused:
                brings_up(kind, path)
            assert "\n" not in str(refused.value)
        assert answer(older, "put\n") == "ok\n"
        # Another one of the older version may still be started.
    use(kind, path)
    assert older.communicate()[0] == ""
    assert (older.returncode, content(kind, path)) == (0, (3, False))
    with monkeypatch.context() as patch:
        newer(kind, patch)
        assert migrate(kind, path) == ["weighs (first stop what runs with the version before)"]
        use(kind, path)
    with pytest.raises(StoreNewer):
        use(kind, path)
    assert content(kind, path) == (4, True)


def test_alone_who_opens_the_file_makes_the_step(kind: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    newer(kind, monkeypatch)
    with closing(opened(kind, path)) as file:
        put(file)
        # The file is open to all again.
        use(kind, path)
    assert content(kind, path) == (3, True)
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA journal_mode").fetchall() == [("wal",)]


def test_a_step_that_lets_them_go_on_is_made_beside_them(
    kind: str, path: Path, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = program("hold")
    assert answer(older) == "ok\n"
    newer(kind, monkeypatch, older_go_on=True)
    use(kind, path)
    assert answer(older, "put\n") == "ok\n"
    assert older.communicate()[0] == ""
    assert content(kind, path) == (3, True)


def test_of_several_new_programs_none_stands_in_the_others_way(kind: str, path: Path, program: Program) -> None:
    several = [program("begin") for _ in range(4)]
    for each in several:
        assert each.stdin is not None
        each.stdin.write("go\n")
        each.stdin.flush()
    for each in several:
        each.communicate(timeout=250)
    assert [each.returncode for each in several] == [0] * 4
    assert content(kind, path) == (5, True)


@pytest.mark.parametrize(("act", "is_made"), [("die_within", False), ("die_behind", True)])
def test_a_process_that_is_killed_leaves_one_version_or_the_other(
    kind: str, path: Path, program: Program, act: str, is_made: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = program(act)
    assert killed.wait(60) == -signal.SIGKILL
    if is_made:
        with pytest.raises(StoreNewer):
            use(kind, path)
    else:
        use(kind, path)
    newer(kind, monkeypatch)
    use(kind, path)
    assert content(kind, path) == (3 - is_made, True)


def test_a_file_with_no_tables_yet_gets_all_steps_beside_other_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer("shared", monkeypatch)
    with closing(sqlite3.connect(tmp_path / "x.db")) as other:
        other.execute("PRAGMA journal_mode=WAL")
        other.execute("CREATE TABLE theirs (n)")
        use("shared", tmp_path / "x.db")
        assert other.execute("SELECT count(*) FROM theirs").fetchall() == [(0,)]
    assert content("shared", tmp_path / "x.db") == (1, True)
