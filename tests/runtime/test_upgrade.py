"""Both sides of an upgrade, each alone; with real masters it is in tests/cli/test_upgrade.py."""

import contextlib
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tarry.errors import MasterError
from tarry.runtime import control
from tarry.runtime.board.layout import SERVING, STOPPING
from tarry.runtime.board.master_status import MasterStatus
from tarry.runtime.board.scoreboard import Scoreboard, board_path
from tarry.runtime.pidfile import PidFile, holder
from tarry.runtime.sockets.activation import ActivationSockets
from tarry.runtime.sockets.listeners import Listeners
from tarry.runtime.upgrades import VARIABLE, Successor, Upgrades, is_successor, own_command, write_request
from tests.runtime.master_harness import until


@pytest.fixture
def listeners() -> Iterator[Listeners]:
    listeners = Listeners(ActivationSockets({}))
    yield listeners
    listeners.close()


@pytest.fixture
def upgrades(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Upgrades:
    """Of a master whose successor does nothing for a minute."""
    monkeypatch.setattr("sys.orig_argv", ["python", "-c", "import time; time.sleep(60)"])
    write_request(tmp_path / "pid")
    return Upgrades(tmp_path / "pid", tmp_path / "board", tmp_path)


def begin(upgrades: Upgrades, listeners: Listeners, state: str = "serving") -> MasterStatus:
    assert upgrades.begin_if_requested(state, listeners, {})
    return upgrades.describe(MasterStatus())


def test_a_hangup_without_a_request_is_no_upgrade(tmp_path: Path, listeners: Listeners) -> None:
    upgrades = Upgrades(tmp_path / "pid", tmp_path / "board", tmp_path)
    assert not upgrades.begin_if_requested("serving", listeners, {})
    assert upgrades.describe(MasterStatus()) == MasterStatus()


@pytest.mark.parametrize("state", ["starting", "stopping", "reloading"])
def test_only_a_master_that_serves_is_upgraded(upgrades: Upgrades, listeners: Listeners, state: str) -> None:
    status = begin(upgrades, listeners, state)
    assert (status.upgrades, status.upgrading) == (1, 0)
    assert status.upgrade_trouble == f"the master is {state}"
    # A request counts once.
    assert not upgrades.begin_if_requested("serving", listeners, {})


def test_a_successor_that_takes_too_long_is_ended(upgrades: Upgrades, listeners: Listeners) -> None:
    pid = begin(upgrades, listeners).upgrading
    assert pid
    assert not upgrades.advance(time.monotonic(), 30.0)
    assert not upgrades.advance(time.monotonic() + 31.0, 30.0)
    status = upgrades.describe(MasterStatus())
    assert (status.upgrading, status.upgrade_trouble) == (0, "the new master did not serve within 30 s")
    # Its signals are blocked, since it has no handlers for them: it does not end by itself.
    upgrades.advance(time.monotonic() + 21.0, 30.0)
    assert os.waitpid(pid, 0) == (pid, signal.SIGKILL)


def test_a_successor_that_does_not_end_is_killed(upgrades: Upgrades, listeners: Listeners) -> None:
    # Its signals are blocked, since it has no handlers for them.
    pid = begin(upgrades, listeners).upgrading
    upgrades.dismiss("the master got TERM")
    assert upgrades.describe(MasterStatus()).upgrade_trouble == "the master got TERM"
    assert upgrades.is_ending
    assert not upgrades.advance(time.monotonic() + 19.0, 30.0)
    assert os.waitpid(pid, os.WNOHANG) == (0, 0)
    assert not upgrades.advance(time.monotonic() + 21.0, 30.0)
    assert os.waitpid(pid, 0) == (pid, signal.SIGKILL)
    upgrades.on_exit(pid)
    assert not upgrades.is_ending


def test_a_forced_end_kills_it_sooner(upgrades: Upgrades, listeners: Listeners) -> None:
    pid = begin(upgrades, listeners).upgrading
    upgrades.hurry()
    assert not upgrades.is_ending, "it is wanted yet"
    upgrades.dismiss("the master got INT")
    upgrades.hurry()
    upgrades.advance(time.monotonic() + 16.0, 30.0)
    assert os.waitpid(pid, 0) == (pid, signal.SIGKILL)


def test_what_a_killed_one_left_is_removed(upgrades: Upgrades, listeners: Listeners, tmp_path: Path) -> None:
    pid = begin(upgrades, listeners).upgrading
    others = {"board", "board.new.1", "pid"}
    for name in (*others, "pid.new", "board.new", f"board.new.{pid}"):
        (tmp_path / name).touch()
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    upgrades.on_exit(pid)
    upgrades.close()
    assert {path.name for path in tmp_path.iterdir()} == others


def test_one_that_says_that_it_serves_and_dies_does_not_take_over(
    upgrades: Upgrades, listeners: Listeners, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    says = f"import json, os, socket; fd = json.loads(os.environ[{VARIABLE!r}])['fd']"
    monkeypatch.setattr("sys.orig_argv", ["python", "-c", f"{says}; socket.socket(fileno=fd).send(b'serving')"])
    upgrades = Upgrades(tmp_path / "pid", tmp_path / "board", tmp_path)
    pid = begin(upgrades, listeners).upgrading
    assert os.waitpid(pid, 0) == (pid, 0)
    upgrades.on_exit(pid)
    assert not upgrades.advance(time.monotonic(), 30.0)
    assert not upgrades.is_ending
    assert "ended before it served" in upgrades.describe(MasterStatus()).upgrade_trouble


@pytest.mark.parametrize(
    ("head", "is_run"),
    [
        ("#!/opt/1/bin/python3", True),
        ("#!/usr/bin/env /opt/1/bin/python3", True),
        ("#!/bin/sh\n'''exec' \"/opt/1/bin/python3\" \"$0\" \"$@\"\n' '''", True),
        # Somebody has named another interpreter than the script does.
        ("#!/usr/bin/python3", False),
        ("from tarry.cli.main import main", False),
    ],
)
def test_a_script_is_executed_itself_where_it_names_the_interpreter(tmp_path: Path, head: str, is_run: bool) -> None:
    script = tmp_path / "tarry"
    script.write_text(f"{head}\n")
    script.chmod(0o755)
    whole = ["/exe", str(script), "start"]
    assert own_command(["/opt/1/bin/python3", *whole[1:]], "/exe") == whole[is_run:]
    assert own_command(["python", "-m", "tarry"], "/exe") == ["/exe", "-m", "tarry"]
    assert own_command(["python"], "/exe") == ["/exe"]


def test_one_that_ends_before_it_serves(
    upgrades: Upgrades, listeners: Listeners, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("sys.orig_argv", ["python", "-c", "pass"])
    upgrades = Upgrades(tmp_path / "pid", tmp_path / "board", tmp_path)
    pid = begin(upgrades, listeners).upgrading
    until(lambda: upgrades.advance(time.monotonic(), 30.0) or not upgrades.is_running)
    trouble = upgrades.describe(MasterStatus()).upgrade_trouble
    assert trouble == "the new master ended before it served; the log may say why"
    assert os.waitpid(pid, 0)[0] == pid


@pytest.fixture
def talk() -> Iterator[tuple[socket.socket, Successor]]:
    """The old master's end, and the new master."""
    old, new = socket.socketpair()
    environ = {VARIABLE: f'{{"fd": {new.detach()}, "own": 0}}'}
    assert is_successor(environ)
    successor = Successor(environ)
    assert not is_successor(environ)
    yield old, successor
    old.close()
    successor.close()


def test_a_new_master_waits_until_the_old_one_has_made_room(talk: tuple[socket.socket, Successor]) -> None:
    old, successor = talk
    assert successor.place(Path("/run/tarry.pid")) == Path("/run/tarry.pid.new")
    old.send(b"go")
    assert successor.take_over()
    assert old.recv(100) == b"serving"
    assert successor.place(Path("/run/tarry.pid")) == Path("/run/tarry.pid")


def test_one_that_was_given_up_does_not_take_over(talk: tuple[socket.socket, Successor]) -> None:
    old, successor = talk
    old.close()
    assert not successor.take_over()


def test_it_tells_why_it_cannot_serve(talk: tuple[socket.socket, Successor]) -> None:
    old, successor = talk
    successor.report_failure("worker default.1 could not start: " + "x" * 10_000)
    assert old.recv(100).startswith(b"failed:worker default.1 could not start: xxx")


def test_a_master_that_takes_nobodys_place_has_nothing_to_wait_for() -> None:
    successor = Successor({})
    assert not successor.is_waiting
    assert successor.take_over()


def test_the_pid_file_passes_on_while_both_live(tmp_path: Path) -> None:
    path = tmp_path / "pid"
    with PidFile(path):
        with PidFile(tmp_path / "pid.new") as new:
            new.move_to(path)
            assert holder(path) == os.getpid()
            assert not (tmp_path / "pid.new").exists()
        assert not path.exists()
        path.write_text("another master's")
    # What is there by now is not the first one's.
    assert path.read_text() == "another master's"


def test_a_board_steps_aside_and_removes_only_itself(tmp_path: Path) -> None:
    path = tmp_path / "board"
    old, new = Scoreboard(path), Scoreboard(tmp_path / "board.new")
    old.step_aside()
    assert path.exists()
    new.move_to(path)
    assert {file.name for file in tmp_path.iterdir()} == {"board", f"board.old.{os.getpid()}"}
    # It may still grow.
    for _ in range(50):
        old.allocate(10)
    old.remove()
    assert {file.name for file in tmp_path.iterdir()} == {"board"}
    new.remove()


def test_a_board_that_cannot_have_a_second_name_leaves_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError("as some file systems")

    monkeypatch.setattr(os, "link", refuse)
    path = tmp_path / "board"
    old, new = Scoreboard(path), Scoreboard(tmp_path / "board.new")
    old.step_aside()
    new.move_to(path)
    old.remove()
    assert [file.name for file in tmp_path.iterdir()] == ["board"]
    new.remove()


def test_a_master_that_stops_since_the_new_one_serves_is_no_failure(tmp_path: Path) -> None:
    path = tmp_path / "pid"
    with PidFile(path):
        board = Scoreboard(board_path(path))
        for state, trouble, told in (
            # The new one has not got the pid file yet.
            (STOPPING, "", ""),
            (STOPPING, "the master got TERM", "the master is stopping: it is not upgraded any more"),
            (SERVING, "no such app", "the upgrade came to nothing, and what ran goes on: no such app"),
        ):
            board.set_state(state)
            board.publish(MasterStatus(upgrades=1, upgrade_trouble=trouble))
            there = control.status(path)
            assert there is not None
            with pytest.raises(MasterError, match=told) if told else contextlib.nullcontext():
                control._check_upgrade(there)
        board.remove()
