"""The job that a log line is about: for tarry's own lines, and for lines that a task logs while it runs."""

from typing import Any

from tarry.model.job import Job
from tarry.store.rules import ids
from tarry.tasks.running import Batch, current

MOST_JOBS = 20
"""How many ids a line of a batch has."""


def about(job: Job) -> dict[str, Any]:
    """The `extra=` of a log line about this job."""
    return {"tarry": _facts(job)}


def current_facts() -> dict[str, Any] | None:
    """The job, task, queue and attempt for which the calling code runs; for a batch, the first 20 ids as `jobs`. None
    if it runs for no job."""
    running = current.get()
    if running is None:
        return None
    if isinstance(running, Batch):
        jobs = ",".join(ids.text(member.job.id) for member in running.called[:MOST_JOBS])
        return {"jobs": jobs, "task": running.job.task, "queue": running.job.queue}
    return _facts(running.job)


def _facts(job: Job) -> dict[str, Any]:
    return {"job": ids.text(job.id), "task": job.task, "queue": job.queue, "attempt": job.attempt}
