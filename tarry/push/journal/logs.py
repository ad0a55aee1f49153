"""The three logs of HTTP tasks: accepted jobs, attempts, and other errors.

`tarry replay` restores jobs that a store has lost from the first two.

A file to which several processes append lines, and which may be moved, deleted or rotated at any time.
"""

import contextlib
import errno
import logging
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from tarry import files
from tarry.client.enqueue_listener import JobEvent
from tarry.client.tasks.task import Task
from tarry.model.duration import SECOND
from tarry.model.job import Job
from tarry.push.delivery.delivery_record import AttemptRecord
from tarry.push.journal.log_lines import ErrorLine, format_action, format_attempt, format_request, format_time
from tarry.tasks.log_facts import current_facts

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


REQUESTS, ATTEMPTS, ERRORS = "request.log", "notify.log", "error.log"
WRITE_SIZE = 256 * 1024
"""Bytes of one write; a longer line is written alone."""

_OF = "tarry.push"  # The logger whose warnings and errors are written to error.log.


class Logs:
    """The logs in one directory. Other processes may write to them at the same time."""

    def __init__(self, directory: Path) -> None:
        self.requests, self.attempts, self.errors = (
            AppendFile(directory / name) for name in (REQUESTS, ATTEMPTS, ERRORS)
        )
        self._handler = _ErrorLogHandler(self.errors)

    def attach(self) -> None:
        """Starts writing warnings of this process to error.log."""
        logging.getLogger(_OF).addHandler(self._handler)

    def detach(self) -> None:
        """Stops that."""
        logging.getLogger(_OF).removeHandler(self._handler)

    def log_attempt(self, job: Job, record: AttemptRecord, ended: bool) -> None:
        """Logs an attempt. ended: no other follows, as far as this attempt can tell."""
        self.attempts.write(format_attempt(job, record, ended))

    def request_log(self, tasks: Mapping[str, Task[Any, Any]]) -> "RequestLog":
        """The writer of request.log. tasks: the known tasks, by name."""
        return RequestLog(self.requests, tasks)

    def reopen(self) -> None:
        """Reopens the files, which may have been rotated. Writing checks for that too."""
        for file in (self.requests, self.attempts, self.errors):
            file.reopen()


class RequestLog:
    """Logs what is accepted for HTTP tasks, and what people do to their jobs."""

    def __init__(self, file: AppendFile, tasks: Mapping[str, Task[Any, Any]]) -> None:
        self._file, self._tasks = file, tasks

    def on_accepted(self, jobs: Sequence[Job], changed: bool = False) -> None:
        """See `EnqueueListener`."""
        tasks = self._tasks
        wanted = [job for job in jobs if (task := tasks.get(job.task)) is not None and task.runner is not None]
        self._write(wanted, format_request, "changed" if changed else "accepted")

    def on_manual_change(self, jobs: Sequence[Job], what: JobEvent) -> None:
        """See `EnqueueListener`."""
        # Unknown tasks too: a process that cancels a job need not know its task.
        tasks = self._tasks
        wanted = [job for job in jobs if (task := tasks.get(job.task)) is None or task.runner is not None]
        self._write(wanted, format_action, what)

    def _write(self, jobs: Sequence[Job], line: Callable[[Job, JobEvent], bytes], event: JobEvent) -> None:
        if len(jobs) == 1:
            self._file.write(line(jobs[0], event))
            return
        # In pieces: the lines of a large enqueue may take a lot of memory.
        waiting: list[bytes] = []
        size = 0
        for job in jobs:
            waiting.append(line(job, event))
            size += len(waiting[-1])
            if size >= WRITE_SIZE:
                self._file.write(b"".join(waiting))
                waiting, size = [], 0
        if waiting:
            self._file.write(b"".join(waiting))


class _ErrorLogHandler(logging.Handler):
    """Writes log records as lines of error.log."""

    def __init__(self, file: AppendFile) -> None:
        super().__init__(logging.WARNING)
        self._file = file
        self._texts = logging.Formatter()

    def emit(self, record: logging.LogRecord) -> None:
        """Writes one line. A record that cannot be formatted is reported on stderr, as by every handler."""
        try:
            line = msgspec.json.encode(self._error_line(record)) + b"\n"
        except Exception:
            self.handleError(record)
            return
        self._file.write(line)

    def _error_line(self, record: logging.LogRecord) -> ErrorLine:
        facts = getattr(record, "tarry", None) or current_facts() or {}
        known = {name: facts[name] for name in ("job", "task", "queue", "attempt") if name in facts}
        trace = self._texts.formatException(record.exc_info) if record.exc_info else ""
        return ErrorLine(
            format_time(int(record.created * SECOND)),
            **known,
            level=record.levelname,
            message=_escape_surrogates(record.getMessage()),
            traceback=_escape_surrogates(trace),
        )


def _escape_surrogates(text: str) -> str:
    # JSON cannot hold lone surrogates, which texts from the system may have.
    return text.encode("utf-8", "backslashreplace").decode()
