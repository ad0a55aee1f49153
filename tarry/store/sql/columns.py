"""The columns of a job in SQL databases: each has the name of its field.

But for the priority: indexes run upwards, and a higher priority is claimed first, so `claim_order` is its negative.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tarry.model.job import Job, State
from tarry.store.shared.state_codes import CODE, state_of

Row = tuple[Any, ...]
"""A row as a driver answers it."""

FIELDS = Job.__struct_fields__
STORED = tuple(field for field in FIELDS if field != "owner")
"""What an insert writes. A new job has no owner."""
CLAIMED = tuple(field for field in STORED if field not in ("state", "state_since", "keep_until"))
"""What a claim reads. It knows the other fields, since it sets them."""
COLUMN_OF = {field: field for field in FIELDS} | {"priority": "claim_order"}
RUNNING = State.RUNNING


def column_list(fields: Iterable[str] = FIELDS, expressions: Mapping[str, str] | None = None) -> str:
    """The columns of these fields, for a statement. expressions: by field, an expression in place of its column."""
    return ", ".join((COLUMN_OF | dict(expressions or {}))[field] for field in fields)


def stored_values(job: Job) -> tuple[Any, ...]:
    """The values of STORED."""
    # Written out, since every job needs it: three times as fast as by the names of the fields.
    return (
        job.id, job.task, job.body, job.queue, -job.priority, job.due, CODE[job.state], job.epoch, job.failures,
        job.crashes, job.state_since, job.keep_until, job.expires, job.key, job.note, job.key_ttl,
        job.key_held_until, job.lane, job.headers, job.progress, job.attempts,
    )  # fmt: skip


def stored_job(row: Sequence[Any]) -> Job:
    """The job of a row of FIELDS, in which the state is a code."""
    return Job(*row[:6], state_of(row[6]), *row[7:])  # type: ignore[call-arg]


def claimed_jobs(rows: Iterable[tuple[Any, ...]], owner: str, now: int) -> list[Job]:
    """The jobs of claimed rows, as `owner` runs them from `now` on, in the order to run them. A row has one value of
    the store's own, then those of CLAIMED."""
    # Written out like `stored_values`: twice as fast as slices.
    jobs = [
        Job(
            id, task, body, queue, priority, due, RUNNING, epoch, failures, crashes, owner, now, 0, expires, key, note,
            key_ttl, key_held_until, lane, headers, progress, attempts,
        )
        for _, id, task, body, queue, priority, due, epoch, failures, crashes, expires, key, note, key_ttl,
            key_held_until, lane, headers, progress, attempts in rows
    ]  # fmt: skip
    jobs.sort(key=lambda job: (-job.priority, job.due, job.id))
    return jobs
