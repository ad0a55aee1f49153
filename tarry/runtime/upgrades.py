"""The upgrade of a master: it starts another one, with its sockets, which takes its place once that serves.

The other one is a program of its own, so it has the code that is installed now. Until it serves, nothing has changed.
They talk over a pair of sockets: the new one says that it serves, and the old one lets it have the pid file.

The new master's side of an upgrade: it says that it serves, and waits until the old one has made room.

Executes this program again, as another master with the sockets of this one.
"""

import contextlib
import fcntl
import logging
import math
import os
import signal
import socket
import sys
from collections.abc import Mapping, MutableMapping, Sequence
from pathlib import Path
from time import monotonic
from typing import Any, NoReturn

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from tarry import platform
from tarry.errors import MasterError
from tarry.model.checks.decoders import decode_json
from tarry.runtime.board.layout import SERVING
from tarry.runtime.board.master_status import MasterStatus, Origin
from tarry.runtime.board.reader import read
from tarry.runtime.board.scoreboard import ASIDE, DRAFT
from tarry.runtime.pidfile import holder
from tarry.runtime.request_files import asker_path, take_name, write_name
from tarry.runtime.signal_queue import block_signals
from tarry.runtime.sockets.listeners import Listeners

# Seconds for a new master that is not wanted to end by itself, and the same if it is to end now. Both are longer than
# the default of `term_grace` and the limit of its keeper: of two signals that come at once it may see only one.
_END_LIMIT, _QUIT_LIMIT = 20.0, 15.0

_log = logging.getLogger("tarry.master")


class Upgrades:
    """The old master's side: at most one upgrade at a time. Times are of the monotonic clock."""

    def __init__(
        self, pid_file: Path, board: Path, directory: Path, environ: MutableMapping[str, str] = os.environ
    ) -> None:
        """board: where this master's is. directory: where it was started. environ: what a new master gets besides."""
        self._request, self._drafts = request_path(pid_file), [_draft(pid_file), _draft(board)]
        self._command, self._directory, self._environ = this_command(), directory, environ
        self._socket: socket.socket | None = None
        self._started_at = 0.0
        self.pid = 0
        """The new master's; 0: there is none."""
        self._kill_at = math.inf
        self._begun, self._failure, self._is_reload_wanted = 0, "", False
        self._asked_by = ""

    @property
    def is_running(self) -> bool:
        """Whether a new master is starting."""
        return self._socket is not None

    @property
    def is_ending(self) -> bool:
        """Whether a new master that is not wanted is still there."""
        return self._kill_at < math.inf

    def begin_if_requested(self, state: str, listeners: Listeners, notify: dict[str, str]) -> bool:
        """Starts a new master with these sockets and these variables of the service manager, if that was requested.
        False: it was not. state: the master's; it has to be serving."""
        by = take_name(self._request)
        if by is None:
            # The new master may have read its settings already.
            self._is_reload_wanted = self.is_running
            return False
        if not self.is_running:
            self._kill_ending()
            self._begun, self._failure, self._is_reload_wanted = self._begun + 1, "", False
            if os.getpid() == 1:
                self._fail("process 1 of a container cannot be replaced: start another container")
            elif state != SERVING:
                self._fail(f"the master is {state}")
            else:
                self._asked_by = by
                self._start(listeners, notify)
        return True

    def describe(self, status: MasterStatus) -> MasterStatus:
        """The status, with what is known of upgrades."""
        pid = self.pid if self.is_running else 0
        return replace(status, upgrades=self._begun, upgrading=pid, upgrade_trouble=self._failure)

    def advance(self, now: float, limit: float) -> bool:
        """True: the new master serves and waits for `let_go`. limit: seconds within which it has to."""
        if now >= self._kill_at:
            self._kill_ending()
        if self._socket is None:
            return False
        try:
            said = self._socket.recv(MOST_TEXT)
        except BlockingIOError:
            if now >= self._started_at + limit:
                self._give_up(f"the new master did not serve within {limit:g} s")
            return False
        except OSError:
            said = b""
        if said == SERVING_WORD and self._has_ended():
            said = b""
        if said != SERVING_WORD:
            text = said.removeprefix(FAILED_WORD).decode(errors="replace")
            self._give_up(text or "the new master ended before it served; the log may say why")
        return said == SERVING_WORD

    def let_go(self) -> None:
        """The new master may take the pid file. It reloads if that was requested meanwhile."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.send(GO_WORD)
        self.close()
        # From now on they are those of its own upgrades.
        self._drafts.clear()
        if self._is_reload_wanted and self.pid:
            os.kill(self.pid, signal.SIGHUP)

    def dismiss(self, why: str) -> None:
        """Ends the new master, if it has not taken over yet."""
        if self.is_running:
            self._failure = why
            _log.info("upgrade given up: %s", why)
            self._end_new()

    def hurry(self) -> None:
        """Of a new master that is to end: it kills its jobs now."""
        if self.is_ending:
            self._kill_at = min(self._kill_at, monotonic() + _QUIT_LIMIT)
            self._terminate()

    def on_exit(self, pid: int) -> None:
        """That child process has ended, and its pid is free. What it left if it was killed is removed, unless it had
        taken over."""
        if pid == self.pid:
            self.pid, self._kill_at = 0, math.inf
            for path in self._drafts:
                path.unlink(missing_ok=True)
                # A board that was not yet whole.
                path.with_name(f"{path.name}.{pid}").unlink(missing_ok=True)

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
        self._end_new()
        self._fail(why)

    def _end_new(self) -> None:
        self.close()
        if self.pid:
            # It ends its children by itself.
            self._terminate()
            # Its signals are blocked until it is up: if it hangs before, it would keep the sockets for ever.
            self._kill_at = monotonic() + _END_LIMIT

    def _has_ended(self) -> bool:
        """Whether the new master is gone, as far as its end of the pair tells."""
        assert self._socket is not None
        try:
            return not self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False

    def _terminate(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)

    def _kill_ending(self) -> None:
        if self.is_ending:
            # Its children end by themselves once it is gone.
            os.kill(self.pid, signal.SIGKILL)
            self._kill_at = math.inf

    def _execute(self, listeners: Listeners, theirs: socket.socket, notify: dict[str, str]) -> NoReturn:
        """In the forked child: becomes the new master. Its signals stay blocked until its own handlers are there."""
        try:
            execute_again(
                self._command, self._directory, {**self._environ, **notify}, listeners, theirs, self._asked_by
            )
        except OSError as error:
            theirs.send(FAILED_WORD + f"{self._command[0]} cannot be run ({error.strerror})".encode()[:MOST_TEXT])
        finally:
            os._exit(1)


def request_path(pid_file: Path) -> Path:
    """The file that makes the next HUP an upgrade."""
    return pid_file.with_name(pid_file.name + ".upgrade")


def write_request(pid_file: Path, by: str = "") -> Path:
    """Writes that file, with the name of who asks. The caller signals the master next. OSError."""
    path = request_path(pid_file)
    write_name(path, by)
    return path


def remove_drafts(pid_file: Path, board: Path) -> None:
    """Removes what masters left that were killed amid or after an upgrade, or as they made their board. For a master
    that holds the lock of its pid file, before it shows itself."""
    draft = _draft(pid_file)
    # A new master that is left alone gives up, and removes its own files.
    with contextlib.suppress(OSError, MasterError):
        if holder(draft) is None:
            boards = [path for path in board.parent.glob(f"{board.name}.*") if path.suffix[1:].isdecimal()]
            for path in (
                draft,
                request_path(pid_file),
                asker_path(pid_file),
                _draft(board),
                *(path for path in boards if not (ASIDE in path.suffixes and _is_used(path))),
            ):
                path.unlink(missing_ok=True)


def _is_used(board: Path) -> bool:
    """Whether the master that wrote it is alive; also if nobody can tell."""
    try:
        found = read(board)
        return found is not None and not platform.has_ended(found.pid)
    # Another user's, or another release's.
    except (OSError, MasterError):
        return True


def _draft(path: Path) -> Path:
    return path.with_name(path.name + DRAFT)


SERVING_WORD, FAILED_WORD, GO_WORD = b"serving", b"failed:", b"go"
"""What the two masters say to each other."""
MOST_TEXT = 4000
"""Bytes of it."""
# Seconds for the old master to answer: its loop sleeps for half a second at most.
_ANSWER_LIMIT = 10.0


class Successor:
    """The new master's side. For a master that takes nobody's place it does nothing."""

    def __init__(self, environ: MutableMapping[str, str] = os.environ) -> None:
        """Reads the variable, and removes it."""
        text = environ.pop(VARIABLE, "")
        inherited = decode_json(text, Inherited) if text else None
        self.own_sockets = 0 if inherited is None else inherited.own
        self._asked_by = "" if inherited is None else inherited.by
        self._socket: socket.socket | None = None
        if inherited is not None:
            os.set_inheritable(inherited.fd, False)
            self._socket = socket.socket(fileno=inherited.fd)
            self._socket.settimeout(_ANSWER_LIMIT)

    @property
    def is_waiting(self) -> bool:
        """Whether another master is to make room."""
        return self._socket is not None

    def origin(self, by: str) -> Origin:
        """Why this master began. by: who started it, unless another master did."""
        return Origin("upgrade", self._asked_by) if self.is_waiting else Origin("start", by)

    def place(self, path: Path) -> Path:
        """Where that file is until the old master has made room."""
        return _draft(path) if self.is_waiting else path

    def take_over(self) -> bool:
        """Tells the old master that this one serves. False: it does not make room: this one took too long, or it is
        dead. Waits for it, up to 10 s."""
        if self._socket is None:
            return True
        try:
            self._socket.send(SERVING_WORD)
            return self._socket.recv(MOST_TEXT) == GO_WORD
        except OSError:
            return False
        finally:
            self.close()

    def report_failure(self, text: str) -> None:
        """Tells the old master why this one cannot serve."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.send(FAILED_WORD + text.encode("utf-8", "replace")[: MOST_TEXT - len(FAILED_WORD)])
            self.close()

    def close(self) -> None:
        """Also called in forked children."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def is_successor(environ: MutableMapping[str, Any] = os.environ) -> bool:
    """Whether this process was started as a new master."""
    return VARIABLE in environ


VARIABLE = "_TARRY_UPGRADE"
"""The environment variable of a new master; not one of the settings."""
_FIRST = 3  # The first descriptor that sd_listen_fds(3) names.
_MOST_HEAD = 1024


class Inherited(Struct, frozen=True):
    """What a new master gets from the old one, besides the sockets."""

    fd: int
    """The socket over which they talk."""
    own: int
    """How many of the sockets were opened by the old master; the others are the service manager's."""
    by: str = ""
    """Who asked for the upgrade."""


def own_command(argv: Sequence[str], executable: str) -> list[str]:
    """The program and its arguments, as they are to be executed again.

    argv, executable: as `sys.orig_argv`, `sys.executable`. A script that names its interpreter is executed itself: if a
    link in its path leads to another release by now, the script there names another interpreter.
    """
    if len(argv) > 1 and _is_script_for(argv[0], Path(argv[1])):
        return list(argv[1:])
    return [executable, *argv[1:]]


def _is_script_for(interpreter: str, path: Path) -> bool:
    """Whether the kernel would run that file by this interpreter."""
    try:
        with path.open("rb") as script:
            head = script.read(_MOST_HEAD)
    except OSError:
        return False
    # Below a `#!/bin/sh`, pip writes the interpreter into the second line if its path is too long for the first.
    named = b"\n".join(head.splitlines()[:3])
    return head.startswith(b"#!") and os.fsencode(interpreter) in named and os.access(path, os.X_OK)


def execute_again(
    command: list[str],
    directory: Path,
    environ: Mapping[str, str],
    listeners: Listeners,
    talk: socket.socket,
    by: str,
) -> NoReturn:
    """In a forked child: becomes the new master, with these variables and those that tell it of its sockets. OSError.

    directory: where the command was first executed. talk: the new master's end of the pair. by: who asked.
    """
    os.chdir(directory)
    own, given = listeners.descriptors()
    sockets = [*own, *given]
    fds = [*(one.fileno() for _, one in sockets), talk.fileno()]
    # First above all that they are to be: else one would be overwritten before it is copied.
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _FIRST + len(fds)) for fd in fds]
    for place, fd in enumerate(high, _FIRST):
        os.dup2(fd, place)
    inherited = Inherited(_FIRST + len(sockets), len(own), by)
    variables = {
        "LISTEN_FDS": str(len(sockets)),
        "LISTEN_PID": str(os.getpid()),
        "LISTEN_FDNAMES": ":".join(name for name, _ in sockets),
        VARIABLE: msgspec.json.encode(inherited).decode(),
    }
    os.execve(command[0], command, {**environ, **variables})


def this_command() -> list[str]:
    """The command of this process."""
    return own_command(sys.orig_argv, sys.executable)
