import fcntl
import os
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Literal
from uuid import UUID

import pytest

from tarry.errors import MasterError
from tarry.runtime import control, wait_notes
from tarry.runtime.board.master_status import MasterStatus, Origin
from tarry.runtime.board.scoreboard import DRAFT, Scoreboard, board_path
from tarry.runtime.pidfile import PidFile
from tests.runtime.master_harness import KEEPER, MasterHarness, alive, until
from tests.runtime.scripted_roles import FIRST

ONE = ("worker", "default", 1, "plain")
STUBBORN = ("worker", "default", 1, "stubborn")


def silence(line: str) -> None:
    """Whoever waits wants to hear nothing."""


def test_stop_returns_when_the_master_is_gone(harness: MasterHarness) -> None:
    master = harness.serve(ONE, KEEPER)
    control.stop(harness.pid_file, 20, silence)
    assert not harness.pid_file.exists()
    assert harness.wait_for_exit(master) == (0, "")
    assert harness.facts("asked")


def test_stop_tells_whom_it_waits_for_and_gives_up_in_time(harness: MasterHarness) -> None:
    harness.serve(STUBBORN, KEEPER)
    (pid,) = harness.ready()
    told: list[str] = []
    with pytest.raises(MasterError, match=r"still running after 1\.5 s; `tarry quit` ends it now"):
        control.stop(harness.pid_file, 1.5, told.append)
    assert told[0].startswith(f"waiting for worker default.1 pid {pid}; runs shop.first {UUID(bytes=FIRST)} for ")
    assert alive(pid)


class Heard(Exception):
    """What was waited for, up to the way out."""


@pytest.mark.parametrize(
    ("command", "awaited", "way_out"),
    [
        (control.stop, ["worker default.1 pid {pid}; runs shop.first {job} for "], ["`tarry quit`", "--timeout 30s"]),
        (control.quit, ["worker default.1 pid {pid}"], ["kill -9"]),
        (control.reload, ["reloading: "], ["--timeout 60s", "`tarry status`"]),
        (lambda path, _, tell: control.upgrade(path, tell), ["the new master"], ["Ctrl-C", "`tarry status`"]),
    ],
    ids=["stop", "quit", "reload", "upgrade"],
)
def test_each_wait_tells_what_for_and_later_how_to_end_it(
    harness: MasterHarness,
    monkeypatch: pytest.MonkeyPatch,
    command: Callable[[Path, float | None, wait_notes.Tell], object],
    awaited: list[str],
    way_out: list[str],
) -> None:
    assert wait_notes.WAY_OUT_AFTER == 10
    monkeypatch.setattr(wait_notes, "TELL_EVERY", 0.1)
    monkeypatch.setattr(wait_notes, "WAY_OUT_AFTER", 0.25)
    master = harness.serve(STUBBORN, KEEPER)
    (pid,) = harness.ready()
    master.send_signal(signal.SIGSTOP)
    told: list[str] = []

    def tell(line: str) -> None:
        told.append(line)
        if all(text in line for text in way_out):
            raise Heard

    with pytest.raises(Heard):
        command(harness.pid_file, None, tell)
    master.send_signal(signal.SIGCONT)
    for text in awaited:
        assert any(text.format(pid=pid, job=UUID(bytes=FIRST)) in line for line in told[:-1]), told


def test_the_way_out_is_told_once_after_ten_seconds() -> None:
    told: list[str] = []
    now = 0.0
    notes = wait_notes.WaitNotes(told.append, "go away", lambda: now)
    for tenth in range(250):
        now = tenth / 10
        notes.note(lambda: [f"{now:g}"])  # noqa: B023 - called at once
    assert told.count("go away") == 1
    assert told[told.index("go away") - 1] == "10"
    assert len(told) == 25


def test_a_second_stop_does_not_force_and_quit_then_does(harness: MasterHarness) -> None:
    master = harness.serve(STUBBORN, KEEPER)
    (pid,) = harness.ready()
    for _ in range(2):
        with pytest.raises(MasterError, match="still running"):
            control.stop(harness.pid_file, 0.2, silence)
    assert harness.board().state == "stopping"
    assert alive(pid)
    control.quit(harness.pid_file, 20, silence)
    assert harness.wait_for_exit(master) == (0, "")
    assert not alive(pid)


def test_quit_forces_at_once(harness: MasterHarness) -> None:
    master = harness.serve(STUBBORN, KEEPER)
    (pid,) = harness.ready()
    control.quit(harness.pid_file, 20, silence)
    assert harness.wait_for_exit(master) == (0, "")
    assert harness.deaths_told() == [
        {"gone": f"owner-{pid}", "on": [], "stuck": [], "why": "killed by the master: it ends at once"}
    ]


def test_stop_waits_while_a_quit_overtakes_it(harness: MasterHarness) -> None:
    harness.serve(STUBBORN, KEEPER)
    stopping = threading.Thread(target=control.stop, args=(harness.pid_file, 20, silence))
    stopping.start()
    until(lambda: harness.board().state == "stopping")
    control.quit(harness.pid_file, 20, silence)
    stopping.join(20)
    assert not stopping.is_alive()


@pytest.mark.parametrize("command", [control.stop, control.quit])
def test_where_none_runs_it_says_so(tmp_path: Path, command: Callable[[Path, float, wait_notes.Tell], None]) -> None:
    path = tmp_path / "tarry.pid"
    with pytest.raises(MasterError, match=r"no master is running .*: `tarry start` starts one"):
        command(path, 1, silence)
    path.write_text(f"{os.getpid()}\n")  # stale, and its pid has become that of a stranger: us
    with pytest.raises(MasterError, match="no master is running"):
        command(path, 1, silence)


def test_a_stranger_that_has_the_number_of_a_master_elsewhere_is_not_signalled(tmp_path: Path) -> None:
    """As where two containers share a pid file: to each of them its own master is number 1."""
    stranger = subprocess.Popen(["sleep", "60"])
    path = tmp_path / "tarry.pid"
    path.write_text(f"{stranger.pid}\n")
    with path.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(MasterError, match="runs in another container: run this there"):
            control.stop(path, 1, silence)
    assert stranger.poll() is None
    stranger.kill()
    stranger.wait()


@pytest.mark.parametrize("command", [control.stop, control.quit])
@pytest.mark.parametrize(("kind", "asked"), [("upgrade", 2), ("start", 1)])
def test_a_master_that_an_upgrade_has_just_replaced_is_followed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: Callable[[Path, float, wait_notes.Tell], None],
    kind: Literal["upgrade", "start"],
    asked: int,
) -> None:
    """The old one may get the signal as it hands over, and end; the new one serves on. What somebody has started after
    the end of the old one is another matter."""
    path, told = tmp_path / "pid", 0
    with PidFile(path) as file:
        board = Scoreboard(board_path(path))
        board.publish(MasterStatus(origin=Origin(kind)))

        def signal_master(*_: object) -> int:
            nonlocal told
            told += 1
            if told == 2:
                file.__exit__(None, None, None)
            return 1 if told == 1 else os.getpid()

        monkeypatch.setattr(control, "_signal_master", signal_master)
        command(path, 20, silence)
        board.remove()
    assert told == asked


def test_an_upgrade_that_is_asked_for_as_another_hands_over_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "pid"
    draft = tmp_path / f"pid{DRAFT}"
    with PidFile(path), PidFile(draft) as new:
        board = Scoreboard(board_path(path))
        board.set_state("stopping")

        def hand_over(_: float) -> None:
            new.move_to(path)
            board.set_state("serving")

        def signal_master(*_: object) -> int:
            raise MasterError(f"asked of the new one: {not draft.exists()}")

        monkeypatch.setattr(control, "sleep", hand_over)
        monkeypatch.setattr(control, "_signal_master", signal_master)
        with pytest.raises(MasterError, match="of the new one: True"):
            control.upgrade(path, silence)
        board.remove()


def test_between_two_masters_there_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of which the board is not there yet."""
    path = tmp_path / "pid"
    boards: list[Scoreboard] = []
    with PidFile(path):
        monkeypatch.setattr(control, "sleep", lambda _: boards.append(Scoreboard(board_path(path))))
        with pytest.raises(MasterError, match="no pool 'mail'"):
            control.scale(path, "mail", 2)
        boards[0].remove()


def test_a_master_that_does_not_answer_is_named(harness: MasterHarness) -> None:
    master = harness.serve(ONE, KEEPER)
    master.send_signal(signal.SIGSTOP)
    with pytest.raises(MasterError, match=f"pid {master.pid}, does not answer; `kill -9` it"):
        control.quit(harness.pid_file, 0.3, silence)


def test_status_of_a_live_a_dead_and_an_ended_master(harness: MasterHarness) -> None:
    assert control.status(harness.pid_file) is None
    master = harness.serve(ONE, KEEPER)
    board = control.status(harness.pid_file)
    assert board is not None
    assert (board.alive, board.pid, board.state) == (True, master.pid, "serving")
    master.kill()
    master.wait()
    board = control.status(harness.pid_file)
    assert board is not None
    assert (board.alive, board.pid) == (False, master.pid)
    harness.serve(ONE, KEEPER)
    control.stop(harness.pid_file, 20, silence)
    assert control.status(harness.pid_file) is None
