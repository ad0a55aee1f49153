"""What lies on the disk is not for everybody, whatever the umask; and a stranger's link leads nowhere."""

import fcntl
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tarry import files
from tarry.errors import MasterError, StoreUnavailable
from tarry.metrics.textfile import write_whole
from tarry.push.journal.logs import AppendFile
from tarry.runtime.board.scoreboard import Scoreboard, board_path
from tarry.runtime.logs.handlers import LogFile
from tarry.runtime.pidfile import PidFile, holder
from tarry.runtime.request_files import write_request
from tarry.store.opening import open_store
from tarry.store.outbox import Outbox
from tests.cli.project import Project, until
from tests.store.test_outbox import entries

NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's files")


@pytest.fixture(autouse=True)
def _no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def rights(directory: Path) -> dict[str, str]:
    """Of each file below, as in 0o640."""
    return {
        str(file.relative_to(directory)): oct(file.lstat().st_mode & 0o777)
        for file in sorted(directory.rglob("*"))
        if not file.is_socket()
    }


def test_check_names_a_database_that_everybody_may_read(tmp_path: Path) -> None:
    with closing(open_store(f"sqlite:///{tmp_path}/tarry.db")) as store:
        fact = next(fact for fact in store.diagnostics() if fact.name == "file rights")
        assert (fact.value, fact.advice) == ("0640", "")
        (tmp_path / "tarry.db").chmod(0o644)
        fact = next(fact for fact in store.diagnostics() if fact.name == "file rights")
        assert (fact.value, "chmod o=" in fact.advice) == ("0644", True)


@pytest.mark.parametrize("options", ["", "?shared=yes"])
def test_a_database_and_all_beside_it(tmp_path: Path, options: str) -> None:
    with (
        closing(open_store(f"sqlite:///{tmp_path}/tarry.db{options}", durable=False)) as store,
        closing(store.wakeup()),
    ):
        store.time()
        found = rights(tmp_path)
        assert {"tarry.db", "tarry.db-wal", "tarry.db-shm", "tarry.db-reserve", "tarry.db-board"} <= found.keys()
        assert set(found.values()) <= {"0o640", "0o600", "0o750"}


def test_an_outbox(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / "outbox.db")
    outbox.keep(entries(1))
    with outbox.turn():
        assert {"outbox.db", "outbox.db-wal", "outbox.db-turn"} <= rights(tmp_path).keys()
        assert set(rights(tmp_path).values()) == {"0o600"}
    outbox.close()


def test_what_a_master_has(tmp_path: Path) -> None:
    path = tmp_path / "tarry.pid"
    log = LogFile(tmp_path / "tarry.log")
    log.emit(logging.LogRecord("a", logging.INFO, "", 0, "b", None, None))
    log.close()
    AppendFile(tmp_path / "request.log").write(b"{}\n")
    Scoreboard(board_path(path), [])
    write_request(path, "default", 2)
    with PidFile(path):
        assert rights(tmp_path) == {
            "request.log": "0o640", "tarry.log": "0o640", "tarry.pid": "0o600", "tarry.pid.board": "0o640",
            "tarry.pid.scale": "0o600",
        }  # fmt: skip


def test_a_pid_file_that_everybody_may_read_is_made_anew(tmp_path: Path) -> None:
    """As releases before left it behind."""
    path = tmp_path / "tarry.pid"
    path.write_text("1\n")
    path.chmod(0o644)
    with PidFile(path):
        assert (rights(tmp_path), holder(path)) == ({"tarry.pid": "0o600"}, os.getpid())


def test_a_shared_lock_does_not_keep_a_master_from_starting(tmp_path: Path) -> None:
    path = tmp_path / "tarry.pid"
    path.touch(0o644)
    with path.open() as stranger:
        fcntl.flock(stranger, fcntl.LOCK_SH)
        with PidFile(path):
            assert holder(path) == os.getpid()
            with pytest.raises(MasterError, match=f"already running, pid {os.getpid()}"), PidFile(path):
                pass


START = """
import sys
from pathlib import Path
from tarry.errors import MasterError
from tarry.runtime.pidfile import PidFile
sys.stdin.readline()
try:
    with PidFile(Path(sys.argv[1])):
        print("master", flush=True)
        sys.stdin.readline()
except MasterError as error:
    print(error, flush=True)
    sys.stdin.readline()
"""


def test_of_several_who_pass_by_a_shared_lock_one_starts(tmp_path: Path) -> None:
    path = tmp_path / "tarry.pid"
    path.touch(0o644)
    with path.open() as stranger:
        fcntl.flock(stranger, fcntl.LOCK_SH)
        command = [sys.executable, "-c", START, str(path)]
        starting = [subprocess.Popen(command, stdin=-1, stdout=-1, text=True) for _ in range(4)]
        try:
            for each in starting:
                assert each.stdin is not None
                each.stdin.write("\n")
                each.stdin.flush()
            said = [each.stdout.readline() if each.stdout else "" for each in starting]
        finally:
            for each in starting:
                each.communicate("\n", timeout=250)
    assert sorted(word == "master\n" for word in said) == [False, False, False, True], said


def test_a_link_of_our_own_is_followed(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "tarry.log").symlink_to(tmp_path / "there" / "log")
    fd = files.open_private(tmp_path / "tarry.log", os.O_WRONLY | os.O_CREAT)
    os.close(fd)
    assert rights(tmp_path / "there") == {"log": "0o640"}
    LogFile(Path("/dev/stderr")).close()


@needs_root
def test_a_strangers_link_is_not(tmp_path: Path) -> None:
    """He would have us write into what he may not."""
    for name in "tarry.log", "tarry.db", "tarry.pid":
        (tmp_path / name).symlink_to(tmp_path / "elsewhere")
        os.lchown(tmp_path / name, NOBODY, NOBODY)
    with pytest.raises(OSError, match="symbolic links"):
        LogFile(tmp_path / "tarry.log")
    with pytest.raises(StoreUnavailable, match="is a symbolic link of another user's; remove it"):
        open_store(f"sqlite:///{tmp_path}/tarry.db")
    with pytest.raises(MasterError, match="cannot be written"), PidFile(tmp_path / "tarry.pid"):
        pass
    assert not (tmp_path / "elsewhere").exists()


@needs_root
def test_a_strangers_pid_file_is_replaced(tmp_path: Path) -> None:
    """He could write into it whom `tarry stop` is to end."""
    path = tmp_path / "tarry.pid"
    path.write_text("1\n")
    os.chown(path, NOBODY, NOBODY)
    with PidFile(path):
        assert (path.stat().st_uid, holder(path)) == (os.geteuid(), os.getpid())


def test_directories_are_made_with_narrow_rights_all_of_them(tmp_path: Path) -> None:
    files.make_directory(tmp_path / "a" / "b" / "c")
    files.make_directory(tmp_path / "a" / "b" / "c")
    assert set(rights(tmp_path).values()) == {"0o750"}


def test_a_file_that_is_replaced_takes_no_planted_link(tmp_path: Path) -> None:
    """Neither one under its own name nor one under a name of the past, with the number of a process."""
    victim, figures = tmp_path / "victim", tmp_path / "figures.prom"
    victim.write_text("as it was")
    for name in ("figures.prom", f"figures.prom.{os.getpid()}", f".figures.prom.{os.getpid()}"):
        (tmp_path / name).symlink_to(victim)
    write_whole(figures, b"figures")
    assert (victim.read_text(), figures.read_text(), figures.is_symlink()) == ("as it was", "figures", False)
    assert oct(figures.lstat().st_mode & 0o777) == "0o644"


@pytest.mark.parametrize("umask", [0, 0o777])
def test_a_file_that_is_replaced_has_just_these_rights(tmp_path: Path, umask: int) -> None:
    os.umask(umask)
    files.replace(tmp_path / "tokens.toml", b"", files.OURS)
    os.umask(0)
    assert rights(tmp_path) == {"tokens.toml": "0o600"}


def test_everything_that_a_master_and_a_server_make(tmp_path: Path) -> None:
    """With umask 0: nobody else may write, nor read but what the group may."""
    project = Project(tmp_path)
    project.settings(
        '[master]\nlog = "logs/x/tarry.log"\n'
        '[server]\nhttp = "unix:run/y/http.sock"\nbeanstalk = "unix:run/z/b.sock"\n'
        '[metrics]\ntextfile = "figures/tarry.prom"\n'
    )
    (tmp_path / "figures").mkdir(0o750)
    before = {file for file in tmp_path.rglob("*") if file.name != "figures"} | {project.log_file}
    try:
        # The directory of the test was made with umask 0 too.
        project.serve()
        until(lambda: (tmp_path / "figures" / "tarry.prom").exists() and (tmp_path / "run/z/b.sock").exists())
        made = {file: file.lstat().st_mode & 0o777 for file in tmp_path.rglob("*") if file not in before}
    finally:
        project.close()
    ours = {file: oct(mode) for file, mode in made.items() if "__pycache__" not in file.parts}
    wide = {name: mode for name, mode in ours.items() if int(mode, 8) & 0o007 and name.name != "tarry.prom"}
    assert (wide, len(ours) > 8) == ({}, True), ours
