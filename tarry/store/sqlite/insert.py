"""Stores new jobs in the embedded store, within a transaction of the caller."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from tarry.model.job import Job, label_rows
from tarry.model.limit import Limit
from tarry.store.rules.history.journal import record_of_new
from tarry.store.sql.columns import stored_values
from tarry.store.sqlite import sql
from tarry.store.sqlite.limits import SqliteLimits, ready_lanes
from tarry.store.sqlite.link.connection import Statements
from tarry.store.sqlite.link.database import Database

T = TypeVar("T")


class SomeKnown(Exception):
    """Some jobs were there already. To be rolled back, and inserted again with `insert_any`."""


def assume_all_new(insert: Callable[[bool], T]) -> T:
    """The answer of `insert`, which is called with True first: it may hope that no job is there already."""
    # To look for each job first costs a tenth of its insert, and nearly always all are new.
    try:
        return insert(True)
    except SomeKnown:
        return insert(False)


def insert_unlimited(db: Database, job: Job, limits: Mapping[str, Limit]) -> bool:
    """Inserts a job that no key, label or limit concerns; False if one does, or the job exists."""
    record = record_of_new((job,))
    # Not inside a transaction that was left open.
    if job.key is not None or job.lane is not None or limits or not record or db.in_transaction:
        return False
    if label_rows((job,)):
        return False
    before = db.total_changes()
    db.execute(sql.INSERT_UNLIMITED, (*stored_values(job), record))
    return db.total_changes() > before


def insert_jobs(db: Database, jobs: Sequence[Job], hoping: bool) -> list[bytes]:
    """Stores jobs, and counts those that are new; answers the id under which each lives. hoping: SomeKnown if one is
    there already."""
    if not hoping or any(job.key is not None for job in jobs):
        return insert_any(db, jobs)
    SqliteLimits(db).add(ready_lanes(jobs))
    before = db.total_changes()
    db.executemany(sql.INSERT, [stored_values(job) for job in jobs])
    if db.total_changes() - before < len(jobs):
        raise SomeKnown
    count_new(db, jobs)
    return [job.id for job in jobs]


def insert_any(db: Statements, jobs: Sequence[Job]) -> list[bytes]:
    """Stores those jobs that are not there and whose key nobody holds, and counts them; answers the id under which each
    lives."""
    SqliteLimits(db).add(ready_lanes(jobs))
    new: dict[bytes, Job] = {}
    # A key may be held already, also by a job of this batch.
    stored_ids = [_insert_one(db, job, new) for job in jobs]
    count_new(db, list(new.values()))
    return stored_ids


def count_new(db: Statements, jobs: Sequence[Job]) -> None:
    """Adds new jobs to the journal, and their labels to the index."""
    for row in label_rows(jobs):
        db.execute(sql.LABEL, row)
    if record := record_of_new(jobs):
        db.execute(sql.TO_JOURNAL, (record,))


def _insert_one(db: Statements, job: Job, new: dict[bytes, Job]) -> bytes:
    # A repeated enqueue of a job that is there answers its own id, even if another job holds the key by now.
    if db.execute("SELECT 1 FROM tarry_job WHERE id = ?", (job.id,)).get:
        return job.id
    if job.key is not None:
        db.execute(sql.OUTLIVED, (job.state_since, job.task, job.key))
        holder = db.execute(sql.HOLDER, (job.task, job.key)).get
        if holder is not None:
            return bytes(holder)
    db.execute(sql.INSERT, stored_values(job))
    new[job.id] = job
    return job.id
