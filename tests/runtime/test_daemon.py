import os
import signal
from pathlib import Path

from tarry.runtime.pidfile import holder
from tests.runtime.theatre import KEEPER, Theatre, until

ONE = ("worker", "default", 1, "plain")


def end(theatre: Theatre) -> None:
    pid = holder(theatre.pid_file)
    assert pid is not None
    os.kill(pid, signal.SIGINT)
    until(lambda: holder(theatre.pid_file) is None)
    until(lambda: theatre.facts("ended"))


def test_the_command_returns_when_the_daemon_serves_and_not_before(theatre: Theatre) -> None:
    command = theatre.start(ONE, KEEPER, daemon=True)
    assert theatre.ended(command) == (0, "")
    assert theatre.facts("told so")
    assert len(theatre.ready()) == 1
    end(theatre)


def test_the_daemon_has_left_everything(theatre: Theatre) -> None:
    command = theatre.start(("worker", "default", 1, "nosy"), KEEPER, daemon=True)
    theatre.ended(command)
    pid = holder(theatre.pid_file)
    assert pid is not None
    assert pid != command.pid
    assert os.getsid(pid) not in (os.getsid(0), pid)
    assert os.readlink(f"/proc/{pid}/cwd") == "/"
    assert "Umask:\t0027" in Path(f"/proc/{pid}/status").read_text()
    streams = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in range(3)]
    assert streams == ["/dev/null", str(theatre.directory / "output"), str(theatre.directory / "output")]
    (nosy,) = theatre.facts("nosy")
    assert sum("pipe" in link for link in nosy["fds"]) == 2  # its own signals: the readiness is not held open
    end(theatre)


def test_a_failed_start_is_printed_by_the_command(theatre: Theatre) -> None:
    command = theatre.start(("worker", "default", 1, "cannot_boot"), KEEPER, daemon=True)
    status, said = theatre.ended(command)
    assert status == 1
    assert said == "worker default.1 could not start: no module named shop\nTraceback follows\n"


def test_a_refused_start_is_printed_by_the_command(theatre: Theatre) -> None:
    first = theatre.serve(ONE, KEEPER)
    status, said = theatre.ended(theatre.start(ONE, KEEPER, daemon=True))
    assert (status, said) == (1, f"a master is already running, pid {first.pid} ({theatre.pid_file})\n")


def test_a_silent_death_is_noticed(theatre: Theatre) -> None:
    status, said = theatre.ended(theatre.start(ONE, KEEPER, daemon=True, crash="die"))
    assert (status, said) == (1, "the master died before it served; its log may say why\n")


def test_a_master_killed_while_its_children_live_is_noticed(theatre: Theatre) -> None:
    command = theatre.start(("worker", "default", 1, "never_ready"), KEEPER, daemon=True)
    until(lambda: theatre.facts("keeper"))
    pid = holder(theatre.pid_file)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    assert theatre.ended(command)[0] == 1
