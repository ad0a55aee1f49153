"""Inserts jobs: in one round trip if all ids and keys are new, else with a look at those that are there."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tarry.model.job import Job, State, label_rows
from tarry.model.lifecycle import is_late
from tarry.store.mysql import sql
from tarry.store.mysql.history import to_journal
from tarry.store.mysql.link.literals import bounded_statements, id_list, id_table, raw, text
from tarry.store.mysql.open_lanes import insert_statements
from tarry.store.mysql.sql import digest
from tarry.store.rules.base import band
from tarry.store.rules.history.journal import record_of_new

SqlRows = Sequence[tuple[Any, ...]]
RunSql = Callable[[str], SqlRows]
"""Runs one statement; answers the rows that it found."""
# Changes nothing where the key is there, but locks its row.
_CLAIM_KEYS = " ON DUPLICATE KEY UPDATE digest = digest"


def apart(jobs: Sequence[Job]) -> bool:
    """Whether no two jobs have an id or a key in common."""
    keys = [(job.task, job.key) for job in jobs if job.key is not None]
    return len({job.id for job in jobs}) == len(jobs) and len(set(keys)) == len(keys)


def statements(jobs: Sequence[Job], settings: int) -> Iterator[str]:
    """The statements that store jobs; they fail with DuplicateKey if an id or a key is there already. settings: the
    number of the settings by which the lanes were chosen."""
    # In sorted order: concurrent inserts lock ids and keys in the same order.
    jobs = sorted(jobs, key=lambda job: job.id)
    yield from bounded_statements(sql.INSERT, (sql.row(job, settings) for job in jobs))
    holding = sorted((digest(job.task, job.key), job) for job in jobs if job.key is not None and job.key_held_until)
    yield from bounded_statements(
        sql.KEYS, (f"({raw(key)},{raw(job.id)},{job.key_held_until})" for key, job in holding)
    )
    yield from _places(jobs)
    yield from _labels(jobs)
    yield from to_journal(record_of_new(jobs))


def _labels(jobs: Sequence[Job]) -> Iterator[str]:
    rows = (f"({text(name)},{text(value)},{raw(id)})" for name, value, id in label_rows(jobs))
    return bounded_statements(sql.LABELS, rows)


def _places(jobs: Sequence[Job]) -> Iterator[str]:
    ready = [job for job in jobs if job.state is State.READY]
    halves = {(queue, late): f"{text(queue)},{late:d}" for queue in {j.queue for j in ready} for late in (True, False)}
    yield from bounded_statements(
        sql.READY,
        (
            f"({halves[j.queue, is_late(j.due, j.state_since)]},{-j.priority},{j.due},{raw(j.id)})"
            for j in ready
            if j.lane is None
        ),
    )
    yield from bounded_statements(sql.LANED, (_in_lane(job, job.lane) for job in ready if job.lane is not None))
    yield from insert_statements(ready)
    yield from bounded_statements(sql.SCHEDULED, (f"({j.due},{raw(j.id)})" for j in jobs if j.state is State.SCHEDULED))


def _in_lane(job: Job, lane: str) -> str:
    place = f"{text(job.queue)},{-band(job.priority)},{text(job.task)},{text(lane)}"
    return f"({place},{-job.priority},{job.due},{raw(job.id)},{is_late(job.due, job.state_since):d})"


def one_by_one(run: RunSql, jobs: Sequence[Job], settings: int) -> list[bytes]:
    """Stores the jobs that are new and whose key nobody holds; answers for each job the id under which it lives."""
    known = {id for (id,) in run(f"SELECT id FROM tarry_job WHERE id IN ({id_list({job.id for job in jobs})})")}
    stored_ids: dict[bytes, bytes] = {}
    holders = _holders(run, [job for job in jobs if job.id not in known])
    new: dict[bytes, Job] = {}
    for job in jobs:
        # A repeated enqueue: the job that is there stays as it is.
        if job.id in known or job.id in stored_ids:
            stored_ids.setdefault(job.id, job.id)
            continue
        holder = _holder(run, job, holders)
        stored_ids[job.id] = job.id if holder is None else holder
        if holder is None:
            new[job.id] = job
    _store(run, list(new.values()), settings)
    return [stored_ids[job.id] for job in jobs]


def _holders(run: RunSql, jobs: Sequence[Job]) -> dict[bytes, tuple[bytes, int]]:
    """The holder and the end of its time for each key of these jobs; takes free keys for the first job of each."""
    # A key that is taken before the look makes a concurrent insert wait for this transaction, and then find it held.
    keyed: dict[bytes, Job] = {}
    for job in jobs:
        if job.key is not None:
            keyed.setdefault(digest(job.task, job.key), job)
    if not keyed:
        return {}
    wanted = ((key, job) for key, job in sorted(keyed.items(), key=lambda item: item[0]) if job.key_held_until)
    for statement in bounded_statements(
        sql.KEYS, (f"({raw(k)},{raw(job.id)},{job.key_held_until})" for k, job in wanted), _CLAIM_KEYS
    ):
        run(statement)
    rows = run(sql.LOCK_KEYS.format(id_table(keyed)))
    return {key: (id, key_held_until) for key, id, key_held_until in rows}


def _holder(run: RunSql, job: Job, holders: dict[bytes, tuple[bytes, int]]) -> bytes | None:
    """The job that holds the key when this job begins. A holder whose time is over loses the key here."""
    if job.key is None:
        return None
    key = digest(job.task, job.key)
    id, key_held_until = holders.get(key, (job.id, 0))
    if id == job.id:
        return None
    if key_held_until > job.state_since:
        return id
    run(f"UPDATE tarry_job SET key_held_until = 0 WHERE id = {raw(id)}")
    if job.key_held_until:
        run(f"UPDATE tarry_key SET id = {raw(job.id)}, key_held_until = {job.key_held_until} WHERE digest = {raw(key)}")
        holders[key] = (job.id, job.key_held_until)
    else:
        run(f"DELETE FROM tarry_key WHERE digest = {raw(key)}")
        del holders[key]
    return None


def _store(run: RunSql, jobs: Sequence[Job], settings: int) -> None:
    """Stores jobs whose keys are taken already."""
    rows = bounded_statements(sql.INSERT, (sql.row(job, settings) for job in jobs))
    for statement in (*rows, *_places(jobs), *_labels(jobs), *to_journal(record_of_new(jobs))):
        run(statement)
