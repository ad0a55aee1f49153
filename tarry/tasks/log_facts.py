"""Which job a log line is about, as `extra=` of tarry's own lines and for whatever a task logs while it runs."""

from typing import Any

from tarry.model.job import Job
from tarry.store import ids
from tarry.tasks.running import Batch, current

MOST_JOBS = 20
"""So many ids stand in a line of a batch."""


def about(job: Job) -> dict[str, Any]:
    """The `extra=` of a line about this job."""
    return {"tarry": _facts(job)}


def here() -> dict[str, Any] | None:
    """The job, task, queue and attempt that the calling code runs for; of a batch `jobs`, the first 20 ids. None: it
    runs for no job."""
    running = current.get()
    if running is None:
        return None
    if isinstance(running, Batch):
        jobs = ",".join(ids.text(member.job.id) for member in running.on[:MOST_JOBS])
        return {"jobs": jobs, "task": running.job.task, "queue": running.job.queue}
    return _facts(running.job)


def _facts(job: Job) -> dict[str, Any]:
    return {"job": ids.text(job.id), "task": job.task, "queue": job.queue, "attempt": job.attempt}
