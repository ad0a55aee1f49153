"""A server process that a test may start, kill, halt and start again."""

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

READY_WITHIN = 60.0


class Missing(Exception):
    """The server is not installed."""


class Server(ABC):
    """One process, and all that it starts; it dies with the tests' own process."""

    account = ""
    """The user that it runs as when we are root."""
    parting: ClassVar[signal.Signals] = signal.SIGTERM
    """What ends it in good order."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        directory.mkdir(parents=True)
        self.owned(directory)

    @property
    def log(self) -> Path:
        """What it says."""
        return self.directory.with_name(f"{self.directory.name}.log")

    @abstractmethod
    def command(self) -> Sequence[str]:
        """What is run."""

    @abstractmethod
    def answers(self) -> bool:
        """It takes commands."""

    def start(self) -> None:
        """Returns once it answers."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*_dying_with_us(), *self.command()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                start_new_session=True,
                user=self.user(),
                group=self.group() if self.user() else None,
                extra_groups=[] if self.user() else None,
            )
        end = time.monotonic() + READY_WITHIN
        while not self.answers():
            assert self._process.poll() is None, f"ended with {self._process.returncode}: {self.last_words()}"
            assert time.monotonic() < end, f"no answer after {READY_WITHIN:g} s: {self.last_words()}"
            time.sleep(0.02)

    def kill(self) -> None:
        """SIGKILL to it and all that it started, as when the power fails."""
        self._signal(signal.SIGKILL)
        self._wait()

    def stop(self) -> None:
        """Ends it in good order."""
        self._signal(self.parting)
        self._wait()

    def halt(self) -> None:
        """It does nothing any more, yet its connections stay."""
        self._signal(signal.SIGSTOP)
        # A thread that runs on another processor answers a moment longer.
        end = time.monotonic() + READY_WITHIN
        while not all(state in "TtZX" for state in self._states()):
            assert time.monotonic() < end, "it does not halt"
            time.sleep(0.001)

    def resume(self) -> None:
        """It goes on."""
        self._signal(signal.SIGCONT)

    def _states(self) -> Iterator[str]:
        """Of each thread of its processes, as /proc has them."""
        assert self._process is not None
        pids = [str(self._process.pid)]
        for pid in pids:
            for task in Path(f"/proc/{pid}/task").glob("*"):
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                    pids += (task / "children").read_text().split()
                    yield (task / "stat").read_text().rpartition(")")[2].split()[0]

    def last_words(self) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-2000:] if self.log.exists() else "it said nothing"

    def owned(self, path: Path) -> None:
        """Gives a file to the user that it runs as."""
        if user := self.user():
            shutil.chown(path, user, self.group())

    def run(self, *command: str) -> str:
        """Runs one of its tools to the end, as its user; what it printed."""
        ran = subprocess.run(
            command, capture_output=True, text=True, timeout=READY_WITHIN, check=False, cwd=self.directory,
            user=self.user(), group=self.group() if self.user() else None, extra_groups=[] if self.user() else None,
        )  # fmt: skip
        assert ran.returncode == 0, f"{command}: {ran.stdout}{ran.stderr}"
        return ran.stdout

    def user(self) -> str | None:
        """Who it runs as, if not as we do."""
        return self.account if os.getuid() == 0 and self.account and _known(self.account) else None

    def group(self) -> int:
        """Its group."""
        user = self.user()
        return pwd.getpwnam(user).pw_gid if user else os.getgid()

    def _signal(self, number: int) -> None:
        assert self._process is not None
        if self._process.poll() is None:
            os.killpg(self._process.pid, number)

    def _wait(self) -> None:
        assert self._process is not None
        try:
            self._process.wait(READY_WITHIN)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
            self._process.wait(READY_WITHIN)


def program(*names: str, among: Sequence[str] = ()) -> str:
    """The path of the first that there is, in $PATH or a folder of `among`; Missing if there is none."""
    folders = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin", *among])
    for name in names:
        if found := shutil.which(name, path=folders):
            return found
    raise Missing(f"{' or '.join(names)} is not installed: python -m tests.servers.install")


def free_port() -> int:
    """A port that nobody listens on, and that no other process is given while this one lives."""
    # It stays bound, also while a test's server is down. A server may bind it all the same, since this socket does not
    # listen and both have SO_REUSEADDR.
    reservation = socket.socket()
    reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reservation.bind(("127.0.0.1", 0))
    _reservations.append(reservation)
    port: int = reservation.getsockname()[1]
    return port


_reservations: list[socket.socket] = []


def _known(account: str) -> bool:
    try:
        pwd.getpwnam(account)
    except KeyError:
        return False
    return True


def _dying_with_us() -> list[str]:
    """So that tests that are killed leave no server behind; util-linux has it."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL"] if setpriv else []
