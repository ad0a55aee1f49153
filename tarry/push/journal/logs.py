"""The three logs of HTTP tasks: what was accepted, each attempt, and what went wrong beside.

From the first two `tarry replay` puts back what a store has lost.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from tarry.client.task import Task
from tarry.client.witness import Event
from tarry.model.duration import SECOND
from tarry.model.job import Job
from tarry.push.delivery.record import Record
from tarry.push.journal.append_file import Appended
from tarry.push.journal.log_lines import Trouble, accepted, attempted, done_by_hand, stamp
from tarry.tasks.log_facts import here

REQUESTS, ATTEMPTS, TROUBLES = "request.log", "notify.log", "error.log"
WRITTEN_AT_ONCE = 256 * 1024
"""Bytes, or one line."""

_OF = "tarry.push"
"""The logger whose warnings and errors stand in error.log."""


class Logs:
    """In one directory, which other processes of any kind write to at the same time."""

    def __init__(self, directory: Path) -> None:
        self.requests, self.attempts, self.troubles = (
            Appended(directory / name) for name in (REQUESTS, ATTEMPTS, TROUBLES)
        )
        self._handler = _Troubles(self.troubles)

    def listen(self) -> None:
        """From here on error.log has what is logged in this process."""
        logging.getLogger(_OF).addHandler(self._handler)

    def deaf(self) -> None:
        """No more."""
        logging.getLogger(_OF).removeHandler(self._handler)

    def attempted(self, job: Job, record: Record, ended: bool) -> None:
        """One attempt is over. ended: no other follows, as far as this one can tell."""
        self.attempts.write(attempted(job, record, ended))

    def witness(self, tasks: Mapping[str, Task[Any, Any]]) -> "Requests":
        """Who writes request.log. tasks: those that are known, by name."""
        return Requests(self.requests, tasks)

    def reopen(self) -> None:
        """They were rotated, perhaps. They look by themselves too, whenever something is written."""
        for file in (self.requests, self.attempts, self.troubles):
            file.reopen()


class Requests:
    """Writes down what is accepted for HTTP tasks, and what people do to their jobs."""

    def __init__(self, file: Appended, tasks: Mapping[str, Task[Any, Any]]) -> None:
        self._file, self._tasks = file, tasks

    def accepted(self, jobs: Sequence[Job], changed: bool = False) -> None:
        """See `Witness`."""
        tasks = self._tasks
        wanted = [job for job in jobs if (task := tasks.get(job.task)) is not None and task.steered]
        self._write(wanted, accepted, "changed" if changed else "accepted")

    def done_by_hand(self, jobs: Sequence[Job], what: Event) -> None:
        """See `Witness`. Also of tasks that are not known here: who cancels a job need not know."""
        tasks = self._tasks
        wanted = [job for job in jobs if (task := tasks.get(job.task)) is None or task.steered]
        self._write(wanted, done_by_hand, what)

    def _write(self, jobs: Sequence[Job], line: Callable[[Job, Event], bytes], event: Event) -> None:
        if len(jobs) == 1:
            self._file.write(line(jobs[0], event))
            return
        waiting: list[bytes] = []
        size = 0
        for job in jobs:
            waiting.append(line(job, event))
            size += len(waiting[-1])
            if size >= WRITTEN_AT_ONCE:
                self._file.write(b"".join(waiting))
                waiting, size = [], 0
        if waiting:
            self._file.write(b"".join(waiting))


class _Troubles(logging.Handler):
    """From log records to lines of error.log."""

    def __init__(self, file: Appended) -> None:
        super().__init__(logging.WARNING)
        self._file = file
        self._texts = logging.Formatter()

    def emit(self, record: logging.LogRecord) -> None:
        """One line; what cannot be formatted is told on stderr, as by every handler."""
        try:
            line = msgspec.json.encode(self._trouble(record)) + b"\n"
        except Exception:
            self.handleError(record)
            return
        self._file.write(line)

    def _trouble(self, record: logging.LogRecord) -> Trouble:
        facts = getattr(record, "tarry", None) or here() or {}
        known = {name: facts[name] for name in ("job", "task", "queue", "attempt") if name in facts}
        trace = self._texts.formatException(record.exc_info) if record.exc_info else ""
        return Trouble(
            stamp(int(record.created * SECOND)),
            **known,
            level=record.levelname,
            message=_tame(record.getMessage()),
            traceback=_tame(trace),
        )


def _tame(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()
