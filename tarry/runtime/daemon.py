"""From a command in a terminal to a process of its own, which says when it serves, or why it cannot; see daemon(7)."""

import contextlib
import os
import signal
import sys
from pathlib import Path
from typing import NoReturn

from tarry import files
from tarry.errors import MasterError
from tarry.runtime.signals import ALL, unblock_signals

_SERVING = b"serving:"
_PYTHON_IGNORES = (signal.SIGPIPE, signal.SIGXFSZ)


class Readiness:
    """How the daemon tells the command that started it. Each is told once; whoever does not wait is not missed."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        # Forked children must not hold the pipe open: its end is how a silent death is seen.
        os.register_at_fork(after_in_child=self.close)

    def report_serving(self, text: str = "") -> None:
        """The command prints the text and ends with status 0."""
        self._write(_SERVING + text.encode("utf-8", "replace"))

    def report_failure(self, text: str) -> None:
        """The command prints the text on stderr and ends with status 1."""
        self._write(b"failed:" + text.encode("utf-8", "replace"))

    def close(self) -> None:
        """Without having told anything: the command says that we died."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _write(self, word: bytes) -> None:
        with contextlib.suppress(BrokenPipeError):
            while word and self._fd >= 0:
                word = word[os.write(self._fd, word) :]
        self.close()


def daemonize(log: Path | None = None) -> Readiness:
    """Returns in the daemon; the process that called ends (SystemExit) when the daemon has told how it went.

    The daemon has its own session and no terminal, umask 027, "/" as directory, no other open file, no signal that is
    ignored or held back, and its output in the log file or nowhere: make every path absolute before.
    MasterError: there is no room for another process.
    """
    log = None if log is None else log.absolute()
    _ensure_streams()
    _flush()
    hear, tell = os.pipe()
    child = _fork()
    if child:
        os.close(tell)
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
    """The second fork is no session leader, so that no terminal it opens becomes its own."""
    os.setsid()
    if _fork():
        os._exit(0)
    os.umask(0o027)
    os.chdir("/")


def _fork() -> int:
    try:
        return os.fork()
    except OSError as error:
        raise MasterError(f"there is no room for a daemon ({error.strerror})") from None


def _reset_signals() -> None:
    """What `nohup`, `&` or a careless parent had us ignore or hold back would stay so for ever."""
    for number in ALL - {signal.SIGKILL, signal.SIGSTOP, *_PYTHON_IGNORES}:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    unblock_signals()


def _ensure_streams() -> None:
    """Started without them, we would get our pipe as one, and Python has `None` for it."""
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        with contextlib.suppress(OSError):
            os.fstat(fd)
            continue
        os.open(os.devnull, os.O_RDWR)  # the lowest that is free, which is this one
        os.set_inheritable(fd, True)
        setattr(sys, name, os.fdopen(fd, "w" if fd else "r", encoding="utf-8", closefd=False))


def _close_all_but(kept: int) -> None:
    """A terminal, a lock or a socket of whoever started us is not ours to hold for as long as we live."""
    for fd in map(int, os.listdir("/dev/fd")):
        if fd > 2 and fd != kept:
            with contextlib.suppress(OSError):  # it was the listing's own
                os.close(fd)


def _redirect(log: Path | None) -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    out = nothing if log is None else _open_log(log)
    for fd, place in ((0, nothing), (1, out), (2, out)):
        os.dup2(place, fd)
    for place in {nothing, out} - {0, 1, 2}:
        os.close(place)


def _open_log(log: Path) -> int:
    """What cannot be logged is lost rather than the start: `handlers.configure` refuses such a file with a reason."""
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        return files.opened(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    except OSError:
        return os.open(os.devnull, os.O_WRONLY)


def _exit_as_reported(hear: int) -> NoReturn:
    with open(hear, "rb") as pipe:
        word = pipe.read()
    if word.startswith(_SERVING):
        if said := word.removeprefix(_SERVING).decode("utf-8", "replace"):
            print(said, flush=True)
        raise SystemExit(0)
    text = word.removeprefix(b"failed:").decode("utf-8", "replace")
    print(text or "tarry: the master died before it served; its log may say why", file=sys.stderr)
    raise SystemExit(1)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
