"""Reading for people and rescuers."""

from collections.abc import Collection, Sequence
from typing import Any

from tarry.model.job import Job
from tarry.store.base import Backlog, Query, Tally
from tarry.store.mysql import sql
from tarry.store.mysql.link import COMMIT, Link
from tarry.store.mysql.sql import CODE, STATES, listed, raw, text
from tarry.store.mysql.steps import Walk, walked
from tarry.store.shared.prefix import beyond

_BY_ID = "FORCE INDEX (PRIMARY)"
_TALLY = f"""SELECT j.queue, j.task, j.state, COUNT(*), MIN(j.due), SUM({sql.SIZE.format("j")}) FROM tarry_job j
    GROUP BY j.queue, j.task, j.state"""
_LEAVING = "SELECT id FROM tarry_finished WHERE until >= {} AND until < {} ORDER BY until, id LIMIT {}"


def get(link: Link, ids: Sequence[bytes]) -> list[Job | None]:
    """As `Store.get`."""
    found: dict[bytes, Job] = {}
    unique = sorted(set(ids))
    for start in range(0, len(unique), 1000):
        where = f"j.id IN ({listed(unique[start : start + 1000])})"
        found |= {row[0]: sql.job(row) for row in link.rows(sql.WHOLE.format(hint=_BY_ID, where=where))}
    return [found.get(id) for id in ids]


def find(link: Link, query: Query) -> list[Job]:
    """As `Store.find`."""
    where = [f"j.id > {raw(query.after)}"]
    if query.states:
        where.append(f"j.state IN ({', '.join(str(CODE[state]) for state in query.states)})")
    for column, value in (("queue", query.queue), ("task", query.task), ("job_key", query.key)):
        if value is not None:
            where.append(f"j.{column} = {text(value)}")
    if query.before is not None:
        where.append(f"j.since < {query.before}")
    statement = sql.WHOLE.format(hint=_BY_ID, where=" AND ".join(where))
    return [sql.job(row) for row in link.rows(f"{statement} LIMIT {max(0, query.limit)}")]


def counts(link: Link) -> list[Tally]:
    """As `Store.counts`."""
    rows = link.rows(_TALLY)
    return [
        Tally(queue.decode(), task.decode(), STATES[state], int(count), int(oldest), int(size))
        for queue, task, state, count, oldest, size in rows
    ]


def queues(link: Link) -> dict[str, bool]:
    """As `Store.queues`."""
    walks = [Walk(table, "queue", "1", 10**6) for table in ("tarry_ready", "tarry_laned")]
    found = {queue.decode(): False for queues in walked(link, walks) for queue in queues}
    return found | {queue.decode(): True for (queue,) in link.rows("SELECT queue FROM tarry_paused")}


def backlog(link: Link, queues_: Collection[str] | None, now: int, most: int) -> Backlog:
    """As `Store.backlog`."""
    known = queues(link)
    paused = {queue for queue, still in known.items() if still}
    due = f"SELECT due, id FROM tarry_scheduled WHERE due <= {now} ORDER BY due, id LIMIT {most}"
    scheduled = link.rows(f"SELECT j.queue, d.due FROM ({due}) d STRAIGHT_JOIN tarry_job j ON j.id = d.id")
    found = [(queue.decode(), int(due)) for queue, due in scheduled]
    dues = [due for queue, due in found if queue not in paused and (queues_ is None or queue in queues_)]
    for queue in known.keys() - paused if queues_ is None else known.keys() & set(queues_) - paused:
        if len(dues) < most:
            dues += _ready(link, queue, most - len(dues))
    return Backlog(len(dues), min(dues, default=now))


def _ready(link: Link, queue: str, most: int) -> list[int]:
    """When up to so many of the ready jobs of a queue were due: late ones first, since they tend to be the oldest."""
    where = f"FORCE INDEX (PRIMARY) WHERE queue = {text(queue)}"
    lines = f"tarry_ready {where} AND late = 1", f"tarry_ready {where} AND late = 0", f"tarry_laned {where}"
    answers = link.run(*(f"SELECT due FROM {line} LIMIT {most}" for line in lines))
    return [int(due) for answer in answers for (due,) in answer.rows][:most]


def held_by(link: Link, owner: str, limit: int) -> list[Job]:
    """Running jobs of that owner."""
    return _running(link, f"owner = {text(owner)}", limit)


def owned(link: Link, owner: str, ids: Sequence[bytes]) -> list[tuple[bytes, int]]:
    """Those of these jobs that the owner runs, with their epochs."""
    where = f"id IN ({listed(ids)}) AND owner = {text(owner)}"
    return [(id, epoch) for id, epoch in link.rows(f"SELECT id, epoch FROM tarry_running {_BY_ID} WHERE {where}")]


def overdue(link: Link, now: int, gone: Sequence[str], limit: int) -> list[Job]:
    """Running jobs whose owner's lease ran out, or who is known to be gone."""
    lapsed = link.rows(f"SELECT 1 FROM tarry_owner WHERE until <= {now} LIMIT 1")
    if not lapsed and not gone:
        return []
    also = f" OR owner IN ({listed(name.encode() for name in gone)})" if gone else ""
    return _running(link, f"(owner NOT IN (SELECT name FROM tarry_owner WHERE until > {now}){also})", limit)


def _running(link: Link, where: str, limit: int) -> list[Job]:
    rows = link.rows(f"SELECT id FROM tarry_running WHERE {where} ORDER BY id LIMIT {max(0, limit)}")
    jobs = get(link, [id for (id,) in rows])
    return [job for job in jobs if job is not None and job.owner]


def leaving(link: Link, start: int, end: int, limit: int) -> list[Job]:
    """As `Store.leaving`."""
    jobs = get(link, [id for (id,) in link.rows(_LEAVING.format(start, end, limit))])
    return [job for job in jobs if job is not None and start <= job.until < end]


# Names


def hold(link: Link, name: str, owner: str, until: int, now: int) -> bool:
    """As `Store.hold`; also forgets owners whose lease ran out a minute ago and who hold nothing."""
    link.run("BEGIN")
    rows = link.rows(f"SELECT owner, until FROM tarry_hold WHERE name = {text(name)} FOR UPDATE")
    free = not rows or rows[0][0].decode() == owner or rows[0][1] <= now
    values = f"({text(name)},{text(owner)},{until})"
    took = [f"INSERT INTO tarry_hold VALUES {values} ON DUPLICATE KEY UPDATE owner = {text(owner)}, until = {until}"]
    link.run(*(took if free else ()), COMMIT)
    _forget_owners(link, now - 60_000_000)
    return free


def _forget_owners(link: Link, before: int) -> None:
    """One by one: to find them by reading the table under lock would be to wait for all who prolong their leases."""
    idle = "AND name NOT IN (SELECT owner FROM tarry_running)"
    for (name,) in link.rows(f"SELECT name FROM tarry_owner WHERE until < {before} {idle} LIMIT 100"):
        link.run("BEGIN", f"DELETE FROM tarry_owner WHERE name = {raw(name)} AND until < {before}", COMMIT)


def cells(link: Link, prefix: str) -> dict[str, bytes]:
    """As `Store.cells`."""
    where = f"name >= {raw(prefix.encode())} AND name < {raw(beyond(prefix).encode())}"
    rows: Sequence[tuple[Any, ...]] = link.rows(f"SELECT name, value FROM tarry_cell WHERE {where} ORDER BY name")
    return {name.decode(): value for name, value in rows}


def write(link: Link, name: str, value: bytes | None, was: bytes | None) -> bool:
    """As `Store.write`."""
    link.run("BEGIN")
    rows = link.rows(f"SELECT value FROM tarry_cell WHERE name = {text(name)} FOR UPDATE")
    fits = (rows[0][0] if rows else None) == was
    change = []
    if fits and value is None:
        change = [f"DELETE FROM tarry_cell WHERE name = {text(name)}"]
    elif fits and value is not None:
        put = f"({text(name)},{raw(value)})"
        # Absent when looked at: if somebody was quicker it fails, and is looked at once more.
        change = [f"INSERT INTO tarry_cell VALUES {put}" if not rows
                  else f"UPDATE tarry_cell SET value = {raw(value)} WHERE name = {text(name)}"]  # fmt: skip
    link.run(*change, COMMIT)
    return fits
