"""A listener that is called when a client has stored new jobs, or has changed jobs because a person asked for it."""

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

from tarry.errors import PartlyUnavailable
from tarry.model.job import Job

JobEvent = Literal["accepted", "changed", "cancelled", "deleted", "retried", "moved"]


class EnqueueListener(Protocol):
    """Called after the store has the jobs and before the caller gets its answer. Must be quick, and must not raise."""

    def on_accepted(self, jobs: Sequence[Job], changed: bool = False) -> None:
        """These jobs are stored. changed: they were stored before, and an enqueue replaced or postponed their call."""

    def on_manual_change(self, jobs: Sequence[Job], what: JobEvent) -> None:
        """These jobs were `cancelled`, `deleted`, `retried` or `moved`."""


def insert_and_notify(
    insert: Callable[[Sequence[Job]], list[bytes]], listener: EnqueueListener, jobs: Sequence[Job]
) -> list[bytes]:
    """Calls `insert`, and tells the listener which jobs are new in the store."""
    try:
        stored = insert(jobs)
    except PartlyUnavailable as error:
        # Some shards answered: their jobs are stored, so the listener must hear of them despite the error.
        answers = zip(range(len(jobs)), jobs, error.answer, strict=True)
        listener.on_accepted([job for at, job, id in answers if at not in error.missing and id == job.id])
        raise
    listener.on_accepted([job for job, id in zip(jobs, stored, strict=True) if id == job.id])
    return stored
