"""What is counted of new jobs and of changes, for the history of a store (`tarry.store.rules.history`).

`lifecycle` says for each change as what it counts, since only there it is known why a job ends. A change counts only if
the store makes it, and a new job only if the store did not have it; so a store keeps counts in the same transaction.
"""

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta

from tarry.model.change import CANCELLED, DEAD, DONE, EXPIRED, FAILED, PUT, Change
from tarry.model.duration import SECOND
from tarry.model.flow.node_ids import is_root
from tarry.model.flow.own_queues import counted_queue
from tarry.model.history.buckets import bucket_of
from tarry.model.job import Job, State
from tarry.model.moving import NEVER, is_parked

KINDS = {PUT: "put", DONE: "done", FAILED: "failed", DEAD: "dead", CANCELLED: "cancelled", EXPIRED: "expired"}
"""The names of what is counted. A job is `put` once. An attempt after which its job comes again counts as `failed`; one
that was the last, as `dead`. An attempt that is not counted (given back, put off, interrupted) counts as nothing."""

Fingerprint = Annotated[str, Meta(pattern="^[0-9a-f]{16}$", max_length=16)]
"""The id of a kind of errors, as `error_kind` makes it."""
MINUTE = 60 * SECOND
# Looked up once: access to an enum's members is slow.
RUNNING = State.RUNNING
NO_ATTEMPT = -1
"""In place of a bucket: no attempt ended."""

Count = tuple[int, str, str, int, int, int, int]
"""The start of the minute (seconds since the epoch), queue, task, one of KINDS, the buckets of the time waited and of
the time run, and the HTTP status that answered, 0: none."""


def count_new(jobs: Sequence[Job]) -> tuple[list[Count], list[int]]:
    """What new jobs count as: different counts, and for each job the place of its count among them, from 1; 0: it
    counts as nothing."""
    places: dict[Count, int] = {}
    known: dict[tuple[int, str, str], int] = {}
    which: list[int] = []
    for job in jobs:
        # A job that only comes from another store was counted there. A root is no call of a task.
        if (job.due == NEVER and is_parked(job)) or (job.state is State.BLOCKED and is_root(job.id)):
            which.append(0)
            continue
        facts = job.state_since, job.queue, job.task
        place = known.get(facts)
        if place is None:
            place = known[facts] = places.setdefault(count_of_new(job), len(places) + 1)
        which.append(place)
    return list(places), which


def count_of_new(job: Job) -> Count:
    """What a new job counts as that does not come from another store."""
    return job.state_since // MINUTE * 60, counted_queue(job.queue), job.task, PUT, NO_ATTEMPT, NO_ATTEMPT, 0


def count_changes(changes: Sequence[Change]) -> tuple[list[Count], list[int]]:
    """What changes count as: different counts, and for each change the place of its count among them, from 1; 0: it
    counts as nothing."""
    places: dict[Count, int] = {}
    # Jobs of one batch have most of this in common. So the arithmetic is done only where they differ: every attempt of
    # a worker comes by here.
    known: dict[tuple[object, ...], int] = {}
    which: list[int] = []
    for change in changes:
        job = change.job
        if job is None:
            which.append(0)
            continue
        facts = (
            change.counts,
            job.task,
            job.queue,
            job.due,
            job.state_since,
            change.state_since,
            change.status,
            job.state,
        )
        place = known.get(facts)
        if place is None:
            place = known[facts] = places.setdefault(count_of_change(change, job), len(places) + 1)
        which.append(place)
    return list(places), which


def count_of_change(change: Change, job: Job) -> Count:
    """What a change counts as. job: as the change has it."""
    minute, began = change.state_since // MINUTE * 60, job.state_since
    if job.state is not RUNNING or change.counts == EXPIRED:
        return minute, counted_queue(job.queue), job.task, change.counts, NO_ATTEMPT, NO_ATTEMPT, change.status
    waited, ran = bucket_of(began - job.due), bucket_of(change.state_since - began)
    return minute, counted_queue(job.queue), job.task, change.counts, waited, ran, change.status
