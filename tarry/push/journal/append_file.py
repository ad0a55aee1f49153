"""A file to which several processes append lines, and which may be moved, deleted or rotated at any time."""

import contextlib
import errno
import logging
import math
import os
import time
from pathlib import Path

from tarry import files

# Not below `tarry.push`: those warnings are written to such a file, which is just what fails.
log = logging.getLogger("tarry.logs")

# Not before each line: a check costs a third of a line.
CHECK_INTERVAL = 0.05
"""Seconds between two checks whether the path is another file by now."""
REPORT_INTERVAL = 60.0


class AppendFile:
    """Each `write` is one system call, so that lines of several processes do not mix, on a local disk.

    Errors of the disk are not raised: lines that could not be written are counted, and logged once a minute.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lost = 0
        """Lines that this process could not write."""
        self._descriptor: _Descriptor | None = None
        self._check_at = -math.inf
        self._torn = False
        self._unreported, self._reported_at = 0, -math.inf

    def write(self, lines: bytes) -> None:
        """Appends complete lines, each with its newline."""
        try:
            # A torn line must not swallow the next one.
            written = self._append(b"\n" + lines if self._torn else lines)
        except OSError as error:
            self._count_lost(lines, error.strerror or type(error).__name__)
            return
        if written:
            # Written in part: the disk is full.
            self._torn = True
            self._count_lost(lines[written:], os.strerror(errno.ENOSPC))
        elif self._torn or self._unreported:
            self._report_recovery()

    def reopen(self) -> None:
        """Checks now whether the path is another file, and closes one that was moved away."""
        self._check_at = -math.inf
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                self._current()

    def _append(self, lines: bytes) -> int:
        """0 if all was written, else the bytes that were."""
        # This reference keeps the descriptor open: another thread may reopen the file, and the number could be reused.
        current = self._current()
        written = os.write(current.number, lines)
        # At least 1, since 0 would mean that all was written.
        return 0 if written == len(lines) else max(written, 1)

    def _current(self) -> "_Descriptor":
        held = self._descriptor
        if held is None or time.monotonic() >= self._check_at:
            held = self._reopen_if_moved(held)
            self._check_at = time.monotonic() + CHECK_INTERVAL
        return held

    def _reopen_if_moved(self, held: "_Descriptor | None") -> "_Descriptor":
        with contextlib.suppress(FileNotFoundError):
            found = os.stat(self.path)
            if held is not None and (found.st_dev, found.st_ino) == held.identity:
                return held
        files.make_directory(self.path.parent)
        opened = self._descriptor = _Descriptor(self.path)
        return opened

    def _count_lost(self, lines: bytes, why: str) -> None:
        # The next line looks for a new file, which may be writable.
        self._check_at = -math.inf
        count = max(1, lines.count(b"\n"))
        self.lost += count
        self._unreported += count
        if time.monotonic() - self._reported_at >= REPORT_INTERVAL:
            self._reported_at = time.monotonic()
            log.error(
                "%s cannot be written (%s): %d lines are missing there; jobs go on", self.path, why, self._unreported
            )

    def _report_recovery(self) -> None:
        untold, self._unreported, self._torn, self._reported_at = self._unreported, 0, False, -math.inf
        log.warning("%s is written again; %d lines are missing there", self.path, untold)


class _Descriptor:
    """A file descriptor that is closed with its last reference."""

    def __init__(self, path: Path) -> None:
        # For `__del__`, if the file cannot be opened.
        self.number = -1
        self.number = files.open_private(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        found = os.fstat(self.number)
        self.identity = (found.st_dev, found.st_ino)

    def __del__(self) -> None:
        if self.number >= 0:
            os.close(self.number)
