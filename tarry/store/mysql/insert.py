"""Inserting: in one round trip while all is new; with a look at what is there where an id or a key may be."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from tarry.model.job import Job, State
from tarry.model.lifecycle import is_late
from tarry.model.limit import Limit
from tarry.store.base import band
from tarry.store.mysql import sql
from tarry.store.mysql.open_lanes import opening
from tarry.store.mysql.sql import among, digest, filled, listed, raw
from tarry.store.shared.lanes import laned

Rows = Sequence[tuple[Any, ...]]
Run = Callable[[str], Rows]
"""Runs one statement; what it found."""
_CLAIM_KEYS = " ON DUPLICATE KEY UPDATE digest = digest"


def placed(jobs: Sequence[Job], limits: dict[str, Limit]) -> Sequence[Job]:
    """New jobs, each with the lane that it will wait in."""
    return [replace(job, lane=laned(job.task, job.lane, limits)) for job in jobs] if limits else jobs


def apart(jobs: Sequence[Job]) -> bool:
    """No two have an id or a key in common."""
    keys = [(job.task, job.key) for job in jobs if job.key is not None]
    return len({job.id for job in jobs}) == len(jobs) and len(set(keys)) == len(keys)


def statements(jobs: Sequence[Job], settings: int) -> Iterator[str]:
    """What stores them, if no id and no key is there; fails with Duplicate if one is. settings: the number of those by
    which their lanes were chosen."""
    jobs = sorted(jobs, key=lambda job: job.id)
    yield from filled(sql.INSERT, (sql.row(job, settings) for job in jobs))
    holding = sorted((digest(job.task, job.key), job) for job in jobs if job.key is not None and job.holds)
    yield from filled(sql.KEYS, (f"({raw(key)},{raw(job.id)},{job.holds})" for key, job in holding))
    yield from _places(jobs)


def _places(jobs: Sequence[Job]) -> Iterator[str]:
    ready = [job for job in jobs if job.state is State.READY]
    halves = {
        (queue, late): f"{sql.text(queue)},{late:d}" for queue in {j.queue for j in ready} for late in (True, False)
    }
    yield from filled(
        sql.READY,
        (
            f"({halves[j.queue, is_late(j.due, j.since)]},{-j.priority},{j.due},{raw(j.id)})"
            for j in ready
            if j.lane is None
        ),
    )
    yield from filled(sql.LANED, (_in_lane(job, job.lane) for job in ready if job.lane is not None))
    yield from opening(ready)
    yield from filled(sql.SCHEDULED, (f"({j.due},{raw(j.id)})" for j in jobs if j.state is State.SCHEDULED))


def _in_lane(job: Job, lane: str) -> str:
    place = f"{sql.text(job.queue)},{-band(job.priority)},{sql.text(job.task)},{sql.text(lane)}"
    return f"({place},{-job.priority},{job.due},{raw(job.id)},{is_late(job.due, job.since):d})"


def one_by_one(run: Run, jobs: Sequence[Job], settings: int) -> list[bytes]:
    """Stores those that are new and whose key nobody holds; answers under which id each call lives."""
    known = {id for (id,) in run(f"SELECT id FROM tarry_job WHERE id IN ({listed({job.id for job in jobs})})")}
    lives: dict[bytes, bytes] = {}
    holders = _holders(run, [job for job in jobs if job.id not in known])
    new: dict[bytes, Job] = {}
    for job in jobs:
        if job.id in known or job.id in lives:
            lives.setdefault(job.id, job.id)
            continue
        holder = _holder(run, job, holders)
        lives[job.id] = job.id if holder is None else holder
        if holder is None:
            new[job.id] = job
    _store(run, list(new.values()), settings)
    return [lives[job.id] for job in jobs]


def _holders(run: Run, jobs: Sequence[Job]) -> dict[bytes, tuple[bytes, int]]:
    """Who holds the keys of these jobs. A key that nobody holds is taken for the first of them; so who comes at the
    same moment waits for us, and then finds it held."""
    keyed: dict[bytes, Job] = {}
    for job in jobs:
        if job.key is not None:
            keyed.setdefault(digest(job.task, job.key), job)
    if not keyed:
        return {}
    wanted = ((key, job) for key, job in sorted(keyed.items(), key=lambda item: item[0]) if job.holds)
    for statement in filled(sql.KEYS, (f"({raw(k)},{raw(job.id)},{job.holds})" for k, job in wanted), _CLAIM_KEYS):
        run(statement)
    rows = run(sql.LOCK_KEYS.format(among(keyed)))
    return {key: (id, holds) for key, id, holds in rows}


def _holder(run: Run, job: Job, holders: dict[bytes, tuple[bytes, int]]) -> bytes | None:
    """Who holds the job's key, at its beginning; one whose time with it is over loses it here."""
    if job.key is None:
        return None
    key = digest(job.task, job.key)
    id, holds = holders.get(key, (job.id, 0))
    if id == job.id:
        return None
    if holds > job.since:
        return id
    run(f"UPDATE tarry_job SET holds = 0 WHERE id = {raw(id)}")
    if job.holds:
        run(f"UPDATE tarry_key SET id = {raw(job.id)}, holds = {job.holds} WHERE digest = {raw(key)}")
        holders[key] = (job.id, job.holds)
    else:
        run(f"DELETE FROM tarry_key WHERE digest = {raw(key)}")
        del holders[key]
    return None


def _store(run: Run, jobs: Sequence[Job], settings: int) -> None:
    """Their keys are theirs already."""
    for statement in (*filled(sql.INSERT, (sql.row(job, settings) for job in jobs)), *_places(jobs)):
        run(statement)
