"""A file that several processes append lines to, and that may be moved away, deleted or rotated at any time."""

import contextlib
import errno
import logging
import math
import os
import time
from pathlib import Path

from tarry import files

log = logging.getLogger("tarry.logs")
"""Not below `tarry.push`, whose warnings go into such a file themselves."""

CHECK_INTERVAL = 0.05
"""Seconds between two looks whether the path is another file by now: a third of what a line costs."""
REPORT_INTERVAL = 60.0


class AppendFile:
    """Each `write` is one call of the system, so that nobody's line is torn by another's, on a local disk.

    Nothing that the disk does is raised: what could not be written is counted, and told once a minute.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lost = 0
        """Lines that could not be written by this process, in all."""
        self._descriptor: _Descriptor | None = None
        self._check_at = -math.inf
        self._torn = False
        self._unreported, self._reported_at = 0, -math.inf

    def write(self, lines: bytes) -> None:
        """Whole lines, each with its end."""
        try:
            written = self._append(b"\n" + lines if self._torn else lines)
        except OSError as error:
            self._count_lost(lines, error.strerror or type(error).__name__)
            return
        if written:
            # A part of them: the disk is full.
            self._torn = True
            self._count_lost(lines[written:], os.strerror(errno.ENOSPC))
        elif self._torn or self._unreported:
            self._report_recovery()

    def reopen(self) -> None:
        """Looks now whether the path is another file, and lets go of one that was moved away."""
        self._check_at = -math.inf
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                self._current()

    def _append(self, lines: bytes) -> int:
        """0, or how much was written if that was not all."""
        # Held by name, so that it is not closed meanwhile: another thread may open anew, and numbers are used again.
        current = self._current()
        written = os.write(current.number, lines)
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
        self.path.parent.mkdir(parents=True, exist_ok=True)
        opened = self._descriptor = _Descriptor(self.path)
        return opened

    def _count_lost(self, lines: bytes, why: str) -> None:
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
    """Closed when nobody holds it any more."""

    def __init__(self, path: Path) -> None:
        self.number = -1
        self.number = files.opened(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        found = os.fstat(self.number)
        self.identity = (found.st_dev, found.st_ino)

    def __del__(self) -> None:
        if self.number >= 0:
            os.close(self.number)
