"""The three logs of HTTP tasks: accepted jobs, attempts, and other errors.

`tarry replay` restores jobs that a store has lost from the first two.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from tarry.client.enqueue_listener import JobEvent
from tarry.client.task import Task
from tarry.model.duration import SECOND
from tarry.model.job import Job
from tarry.push.delivery.record import AttemptRecord
from tarry.push.journal.append_file import AppendFile
from tarry.push.journal.log_lines import ErrorLine, format_action, format_attempt, format_request, format_time
from tarry.tasks.log_facts import current_facts

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
