"""A log file that many processes write, and that may be moved, deleted or rotated meanwhile."""

import contextlib
import logging
import os
from pathlib import Path

from tarry import files
from tarry.runtime.logs.fallback import StderrFallback
from tarry.runtime.logs.formatting import encode

_Identity = tuple[int, int]


class LogFile(logging.Handler):
    """Appends whole lines, each in one write, to whatever file has the path at that moment; OSError if none can.

    It checks the path before each line. While the file cannot be written, lines go to stderr. If stdout and stderr are
    the same file, they follow it.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._fallback = StderrFallback(f"the file {path}")
        self._identity: _Identity = (0, 0)
        self._fd = -1
        self._open()

    def emit(self, record: logging.LogRecord) -> None:
        """Writes one line. A record that cannot be formatted is reported on stderr, as by every handler."""
        try:
            # Apart from the write: a record that cannot be formatted is no failure of the file.
            line = self.format(record)
        except Exception:
            self.handleError(record)
            return
        if self._fallback.is_due and self._try_write(line):
            return
        self._fallback.write(line)

    def reopen(self) -> None:
        """Checks now whether the path is another file."""
        with self.lock if self.lock is not None else contextlib.nullcontext():
            self._fallback.retry_now()
            try:
                self._follow_path()
            except OSError as error:
                self._fallback.record_failure(_why(error))

    def close(self) -> None:
        """Closes the file; no lines may follow."""
        self._close()
        super().close()

    def _try_write(self, line: str) -> bool:
        try:
            self._follow_path()
            self._write(line)
        except OSError as error:
            self._fallback.record_failure(_why(error))
            return False
        if note := self._fallback.record_success():
            with contextlib.suppress(OSError):
                self._write(self.format(_record(note)))
        return True

    def _write(self, line: str) -> None:
        # In one write if possible, so that lines of many processes do not mix.
        left = encode(line + "\n")
        while left:
            left = left[os.write(self._fd, left) :]

    def _follow_path(self) -> None:
        try:
            # Before each line, so that logrotate need not send a signal.
            there = os.stat(self._path)
        except FileNotFoundError:
            self._open()
            return
        if self._fd < 0 or (there.st_dev, there.st_ino) != self._identity:
            self._open()

    def _open(self) -> None:
        try:
            # If this fails, the old file is closed all the same: it is no longer the one at the path.
            fd = files.open_private(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        except OSError:
            self._close()
            raise
        self._close()
        before, self._identity, self._fd = self._identity, _identity(fd), fd
        # In a daemon, stdout and stderr are the log file. They must not stay with the rotated one.
        for output in (1, 2):
            with contextlib.suppress(OSError):
                if before != self._identity and _identity(output) == before:
                    os.dup2(fd, output)

    def _close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)


def _identity(fd: int) -> _Identity:
    found = os.fstat(fd)
    return found.st_dev, found.st_ino


def _why(error: OSError) -> str:
    return error.strerror or type(error).__name__


def _record(message: str) -> logging.LogRecord:
    return logging.LogRecord("tarry.log", logging.WARNING, __file__, 0, message, None, None)
