import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tarry.runtime.pidfile import holder
from tests.runtime.master_harness import KEEPER, MasterHarness, until
from tests.runtime.scripted_roles import MasterScript

ONE = ("worker", "default", 1, "plain")


def daemon(harness: MasterHarness) -> int:
    pid = holder(harness.pid_file)
    assert pid is not None
    return pid


def by(harness: MasterHarness, *before: str, **rest: Any) -> int:
    """The status of a command that starts a daemon by way of another command, with streams that nobody waits for."""
    script = msgspec.json.encode(MasterScript([ONE, KEEPER], daemon=True)).decode()
    command = [*before, sys.executable, "-m", "tests.runtime.scripted_roles", str(harness.directory), script]
    environ = os.environ | {"TARRY_TEST_MASTER": str(harness.directory)}
    return subprocess.run(command, env=environ, timeout=250, check=False, **rest).returncode


def end(harness: MasterHarness) -> None:
    pid = daemon(harness)
    os.kill(pid, signal.SIGINT)
    until(lambda: holder(harness.pid_file) is None)
    until(lambda: harness.facts("ended"))


def test_the_command_returns_when_the_daemon_serves_and_not_before(harness: MasterHarness) -> None:
    command = harness.start(ONE, KEEPER, daemon=True)
    assert harness.wait_for_exit(command) == (0, "")
    assert harness.facts("told so")
    assert len(harness.ready()) == 1
    end(harness)


def test_the_daemon_has_left_everything(harness: MasterHarness) -> None:
    command = harness.start(("worker", "default", 1, "notes_descriptors"), KEEPER, daemon=True)
    harness.wait_for_exit(command)
    pid = daemon(harness)
    assert pid != command.pid
    assert os.getsid(pid) not in (os.getsid(0), pid)
    assert os.readlink(f"/proc/{pid}/cwd") == "/"
    assert "Umask:\t0027" in Path(f"/proc/{pid}/status").read_text()
    streams = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in range(3)]
    assert streams == ["/dev/null", str(harness.directory / "output"), str(harness.directory / "output")]
    (nosy,) = harness.facts("notes_descriptors")
    assert sum("pipe" in link for link in nosy["fds"]) == 2  # its own signals: the readiness is not held open
    end(harness)


def test_a_failed_start_is_printed_by_the_command(harness: MasterHarness) -> None:
    command = harness.start(("worker", "default", 1, "cannot_boot"), KEEPER, daemon=True)
    status, said = harness.wait_for_exit(command)
    assert status == 1
    assert said == "worker default.1 could not start: no module named shop\nTraceback follows\n"


def test_a_refused_start_is_printed_by_the_command(harness: MasterHarness) -> None:
    first = harness.serve(ONE, KEEPER)
    status, said = harness.wait_for_exit(harness.start(ONE, KEEPER, daemon=True))
    assert (status, said) == (1, f"a master is already running, pid {first.pid} ({harness.pid_file})\n")


def test_a_silent_death_is_noticed(harness: MasterHarness) -> None:
    status, said = harness.wait_for_exit(harness.start(ONE, KEEPER, daemon=True, crash="die"))
    assert (status, said) == (1, "tarry: the master died before it served; its log may say why\n")


def test_a_master_killed_while_its_children_live_is_noticed(harness: MasterHarness) -> None:
    command = harness.start(("worker", "default", 1, "never_ready"), KEEPER, daemon=True)
    until(lambda: harness.facts("keeper"))
    os.kill(daemon(harness), signal.SIGKILL)
    assert harness.wait_for_exit(command)[0] == 1


def test_what_was_open_in_the_command_is_not_in_the_daemon(harness: MasterHarness) -> None:
    hear, tell = os.pipe()
    assert by(harness, pass_fds=(tell,)) == 0
    os.close(tell)
    ended = select.poll()
    ended.register(hear, select.POLLIN)
    assert ended.poll(15_000) == [(hear, select.POLLHUP)]
    os.close(hear)
    end(harness)


def test_signals_that_the_command_ignores_or_holds_back_reach_the_daemon(harness: MasterHarness) -> None:
    assert by(harness, "env", "--ignore-signal=ALRM,VTALRM,INT", "--block-signal=PROF,QUIT") == 0
    status = Path(f"/proc/{daemon(harness)}/status").read_text()
    masks = dict(line.split(":") for line in status.splitlines() if line.startswith("Sig"))
    assert int(masks["SigBlk"], 16) == 0
    ignored = int(masks["SigIgn"], 16)
    assert not [number for number in (signal.SIGALRM, signal.SIGVTALRM, signal.SIGINT) if ignored >> number - 1 & 1]
    end(harness)


@pytest.mark.parametrize("closed", ["<&- >&- 2>&-", "<&-", ">&-", "2>&-"])
def test_a_command_without_streams_starts_a_daemon_that_has_them(harness: MasterHarness, closed: str) -> None:
    assert by(harness, "bash", "-c", f'"$@" {closed}', "bash") == 0
    pid = daemon(harness)
    streams = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in range(3)]
    assert streams == ["/dev/null", str(harness.directory / "output"), str(harness.directory / "output")]
    assert [fact["status"] for fact in harness.facts("ended")] == []
    end(harness)
    assert "first words" in (harness.directory / "output").read_text()


FORKS_FAIL = """
import os, sys
from tarry.errors import MasterError
from tarry.runtime.daemon import daemonize
fork, left = os.fork, int(sys.argv[1])
def failing():
    global left
    left -= 1
    if not left:
        raise BlockingIOError(11, "Resource temporarily unavailable")
    return fork()
os.fork = failing
try:
    daemonize()
except MasterError as error:
    sys.exit(f"tarry: {error}")
print("never")
"""


@pytest.mark.parametrize("which", ["1", "2"])
def test_no_room_for_a_daemon_is_one_line(which: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", FORKS_FAIL, which], capture_output=True, text=True, timeout=250, check=False
    )
    said = "tarry: there is no room for a daemon (Resource temporarily unavailable)\n"
    assert (ran.returncode, ran.stdout, ran.stderr) == (1, "", said)
