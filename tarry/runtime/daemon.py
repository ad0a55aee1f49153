"""Turns a command into a daemon, which reports when it serves, or why it cannot; see daemon(7)."""

import contextlib
import os
import signal
import sys
from pathlib import Path
from typing import NoReturn

from tarry import files, forks
from tarry.errors import MasterError
from tarry.runtime.signal_queue import unblock_signals
from tarry.terminal import print_line

_SERVING = b"serving:"
# Python ignores these from its start: their default action would kill the process.
_PYTHON_IGNORES = (signal.SIGPIPE, signal.SIGXFSZ)


class Readiness:
    """A pipe from the daemon to the command that started it. One report is sent; the command may be gone."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        # Forked children must not hold the pipe open: its end shows a death without a report.
        os.register_at_fork(after_in_child=self.close)

    def report_serving(self, text: str = "") -> None:
        """The command prints the text and exits with status 0."""
        self._write(_SERVING + text.encode("utf-8", "replace"))

    def report_failure(self, text: str) -> None:
        """The command prints the text on stderr and exits with status 1."""
        self._write(b"failed:" + text.encode("utf-8", "replace"))

    def close(self) -> None:
        """Closes the pipe. Without a report before, the command says that the daemon died."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _write(self, word: bytes) -> None:
        with contextlib.suppress(BrokenPipeError):
            while word and self._fd >= 0:
                word = word[os.write(self._fd, word) :]
        self.close()


def daemonize(log: Path | None = None) -> Readiness:
    """Returns in the daemon. The calling process exits (SystemExit) when the daemon has reported.

    The daemon has its own session and no terminal, umask 027, "/" as directory, no other open file, and no ignored or
    blocked signal. Its output goes to the log file or nowhere. Make every path absolute before.
    MasterError: no process can be made.
    """
    # Before the change of directory, which would give a relative path another meaning.
    log = None if log is None else log.absolute()
    _ensure_streams()
    # Else both processes would write what is still in the buffers.
    _flush()
    hear, tell = os.pipe()
    child = _fork()
    if child:
        os.close(tell)
        # It ends at once, after the second fork. Without the wait it would stay a zombie.
        os.waitpid(child, 0)
        _exit_as_reported(hear)
    try:
        _start_session()
        _reset_signals()
        _redirect(log)
        _close_all_but(tell)
    except (OSError, MasterError) as error:
        Readiness(tell).report_failure(f"tarry: {error}")
        os._exit(1)
    return Readiness(tell)


def _start_session() -> None:
    """Starts a session, as a process that does not lead it."""
    os.setsid()
    # A process that leads no session gets no controlling terminal.
    if _fork():
        os._exit(0)
    # See daemon(7): its files are not for everybody, and it must not keep a file system from being unmounted.
    os.umask(0o027)
    os.chdir("/")


def _fork() -> int:
    try:
        return os.fork()
    except OSError as error:
        raise MasterError(f"there is no room for a daemon ({error.strerror})") from None


def _reset_signals() -> None:
    """Resets signals that `nohup`, `&` or the parent process made us ignore or block."""
    for number in forks.ALL - {signal.SIGKILL, signal.SIGSTOP, *_PYTHON_IGNORES}:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    unblock_signals()


def _ensure_streams() -> None:
    """Opens missing standard streams."""
    # Else our pipe could get one of their numbers, and Python has `None` for the stream.
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        with contextlib.suppress(OSError):
            os.fstat(fd)
            continue
        os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one
        os.set_inheritable(fd, True)
        setattr(sys, name, os.fdopen(fd, "w" if fd else "r", encoding="utf-8", closefd=False))


def _close_all_but(kept: int) -> None:
    """Closes inherited files: the daemon must not hold a terminal, lock or socket of its parent."""
    for fd in map(int, os.listdir("/dev/fd")):
        if fd > 2 and fd != kept:
            with contextlib.suppress(OSError):  # the descriptor of the listing itself
                os.close(fd)


def _redirect(log: Path | None) -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    out = nothing if log is None else _open_log(log)
    for fd, place in ((0, nothing), (1, out), (2, out)):
        os.dup2(place, fd)
    for place in {nothing, out} - {0, 1, 2}:
        os.close(place)


def _open_log(log: Path) -> int:
    """Opens the log, or /dev/null if that fails."""
    try:
        files.make_directory(log.parent)
        return files.open_private(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    except OSError:
        # `handlers.configure` opens the log again, and reports the error.
        return os.open(os.devnull, os.O_WRONLY)


def _exit_as_reported(hear: int) -> NoReturn:
    with open(hear, "rb") as pipe:
        # This ends with the report, or with the daemon's death.
        word = pipe.read()
    if word.startswith(_SERVING):
        if said := word.removeprefix(_SERVING).decode("utf-8", "replace"):
            print(said, flush=True)
        raise SystemExit(0)
    text = word.removeprefix(b"failed:").decode("utf-8", "replace")
    print_line(text or "tarry: the master died before it served; its log may say why", file=sys.stderr)
    raise SystemExit(1)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
