"""From a command in a terminal to a process of its own, which says when it serves, or why it cannot."""

import contextlib
import os
import sys
from pathlib import Path
from typing import NoReturn

_SERVING = b"serving"


class Readiness:
    """How the daemon tells the command that started it. Each is told once; whoever does not wait is not missed."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        # Forked children must not hold the pipe open: its end is how a silent death is seen.
        os.register_at_fork(after_in_child=self.close)

    def serving(self) -> None:
        """The command ends with status 0."""
        self._tell(_SERVING)

    def failed(self, text: str) -> None:
        """The command prints the text on stderr and ends with status 1."""
        self._tell(b"failed:" + text.encode("utf-8", "replace"))

    def close(self) -> None:
        """Without having told anything: the command says that we died."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _tell(self, word: bytes) -> None:
        with contextlib.suppress(BrokenPipeError):
            while word and self._fd >= 0:
                word = word[os.write(self._fd, word) :]
        self.close()


def daemonize(log: Path | None = None) -> Readiness:
    """Returns in the daemon; the process that called ends (SystemExit) when the daemon has told how it went.

    The daemon has its own session and no terminal, umask 027, "/" as directory, and its output in the log file or
    nowhere: make every path absolute before.
    """
    log = None if log is None else log.absolute()
    _flush()
    hear, tell = os.pipe()
    child = os.fork()
    if child:
        os.close(tell)
        os.waitpid(child, 0)
        _end_as_told(hear)
    os.close(hear)
    _leave_the_session()
    _redirect(log)
    return Readiness(tell)


def _leave_the_session() -> None:
    """The second fork is no session leader, so that no terminal it opens becomes its own."""
    os.setsid()
    if os.fork():
        os._exit(0)
    os.umask(0o027)
    os.chdir("/")


def _redirect(log: Path | None) -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    out = nothing if log is None else _opened(log)
    for fd, place in ((0, nothing), (1, out), (2, out)):
        os.dup2(place, fd)
    for place in {nothing, out} - {0, 1, 2}:
        os.close(place)


def _opened(log: Path) -> int:
    """What cannot be logged is lost rather than the start: `logs.configure` refuses such a file with a reason."""
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        return os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    except OSError:
        return os.open(os.devnull, os.O_WRONLY)


def _end_as_told(hear: int) -> NoReturn:
    with open(hear, "rb") as pipe:
        word = pipe.read()
    if word == _SERVING:
        raise SystemExit(0)
    text = word.removeprefix(b"failed:").decode("utf-8", "replace")
    print(text or "the master died before it served; its log may say why", file=sys.stderr)
    raise SystemExit(1)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
