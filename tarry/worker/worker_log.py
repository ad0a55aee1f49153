"""Logs and counts what happened to jobs. The only place that formats such lines."""

import logging
import time

from tarry.model.attempts import read_note
from tarry.model.change import Change
from tarry.model.duration import format_duration
from tarry.model.job import Job, State
from tarry.model.outcome import Outcome, Raised, Returned, TimedOut, Unknown
from tarry.store.rules import ids
from tarry.tasks.log_facts import about

log = logging.getLogger("tarry.worker")
# A logger of its own, so that apps which report failures in another way can turn it off.
failures = logging.getLogger("tarry.worker.failures")

# The jobs of such a task come back again and again.
LOG_UNKNOWN_EVERY = 10.0


class EventLog:
    """Of one worker."""

    def __init__(self) -> None:
        self.processed = 0
        """Jobs that ended here."""
        self.failed = 0
        """Attempts that failed here, also the last ones of jobs that are dead."""
        self._unknown: dict[str, float] = {}

    def record_end(self, job: Job, outcome: Outcome, change: Change, now: int) -> None:
        """Records that an attempt ended, and that the store made this change."""
        if type(outcome) is Returned:
            self.processed += 1
            return
        if change.to is None or change.to.finished:
            self.processed += 1
        if isinstance(outcome, Raised | TimedOut):
            self.failed += 1
            self._failure(job, change, now)
        elif isinstance(outcome, Unknown):
            self._unknown_task(job, outcome.key)

    def _failure(self, job: Job, change: Change, now: int) -> None:
        dead = change.to in (State.DEAD, None)
        level = logging.ERROR if dead else logging.WARNING
        if failures.isEnabledFor(level):
            note = read_note(change.note)
            pause = max((change.due or now) - now, 0)
            then = "dead" if dead else f"again in {format_duration(pause)}" if pause else "again at once"
            failures.log(
                level,
                "%s %s attempt %d failed, %s: %s: %s",
                job.task, ids.text(job.id), job.attempt, then, note.type, note.message,
                extra=about(job),
            )  # fmt: skip

    def _unknown_task(self, job: Job, key: str) -> None:
        now = time.monotonic()
        if now - self._unknown.get(job.task, -LOG_UNKNOWN_EVERY) >= LOG_UNKNOWN_EVERY:
            self._unknown[job.task] = now
            if key:
                text = "%s %s and others in queue %s are sealed with key %s and wait for a worker that has it"
                log.warning(text, job.task, ids.text(job.id), job.queue, key, extra=about(job))
                return
            log.warning(
                "no task %s in this app: its jobs wait for a worker that knows it (%s and others in queue %s); "
                "see `tarry check`",
                job.task, ids.text(job.id), job.queue,
                extra=about(job),
            )  # fmt: skip
