"""The embedded store: one SQLite file, many processes, one writer at a time.

What makes it fast: few statements a batch, arrays bound whole (carray) instead of one by one, partial indexes so that
finished and scheduled jobs cost a claim nothing, and apply + claim in one transaction.
"""

import contextlib
import os
import threading
import time
from array import array
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import apsw

from tarry.errors import StoreFull, StoreUnavailable
from tarry.model.change import Change
from tarry.model.job import Job, State
from tarry.store import sqlite_sql as sql
from tarry.store.base import PROMOTED_AT_ONCE, Exchange, Fact, Query, Store, Tally, Want
from tarry.store.bell import Bell
from tarry.store.bellboard import BellBoard
from tarry.store.reserve import Reserve
from tarry.store.sqlite_file import SCHEMA_VERSION, mapped, opened, transaction

STATES = (State.SCHEDULED, State.READY, State.RUNNING, State.DONE, State.DEAD, State.CANCELLED)
CODE = {state: code for code, state in enumerate(STATES)}
RUNNING = State.RUNNING
GROUP_FROM = 4
"""Changes that differ only in their job are made by one statement, from so many on."""


class SqliteStore(Store):
    """Jobs in the file at `path`.

    durable: for producers and people, whose word that it is stored must survive a power cut. A worker opens the file
    with durable=False: what it may lose in a power cut is an outcome, and the job then runs again.
    """

    def __init__(self, path: str | Path, durable: bool = True) -> None:
        self.path = Path(path).absolute()
        self.url = f"sqlite:///{self.path}"
        self._lock = threading.Lock()
        self._db = opened(self.path, durable)
        self._file = os.stat(self.path)
        self._board = BellBoard(Path(f"{self.path}-bells"))
        self._durable = durable
        self._reserve = Reserve(self.path)
        if not durable:
            self._reserve.keep()
        self._closed = False

    def insert(self, jobs: Sequence[Job]) -> list[bytes]:
        if self._reserve.spent:
            raise StoreFull(f"{self.path}: the disk is full; free some space, and within 10 s jobs are taken again")
        self._check_file()
        with self._lock, mapped(self.path):
            with transaction(self._db):
                if any(job.key is not None for job in jobs):
                    lives = [self._insert_keyed(job) for job in jobs]
                else:
                    self._db.executemany(sql.INSERT, [_row(job) for job in jobs])
                    lives = [job.id for job in jobs]
            self._board.ring_work()
        return lives

    def _insert_keyed(self, job: Job) -> bytes:
        known = self._db.execute("SELECT 1 FROM job WHERE id = ?", (job.id,)).get
        if not known and job.key is not None:
            holder = self._db.execute(sql.HOLDER, (job.task, job.key)).get
            if holder is not None:
                return bytes(holder)
        self._db.execute(sql.INSERT, _row(job))
        return job.id

    def _check_file(self) -> None:
        """SQLite goes on in a file that was deleted, where nobody would ever find what it is told to keep."""
        with contextlib.suppress(OSError):
            if os.path.samestat(os.stat(self.path), self._file):
                return
        raise StoreUnavailable(
            f"{self.path} was moved or deleted while in use: put it back, or restart all that use it"
        )

    def claim(self, wants: Sequence[Want], limit: int, owner: str, lease: int, now: int) -> list[Job]:
        return self.exchange((), wants, limit, owner, lease, now).jobs

    def apply(self, changes: Sequence[Change], now: int) -> list[bool]:
        return self.exchange(changes, (), 0, "", 0, now).valid

    def exchange(
        self, changes: Sequence[Change], wants: Sequence[Want], limit: int, owner: str, lease: int, now: int
    ) -> Exchange:
        self._check_file()
        with self._lock, mapped(self.path):
            wants = self._open(wants)
            if not changes and not self._worth_claiming(wants, limit, now):
                return Exchange([], [], self._next_due())
            try:
                answer = self._exchange(changes, wants, limit, owner, lease, now)
            except apsw.FullError:
                if not self._reserve.spend():
                    raise
                answer = self._exchange(changes, wants, limit, owner, lease, now)
            if changes:
                self._ring(changes)
        return answer

    def _exchange(
        self, changes: Sequence[Change], wants: Sequence[Want], limit: int, owner: str, lease: int, now: int
    ) -> Exchange:
        with transaction(self._db):
            valid = self._apply(changes) if changes else []
            jobs = self._claim(wants, limit, owner, lease, now) if wants and limit > 0 else []
            return Exchange(valid, jobs, self._next_due())

    def _open(self, wants: Sequence[Want]) -> Sequence[Want]:
        paused = {queue for (queue,) in self._rows("SELECT queue FROM paused")}
        return [want for want in wants if want.queue not in paused] if paused else wants

    def _worth_claiming(self, wants: Sequence[Want], limit: int, now: int) -> bool:
        """A look without the write lock: an idle worker must not stand in a producer's way."""
        if limit <= 0 or not wants:
            return False
        due = self._next_due()
        if due is not None and due <= now:
            return True
        return any(self._db.execute(sql.ANY_READY[want.band], (want.queue,)).get for want in wants)

    def _claim(self, wants: Sequence[Want], limit: int, owner: str, lease: int, now: int) -> list[Job]:
        self._db.execute(sql.PROMOTE, (now, PROMOTED_AT_ONCE))
        rows = self._chosen(wants, limit)
        if not rows:
            return []
        self._db.execute(sql.CLAIM, (owner, now, apsw.carray(array("q", [row[0] for row in rows]))))
        self._db.execute(sql.LEASE, (owner, now + lease, now + lease // 2))
        jobs = [
            Job(
                id,
                task,
                body,
                queue,
                priority,
                due,
                RUNNING,
                epoch,
                failures,
                losses,
                owner,
                now,
                0,
                expires,
                key,
                note,
            )
            for _, id, task, body, queue, priority, due, epoch, failures, losses, expires, key, note in rows
        ]
        if len(wants) > 1:
            jobs.sort(key=lambda job: (-job.priority, job.due, job.id))
        return jobs

    def _chosen(self, wants: Sequence[Want], limit: int) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = []
        taken: dict[tuple[str, int], int] = {}
        for fill in (False, True):
            for want in wants:
                room = limit - len(rows) if fill else min(want.count, limit - len(rows))
                before = taken.get((want.queue, want.band), 0)
                if room <= 0 or before < 0:
                    continue
                found = self._rows(sql.READY[want.band], (want.queue, room, before))
                # Fewer than asked for: this line is at its end, no use in asking again.
                taken[want.queue, want.band] = before + len(found) if len(found) == room else -1
                rows += found
        return rows

    def _rows(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self._db.execute(statement, tuple(values)).fetchall()

    def _apply(self, changes: Sequence[Change]) -> list[bool]:
        if len({change.id for change in changes}) < len(changes):
            return [bool(self._change_each([change])) for change in changes]
        groups: dict[tuple[Any, ...], list[Change]] = {}
        for change in changes:
            groups.setdefault(_alike(change), []).append(change)
        made: set[bytes] = set()
        rest: list[Change] = []
        for alike in groups.values():
            if len(alike) < GROUP_FROM or alike[0].to is None:
                rest += alike
            else:
                made |= self._change_group(alike)
        made |= self._change_each(rest)
        return [change.id in made for change in changes]

    def _change_group(self, alike: list[Change]) -> set[bytes]:
        first = alike[0]
        ids = apsw.carray(tuple([change.id for change in alike]))
        rows = self._rows(sql.CHANGE_GROUP, (*_values(first), ids, CODE[first.was], first.epoch))
        return {id for (id,) in rows}

    def _change_each(self, changes: list[Change]) -> set[bytes]:
        kept = [(*_values(c), c.id, CODE[c.was], c.epoch) for c in changes if c.to is not None]
        gone = [(c.id, CODE[c.was], c.epoch) for c in changes if c.to is None]
        rows: list[Any] = self._db.executemany(sql.CHANGE, kept).fetchall() if kept else []
        rows += self._db.executemany(sql.FORGET, gone).fetchall() if gone else []
        return {id for (id,) in rows}

    def _ring(self, changes: Sequence[Change]) -> None:
        to = {change.to for change in changes}
        if State.READY in to or State.SCHEDULED in to:
            self._board.ring_work()
        if not to <= {State.READY, State.SCHEDULED}:
            self._board.ring_result()

    def next_due(self) -> int | None:
        with self._lock, mapped(self.path):
            return self._next_due()

    def _next_due(self) -> int | None:
        due: int | None = self._db.execute(sql.NEXT_DUE).get
        return due

    def extend(self, owner: str, held: Collection[tuple[bytes, int]], lease: int, now: int) -> list[bytes]:
        with self._lock, mapped(self.path):
            until = self._db.execute("SELECT until FROM owner WHERE name = ?", (owner,)).get
            if held and (until is None or until < now + lease // 2):
                with transaction(self._db):
                    self._db.execute(sql.LEASE, (owner, now + lease, now + lease))
            rows = self._db.execute(
                "SELECT id, epoch FROM job INDEXED BY running WHERE state = 2 AND owner = ?", (owner,)
            )
            owned = set(rows.fetchall())
        return [id for id, epoch in held if (id, epoch) not in owned]

    def reclaim(self, now: int, of: str | None = None, limit: int = 1000) -> list[Job]:
        query, arguments = (sql.OVERDUE, (now, limit)) if of is None else (sql.HELD_BY, (of, limit))
        with self._lock, mapped(self.path):
            return [_job(row) for row in self._rows(query, arguments)]

    def owners(self) -> list[str]:
        with self._lock, mapped(self.path):
            rows = self._rows("SELECT DISTINCT owner FROM job INDEXED BY running WHERE state = 2")
            return [owner for (owner,) in rows]

    def hold(self, name: str, owner: str, until: int, now: int) -> bool:
        with self._lock, mapped(self.path), transaction(self._db):
            self._db.execute("DELETE FROM owner WHERE until < ?", (now - 86_400_000_000,))
            return self._db.execute(sql.HOLD, (name, owner, until, now)).get is not None

    def get(self, ids: Sequence[bytes]) -> list[Job | None]:
        found: dict[bytes, Job] = {}
        query = f"SELECT {sql.COLUMNS} FROM job WHERE id IN (SELECT value FROM carray(?))"
        with self._lock, mapped(self.path):
            if ids:
                rows = self._rows(query, (apsw.carray(tuple(ids)),))
                found = {row[0]: _job(row) for row in rows}
        return [found.get(id) for id in ids]

    def find(self, query: Query) -> list[Job]:
        where: list[str] = ["id > ?"]
        values: list[Any] = [query.after]
        if query.states:
            where.append(f"state IN ({', '.join(str(CODE[state]) for state in query.states)})")
        for column, value in (("queue = ?", query.queue), ("task = ?", query.task), ("key = ?", query.key)):
            if value is not None:
                where.append(column)
                values.append(value)
        if query.before is not None:
            where.append("since < ?")
            values.append(query.before)
        text = f"SELECT {sql.COLUMNS} FROM job WHERE {' AND '.join(where)} ORDER BY id LIMIT ?"
        with self._lock, mapped(self.path):
            return [_job(row) for row in self._rows(text, (*values, query.limit))]

    def counts(self) -> list[Tally]:
        with self._lock, mapped(self.path):
            rows = self._rows(sql.TALLY)
        return [Tally(queue, task, STATES[code], n, oldest, size) for queue, task, code, n, oldest, size in rows]

    def prune(self, now: int, most_bytes: int, limit: int = 1000, by_queue: Mapping[str, int] | None = None) -> int:
        with self._lock, mapped(self.path):
            if not self._durable:
                self._reserve.keep(self._db.pragma("freelist_count") * self._db.pragma("page_size"))
            if not self._db.execute("SELECT 1 FROM job INDEXED BY finished WHERE state >= 3 LIMIT 1").get:
                return 0
            with transaction(self._db):
                self._db.execute(sql.PRUNE, (now, limit))
                pruned = self._db.changes()
                for queue, size in self._rows(sql.WEIGHTS):
                    excess = size - (by_queue or {}).get(queue, most_bytes)
                    if excess > 0:
                        pruned += self._lighten(queue, excess, limit - pruned)
        return pruned

    def _lighten(self, queue: str, excess: int, limit: int) -> int:
        doomed = array("q")
        for n, size in self._rows(sql.FIRST_FINISHED, (queue, max(limit, 0))):
            if excess <= 0:
                break
            excess -= size
            doomed.append(n)
        if doomed:
            self._db.execute("DELETE FROM job WHERE n IN (SELECT value FROM carray(?))", (apsw.carray(doomed),))
        return len(doomed)

    def pause(self, queue: str, paused: bool) -> None:
        statement = "INSERT OR IGNORE INTO paused VALUES (?)" if paused else "DELETE FROM paused WHERE queue = ?"
        with self._lock, mapped(self.path):
            with transaction(self._db):
                self._db.execute(statement, (queue,))
            self._board.ring_work()

    def queues(self) -> dict[str, bool]:
        with self._lock, mapped(self.path):
            found = {queue: False for (queue,) in self._rows(sql.READY_QUEUES)}
            return found | {queue: True for (queue,) in self._rows("SELECT queue FROM paused")}

    def bell(self) -> Bell:
        return self._board.bell()

    def ring_recall(self) -> None:
        self._board.ring_recall()

    def time(self) -> int:
        return time.time_ns() // 1000

    def facts(self) -> list[Fact]:
        with self._lock, mapped(self.path):
            synchronous = self._db.pragma("synchronous")
            journal = self._db.pragma("journal_mode")
        room = os.statvfs(self.path.parent)
        free = room.f_bavail * room.f_frsize
        tight = "" if free > 256 * 2**20 else "under 256 MB: free some space before enqueues are refused"
        return [
            Fact("sqlite", apsw.sqlite_lib_version()),
            Fact("schema", str(SCHEMA_VERSION)),
            Fact("durability", f"journal {journal}, synchronous {'FULL' if synchronous == 2 else 'NORMAL'}"),
            Fact("size", f"{self.path.stat().st_size / 1e6:.1f} MB"),
            Fact("free disk", f"{free / 1e9:.1f} GB", tight),
        ]

    def close(self) -> None:
        with self._lock:
            if not self._closed:
                self._closed = True
                self._board.close()
                self._db.close(True)


def _row(job: Job) -> tuple[Any, ...]:
    return (
        job.id, job.task, job.body, job.queue, -job.priority, job.due, CODE[job.state], job.epoch, job.failures,
        job.losses, job.since, job.until, job.expires, job.key, job.note,
    )  # fmt: skip


def _job(row: tuple[Any, ...]) -> Job:
    return Job(*row[:6], STATES[row[6]], *row[7:])  # type: ignore[call-arg]


def _values(change: Change) -> tuple[Any, ...]:
    assert change.to is not None
    rank = None if change.priority is None else -change.priority
    return (
        CODE[change.to], change.since, change.due, change.failures, change.losses, change.until, change.note,
        change.queue, rank, change.expires,
    )  # fmt: skip


def _alike(change: Change) -> tuple[Any, ...]:
    return (
        change.was, change.epoch, change.to, change.since, change.due, change.failures, change.losses, change.until,
        change.note, change.queue, change.priority, change.expires,
    )  # fmt: skip
