"""What happened to jobs, told to the log: one place, so that no rule and no runner formats lines."""

import json
import logging
import time
from typing import Any

from tarry.model.change import Change
from tarry.model.duration import spoken
from tarry.model.job import Job, State
from tarry.model.outcome import Outcome, Raised, Returned, TimedOut, Unknown
from tarry.store import ids
from tarry.tasks.log_facts import about

log = logging.getLogger("tarry.worker")
failures = logging.getLogger("tarry.worker.failures")
"""Of its own, for those who hear of failures otherwise and do not want to hear of them twice."""

UNKNOWN_TOLD_EVERY = 10.0


class Events:
    """One worker's teller."""

    def __init__(self) -> None:
        self.processed = 0
        """Jobs that ended here."""
        self.failed = 0
        """Attempts that failed here."""
        self._unknown: dict[str, float] = {}

    def ended(self, job: Job, outcome: Outcome, change: Change, now: int) -> None:
        """An attempt ended so, and the change that follows from it was made."""
        if type(outcome) is Returned:
            self.processed += 1
            return
        if change.to is None or change.to.finished:
            self.processed += 1
        if isinstance(outcome, Raised | TimedOut):
            self.failed += 1
            self._failure(job, change, now)
        elif isinstance(outcome, Unknown):
            self._unknown_task(job)

    def _failure(self, job: Job, change: Change, now: int) -> None:
        dead = change.to in (State.DEAD, None)
        level = logging.ERROR if dead else logging.WARNING
        if failures.isEnabledFor(level):
            told: dict[str, Any] = json.loads(change.note or b"{}")
            pause = max((change.due or now) - now, 0)
            then = "dead" if dead else f"again in {spoken(pause)}" if pause else "again at once"
            failures.log(
                level,
                "%s %s attempt %d failed, %s: %s: %s",
                job.task, ids.text(job.id), job.attempt, then, told.get("type"), told.get("message"),
                extra=about(job),
            )  # fmt: skip

    def _unknown_task(self, job: Job) -> None:
        now = time.monotonic()
        if now - self._unknown.get(job.task, -UNKNOWN_TOLD_EVERY) >= UNKNOWN_TOLD_EVERY:
            self._unknown[job.task] = now
            log.warning(
                "no task %s in this app: its jobs wait for a worker that knows it (%s and others in queue %s); "
                "see `tarry check`",
                job.task, ids.text(job.id), job.queue,
                extra=about(job),
            )  # fmt: skip
