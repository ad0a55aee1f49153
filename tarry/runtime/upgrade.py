"""The upgrade of a master: it starts another one, with its sockets, which takes its place once that serves.

The other one is a program of its own, so it has the code that is installed now. Until it serves, nothing has changed.
They talk over a pair of sockets: the new one says that it serves, and the old one lets it have the pid file.
"""

import contextlib
import fcntl
import logging
import os
import signal
import socket
import sys
from collections.abc import MutableMapping
from pathlib import Path
from time import monotonic
from typing import Any, NoReturn

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from tarry import files
from tarry.runtime.board.layout import SERVING
from tarry.runtime.board.scoreboard import DRAFT
from tarry.runtime.master_status import MasterStatus
from tarry.runtime.signals import block_signals
from tarry.runtime.sockets.listeners import Listeners

VARIABLE = "_TARRY_UPGRADE"
"""The environment variable of a new master; not one of the settings."""
_FIRST = 3  # The first descriptor that sd_listen_fds(3) names.
_SERVING, _FAILED, _GO = b"serving", b"failed:", b"go"
# Seconds for the old master to answer: its loop sleeps for half a second at most.
_ANSWER_LIMIT = 10.0
_MOST_TEXT = 4000

_log = logging.getLogger("tarry.master")


class Inherited(Struct, frozen=True):
    """What a new master gets from the old one, besides the sockets."""

    fd: int
    """The socket over which they talk."""
    own: int
    """How many of the sockets were opened by the old master; the others are the service manager's."""


class Upgrades:
    """The old master's side: at most one upgrade at a time. Times are of the monotonic clock."""

    def __init__(self, pid_file: Path, directory: Path, environ: MutableMapping[str, str] = os.environ) -> None:
        """directory: where the master was started. environ: what a new master gets besides."""
        self._request = request_path(pid_file)
        self._command, self._directory, self._environ = [sys.executable, *sys.orig_argv[1:]], directory, environ
        self._socket: socket.socket | None = None
        self._started_at = 0.0
        self.pid = 0
        """The new master's; 0: there is none."""
        self._begun, self._failure = 0, ""

    @property
    def is_running(self) -> bool:
        """Whether a new master is starting."""
        return self._socket is not None

    def begin_if_requested(self, state: str, listeners: Listeners, notify: dict[str, str]) -> bool:
        """Starts a new master with these sockets and these variables of the service manager, if that was requested.
        False: it was not. state: the master's; it has to be serving."""
        try:
            self._request.unlink()
        except OSError:
            return False
        if not self.is_running:
            self._begun, self._failure = self._begun + 1, ""
            if os.getpid() == 1:
                self._fail("process 1 of a container cannot be replaced: start another container")
            elif state != SERVING:
                self._fail(f"the master is {state}")
            else:
                self._start(listeners, notify)
        return True

    def describe(self, status: MasterStatus) -> MasterStatus:
        """The status, with what is known of upgrades."""
        pid = self.pid if self.is_running else 0
        return replace(status, upgrades=self._begun, upgrading=pid, upgrade_trouble=self._failure)

    def advance(self, now: float, limit: float) -> bool:
        """True: the new master serves and waits for `let_go`. limit: seconds within which it has to."""
        if self._socket is None:
            return False
        try:
            said = self._socket.recv(_MOST_TEXT)
        except BlockingIOError:
            if now >= self._started_at + limit:
                self._give_up(f"the new master did not serve within {limit:g} s")
            return False
        except OSError:
            said = b""
        if said != _SERVING:
            text = said.removeprefix(_FAILED).decode(errors="replace")
            self._give_up(text or "the new master ended before it served; the log may say why")
        return said == _SERVING

    def let_go(self) -> None:
        """The new master may take the pid file."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.send(_GO)
        self.close()

    def close(self) -> None:
        """Talks to the new master no more. Also called in forked children."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _fail(self, why: str) -> None:
        self._failure = why
        _log.error("upgrade failed, and what ran goes on: %s", why)

    def _start(self, listeners: Listeners, notify: dict[str, str]) -> None:
        ours, theirs = socket.socketpair()
        try:
            with block_signals():
                self.pid = os.fork()
                if self.pid == 0:
                    self._execute(listeners, theirs, notify)
        except OSError as error:
            ours.close()
            return self._fail(f"no process can be made ({error.strerror})")
        finally:
            theirs.close()
        ours.setblocking(False)
        self._socket, self._started_at = ours, monotonic()
        return _log.info("upgrade: a new master starts, pid %d", self.pid)

    def _give_up(self, why: str) -> None:
        # It has no children yet, or ends them by itself.
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)
        self.close()
        self.pid = 0
        self._fail(why)

    def _execute(self, listeners: Listeners, theirs: socket.socket, notify: dict[str, str]) -> NoReturn:
        """In the forked child: becomes the new master. Its signals stay blocked until its own handlers are there."""
        try:
            os.chdir(self._directory)
            own, given = listeners.descriptors()
            sockets = [*own, *given]
            fds = [*(one.fileno() for _, one in sockets), theirs.fileno()]
            # First above all that they are to be: else one would be overwritten before it is copied.
            high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _FIRST + len(fds)) for fd in fds]
            for place, fd in enumerate(high, _FIRST):
                os.dup2(fd, place)
            inherited = Inherited(_FIRST + len(sockets), len(own))
            variables = {
                "LISTEN_FDS": str(len(sockets)),
                "LISTEN_PID": str(os.getpid()),
                "LISTEN_FDNAMES": ":".join(name for name, _ in sockets),
                VARIABLE: msgspec.json.encode(inherited).decode(),
            }
            os.execve(self._command[0], self._command, {**self._environ, **notify, **variables})
        finally:
            os._exit(1)


class Successor:
    """The new master's side. For a master that takes nobody's place it does nothing."""

    def __init__(self, environ: MutableMapping[str, str] = os.environ) -> None:
        """Reads the variable, and removes it."""
        text = environ.pop(VARIABLE, "")
        inherited = msgspec.json.decode(text, type=Inherited) if text else None
        self.own_sockets = 0 if inherited is None else inherited.own
        self._socket: socket.socket | None = None
        if inherited is not None:
            os.set_inheritable(inherited.fd, False)
            self._socket = socket.socket(fileno=inherited.fd)
            self._socket.settimeout(_ANSWER_LIMIT)

    @property
    def is_waiting(self) -> bool:
        """Whether another master is to make room."""
        return self._socket is not None

    def place(self, path: Path) -> Path:
        """Where that file is until the old master has made room."""
        return path.with_name(path.name + DRAFT) if self.is_waiting else path

    def take_over(self) -> bool:
        """Tells the old master that this one serves. False: it does not make room: this one took too long, or it is
        dead. Waits for it, up to 10 s."""
        if self._socket is None:
            return True
        try:
            self._socket.send(_SERVING)
            return self._socket.recv(_MOST_TEXT) == _GO
        except OSError:
            return False
        finally:
            self.close()

    def report_failure(self, text: str) -> None:
        """Tells the old master why this one cannot serve."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.send(_FAILED + text.encode("utf-8", "replace")[: _MOST_TEXT - len(_FAILED)])
            self.close()

    def close(self) -> None:
        """Also called in forked children."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def is_successor(environ: MutableMapping[str, Any] = os.environ) -> bool:
    """Whether this process was started as a new master."""
    return VARIABLE in environ


def request_path(pid_file: Path) -> Path:
    """The file that makes the next HUP an upgrade."""
    return pid_file.with_name(pid_file.name + ".upgrade")


def write_request(pid_file: Path) -> Path:
    """Writes that file. The caller signals the master next. OSError."""
    path = request_path(pid_file)
    os.close(files.open_private(path, os.O_WRONLY | os.O_CREAT, files.OURS))
    return path
