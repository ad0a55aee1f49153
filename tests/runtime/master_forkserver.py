"""Masters that are forked from a process that has imported everything: for tests that want a hundred of them."""

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
from tests.runtime.master_harness import Theatre, alive
from tests.runtime.scripted_roles import Script


class Fledgling:
    """As much of a Popen as a theatre needs."""

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
        return self._ended(0)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """What it said, all of it as if on stderr."""
        if self._ended(timeout) is None:
            raise subprocess.TimeoutExpired(f"master {self.pid}", timeout or 0)
        return "", (self._directory / "said").read_text()

    def _ended(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._fd], [], [], timeout)[0]:
            os.close(self._fd)
            status = self._directory / "status"
            self.returncode = int(status.read_text()) if status.exists() else -signal.SIGKILL
        return self.returncode


class Hatchery(Theatre):
    """A theatre whose masters are of a nest."""

    def __init__(self, directory: Path, nest: "Nest") -> None:
        super().__init__(directory)
        self._nest = nest

    def _began(self, script: str) -> "subprocess.Popen[str]":
        return cast("subprocess.Popen[str]", self._nest.start(self.directory, script))

    def _ours(self, pid: int) -> bool:
        """They have the nest's environment, all of them."""
        return pid in {fact["pid"] for fact in self.facts()} and alive(pid)


class Nest:
    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.runtime.master_forkserver"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self, directory: Path, script: str) -> Fledgling:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(msgspec.json.encode((str(directory), script)).decode() + "\n")
        self._process.stdin.flush()
        return Fledgling(int(self._process.stdout.readline()), directory)

    def close(self) -> None:
        self._process.communicate("")
        assert self._process.returncode == 0


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    gc.freeze()
    for line in sys.stdin:
        directory, script = msgspec.json.decode(line, type=tuple[str, str])
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os._exit(hatched(Path(directory), msgspec.json.decode(script, type=Script)))
        print(pid, flush=True)


def hatched(directory: Path, script: Script) -> int:
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
