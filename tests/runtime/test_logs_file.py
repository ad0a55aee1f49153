"""A log file that is moved away, deleted, or gone with its directory, under those who write to it."""

import itertools
import logging
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tarry.runtime.logs import fallback, handlers
from tarry.runtime.logs.handlers import LogFile

pytestmark = pytest.mark.usefixtures("own_logging")

SHOP = logging.getLogger("shop")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log in a directory of its own."""
    path = tmp_path / "logs" / "tarry.log"
    handlers.configure(path)
    return path


def messages(path: Path) -> list[str]:
    return [line.partition("] ")[2] for line in path.read_text().splitlines()]


def test_it_goes_on_in_a_new_file_after_logrotate(log: Path) -> None:
    SHOP.warning("one")
    log.rename(log.with_suffix(".1"))
    SHOP.warning("two")
    log.unlink()
    SHOP.warning("three")
    assert messages(log.with_suffix(".1")) == ["one"]
    assert messages(log) == ["three"]


def test_it_goes_on_in_the_file_that_logrotate_made(log: Path) -> None:
    SHOP.warning("one")
    log.rename(log.with_suffix(".1"))
    log.touch(mode=0o600)
    handlers.reopen()
    SHOP.warning("two")
    assert messages(log) == ["two"]


def test_a_truncated_file_begins_at_its_beginning(log: Path) -> None:
    SHOP.warning("one")
    os.truncate(log, 0)
    SHOP.warning("two")
    assert messages(log) == ["two"]


def test_without_its_directory_lines_go_to_stderr_until_it_is_back(
    log: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    handlers.configure(log)  # once more, with the stderr that is looked at
    SHOP.warning("one")
    log.unlink()
    log.parent.rmdir()
    SHOP.warning("two")
    SHOP.warning("three")
    told, two, three = capfd.readouterr().err.splitlines()
    assert told == (
        f"tarry: no log lines can be written to the file {log} (No such file or directory): "
        "they come here until it is back"
    )
    assert two.endswith("] two")
    assert three.endswith("] three")
    assert not log.parent.exists(), "a disk that is not mounted would be written over"
    log.parent.mkdir()
    handlers.reopen()
    SHOP.warning("four")
    four, back = messages(log)
    assert four == "four"
    assert back.startswith("the log is back after ")
    assert back.endswith(" s; 2 lines went to stderr")
    assert capfd.readouterr().err == ""


def test_it_is_tried_again_with_growing_pauses_and_then_by_itself(
    log: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    now, tries = [100.0], []
    monkeypatch.setattr(fallback, "time", SimpleNamespace(monotonic=lambda: now[0]))
    handlers.configure(log)
    log.unlink()
    log.parent.rmdir()
    opened = LogFile._open

    def tried(handler: LogFile) -> None:
        tries.append(now[0])
        opened(handler)

    monkeypatch.setattr(LogFile, "_open", tried)
    for _ in range(200):
        SHOP.warning("line")
        now[0] += 0.1
    pauses = [round(later - sooner, 1) for sooner, later in itertools.pairwise(tries)]
    assert pauses == sorted(pauses)
    assert pauses[-1] == pytest.approx(5.0, abs=0.11)
    assert len(tries) < 12
    log.parent.mkdir()
    now[0] += 6
    SHOP.warning("back")
    assert messages(log)[0] == "back"
    assert len(capfd.readouterr().err.splitlines()) == 201


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_on_a_full_disk_lines_go_to_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    handlers.configure("/dev/full")
    SHOP.warning("one")
    told, one = capfd.readouterr().err.splitlines()
    assert "(No space left on device)" in told
    assert one.endswith("] one")


def test_a_stderr_that_is_closed_harms_nobody(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open(os.devnull, "w") as closed:
        monkeypatch.setattr(sys, "stderr", closed)
        handlers.configure(log)
    log.unlink()
    log.parent.rmdir()
    SHOP.warning("lost")
    log.parent.mkdir()
    handlers.reopen()
    SHOP.warning("kept")
    assert messages(log)[0] == "kept"


def test_the_output_of_a_daemon_follows_its_log(log: Path) -> None:
    pid = os.fork()
    if pid == 0:
        try:
            fd = os.open(log, os.O_WRONLY | os.O_APPEND)
            os.dup2(fd, 1)
            os.write(1, b"] printed before\n")
            log.rename(log.with_suffix(".1"))
            handlers.reopen()
            os.write(1, b"] printed after\n")
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    assert messages(log.with_suffix(".1")) == ["printed before"]
    assert messages(log) == ["printed after"]


def test_many_processes_write_whole_lines(log: Path) -> None:
    pids = []
    for number in range(4):
        pid = os.fork()
        if pid == 0:
            for line in range(200):
                if line == 100 and number == 0:
                    log.rename(log.with_suffix(".1"))
                SHOP.warning("%d %d %s", number, line, "x" * 500)
            os._exit(0)
        pids.append(pid)
    for pid in pids:
        os.waitpid(pid, 0)
    found = messages(log) + messages(log.with_suffix(".1"))
    assert sorted(found) == sorted(f"{number} {line} {'x' * 500}" for number in range(4) for line in range(200))
