import fcntl
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tarry import files
from tarry.errors import MasterError
from tarry.runtime import pidfile
from tarry.runtime.pidfile import PidFile, holder, is_free_within
from tests.runtime.master_harness import KEEPER, MasterHarness, until


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run" / "deep" / "tarry.pid"


def test_held_it_names_us_and_afterwards_nobody(path: Path) -> None:
    assert holder(path) is None
    with PidFile(path):
        assert holder(path) == os.getpid()
        assert path.read_text() == f"{os.getpid()}\n"
    assert holder(path) is None
    assert not path.exists()


def test_a_second_one_is_refused_with_the_pid(path: Path) -> None:
    with PidFile(path), pytest.raises(MasterError) as refused, PidFile(path):
        pass
    assert str(refused.value) == f"a master is already running, pid {os.getpid()} ({path})"


@pytest.mark.parametrize("left", ["", "1\n", "99999999999999999999\n", "nonsense"])
def test_a_stale_file_is_taken_over_whatever_it_says(path: Path, left: str) -> None:
    path.parent.mkdir(parents=True)
    path.write_text(left)
    assert holder(path) is None
    with PidFile(path):
        assert holder(path) == os.getpid()


def test_a_locked_file_that_names_nobody_is_no_masters(path: Path) -> None:
    with PidFile(path):
        path.write_text("nonsense")
        with pytest.raises(MasterError, match="holds no pid"):
            holder(path)


def test_a_lock_that_goes_in_time_is_free(path: Path) -> None:
    assert is_free_within(path, 0)
    with PidFile(path) as held:
        assert not is_free_within(path, 0)
        gone = threading.Timer(0.05, held.close_in_child)
        gone.start()
        assert is_free_within(path, 30)


def test_a_lock_is_waited_for(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new master meets the lock of one that was killed, which a child of it still has."""
    killed, looks = PidFile(path), []
    killed.__enter__()

    def pause(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            killed.close_in_child()

    monkeypatch.setattr(pidfile, "sleep", pause)
    with PidFile(path, lock_limit=60):
        assert holder(path) == os.getpid()
    assert len(looks) == 3


def test_whoever_only_asks_keeps_no_master_out(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.write_text("1\n")
    asking = os.open(path, os.O_RDONLY)
    fcntl.flock(asking, fcntl.LOCK_SH)  # what `holder` does, for an instant
    asked = threading.Timer(0.05, os.close, (asking,))
    asked.start()
    with PidFile(path):
        assert holder(path) == os.getpid()
    asked.join()


def test_a_file_that_its_master_removes_while_we_lock_it_is_not_ours(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, first = fcntl.flock, [True]

    def late(fd: int, kind: int) -> None:
        if first.pop() if first else False:
            path.unlink()
        lock(fd, kind)

    monkeypatch.setattr(fcntl, "flock", late)
    with PidFile(path):
        assert holder(path) == os.getpid()


def test_who_asks_amid_an_upgrade_finds_the_new_master(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = PidFile(path), PidFile(path.with_name("draft"))
    open_private = files.open_private

    def open_and_upgrade(file: Path | str, flags: int, mode: int = files.OURS) -> int:
        # Between the opening and the lock: the new master takes the place of the old one, which ends.
        monkeypatch.setattr(files, "open_private", open_private)
        opened = open_private(file, flags, mode)
        new.move_to(path)
        old.close_in_child()
        return opened

    with old, new:
        monkeypatch.setattr(files, "open_private", open_and_upgrade)
        assert holder(path) == os.getpid()


def test_a_forked_child_that_forgets_it_does_not_hold_it(path: Path) -> None:
    pid_file = PidFile(path)
    with pid_file:
        hear, tell = os.pipe()
        child = os.fork()
        if child == 0:
            pid_file.close_in_child()
            os.close(tell)
            os.read(hear, 1)
            os._exit(0)
        os.close(hear)
        try:
            pid_file.close_in_child()
            until(lambda: holder(path) is None)
        finally:
            os.close(tell)
            os.waitpid(child, 0)


def test_a_race_has_one_winner(path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from tarry.runtime.pidfile import PidFile\n"
        "from tarry.errors import MasterError\n"
        "try:\n"
        "  with PidFile(Path(sys.argv[1])): print('won', flush=True); sys.stdin.read()\n"
        "except MasterError: print('lost', flush=True)\n"
    )
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(6)
    ]
    words = []
    for racer in racers:
        assert racer.stdout is not None
        words.append(racer.stdout.readline().strip())
    for racer in racers:
        racer.communicate("")
    assert sorted(words) == ["lost"] * 5 + ["won"]


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(MasterError, match=r"cannot be written .*: set master\.pid_file"), PidFile(tmp_path / "file/p"):
        pass


def test_a_second_master_is_refused_and_the_first_goes_on(harness: MasterHarness) -> None:
    first = harness.serve(("worker", "default", 1, "plain"), KEEPER)
    second = harness.start(("worker", "default", 1, "plain"), KEEPER)
    status, said = harness.wait_for_exit(second)
    assert (status, said) == (1, f"a master is already running, pid {first.pid} ({harness.pid_file})\n")
    assert harness.board().pid == first.pid
    assert holder(harness.pid_file) == first.pid
    assert len(harness.ready()) == 1


def test_after_a_killed_master_its_file_is_stale(harness: MasterHarness) -> None:
    first = harness.serve(("worker", "default", 1, "plain"), KEEPER)
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert harness.pid_file.exists()
    assert holder(harness.pid_file) is None
    second = harness.serve(("worker", "default", 1, "plain"), KEEPER)
    assert holder(harness.pid_file) == second.pid
