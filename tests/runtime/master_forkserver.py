"""Forks masters from a process that has imported everything: for tests that start a hundred of them."""

import contextlib
import gc
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import cast

import msgspec

from tests.runtime import scripted_roles
from tests.runtime.master_harness import MasterHarness, alive
from tests.runtime.scripted_roles import MasterScript


class ForkedMaster:
    """The part of Popen that a MasterHarness needs."""

    def __init__(self, pid: int, directory: Path) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._directory, self._fd = directory, os.pidfd_open(pid)

    def send_signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            if self.poll() is None:
                signal.pidfd_send_signal(self._fd, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def poll(self) -> int | None:
        return self._wait(0)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """All its output, as if on stderr."""
        if self._wait(timeout) is None:
            raise subprocess.TimeoutExpired(f"master {self.pid}", timeout or 0)
        return "", (self._directory / "said").read_text()

    def _wait(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._fd], [], [], timeout)[0]:
            os.close(self._fd)
            status = self._directory / "status"
            self.returncode = int(status.read_text()) if status.exists() else -signal.SIGKILL
        return self.returncode


class ForkServerHarness(MasterHarness):
    """A MasterHarness that forks its masters from a ForkServer."""

    def __init__(self, directory: Path, forkserver: "ForkServer") -> None:
        super().__init__(directory)
        self._forkserver = forkserver

    def _spawn(self, script: str) -> "subprocess.Popen[str]":
        return cast("subprocess.Popen[str]", self._forkserver.start(self.directory, script))

    def _is_ours(self, pid: int) -> bool:
        """All of them have the fork server's environment, so their pids tell."""
        return pid in {fact["pid"] for fact in self.facts()} and alive(pid)


class ForkServer:
    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.runtime.master_forkserver"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self, directory: Path, script: str) -> ForkedMaster:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(msgspec.json.encode((str(directory), script)).decode() + "\n")
        self._process.stdin.flush()
        return ForkedMaster(int(self._process.stdout.readline()), directory)

    def close(self) -> None:
        self._process.communicate("")
        assert self._process.returncode == 0


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no process waits for them
    gc.freeze()
    for line in sys.stdin:
        directory, script = msgspec.json.decode(line, type=tuple[str, str])
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os._exit(run_master(Path(directory), msgspec.json.decode(script, type=MasterScript)))
        print(pid, flush=True)


def run_master(directory: Path, script: MasterScript) -> int:
    said = os.open(directory / "said", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd, place in ((0, nothing), (1, nothing), (2, said)):
        os.dup2(place, fd)
    os.close(said)
    os.close(nothing)
    status = scripted_roles.main(directory, script)
    (directory / "status").write_text(str(status))
    return status


if __name__ == "__main__":
    main()
