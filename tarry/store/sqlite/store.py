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
from msgspec.structs import astuple

from tarry.errors import StoreFull, StoreUnavailable
from tarry.model.change import Change
from tarry.model.job import Job, State
from tarry.model.limit import Level, Limit
from tarry.store.base import Backlog, Exchange, Fact, Query, Store, Tally, Want
from tarry.store.shared.bell import Bell
from tarry.store.shared.bellboard import BellBoard
from tarry.store.shared.lanes import earliest
from tarry.store.shared.prefix import beyond
from tarry.store.shared.pruning import Pruning
from tarry.store.sqlite import forked, sql
from tarry.store.sqlite.connection import Statements
from tarry.store.sqlite.file import mapped, opened, rights, transaction
from tarry.store.sqlite.finished import SqliteFinished
from tarry.store.sqlite.lanes import SqliteLanes, limits_in, placed, places
from tarry.store.sqlite.open_lanes import OpenLanes
from tarry.store.sqlite.open_line import OpenLine
from tarry.store.sqlite.reserve import Reserve
from tarry.store.sqlite.schema import SCHEMA_VERSION
from tarry.store.sqlite.waiting import backlog
from tarry.store.sqlite.watch import CommitWatch
from tarry.store.sqlite.within import through

STATES = (State.SCHEDULED, State.READY, State.RUNNING, State.DONE, State.DEAD, State.CANCELLED)
CODE = {state: code for code, state in enumerate(STATES)}
RUNNING = State.RUNNING
GROUP_FROM = 4
"""Changes that differ only in their job are made by one statement, from so many on."""


class SqliteStore(Store):
    """Jobs in the file at `path`.

    durable: for producers and people, whose word that it is stored must survive a power cut. A worker opens the file
    with durable=False: what it may lose in a power cut is an outcome, and the job then runs again.

    shared: whose file it is too (`sqlite.connection.SHARED`); tarry's tables then stand beside that program's.
    """

    def __init__(self, path: str | Path, durable: bool = True, shared: str = "") -> None:
        self.path = Path(path).absolute()
        self.url = f"sqlite:///{self.path}" + (f"?shared={shared}" if shared else "")
        lock = threading.Lock()
        self._lock: threading.Lock | forked.OpenAgain = lock
        self._shared = shared
        self._db = opened(self.path, durable, shared)
        self._file = os.stat(self.path)
        self._board = BellBoard(Path(f"{self.path}-bells"))
        self._commits = CommitWatch(self.path, shared)
        self._lanes = SqliteLanes(self._db)
        self._pruning = Pruning(SqliteFinished(self._db, lock, self.path))
        self._durable = durable
        self._reserve = Reserve(self.path)
        if not durable:
            self._reserve.keep()
        self._closed = False
        forked.watch(self)

    def forked(self) -> None:
        """In a forked child: the file is opened anew at the first use."""
        self._lock = forked.OpenAgain(self, lambda: SqliteStore.__init__(self, self.path, self._durable, self._shared))

    def insert(self, jobs: Sequence[Job]) -> list[bytes]:
        self._check_room()
        self._check_file()
        with self._lock, mapped(self.path):
            with transaction(self._db):
                lives = _inserted(self._db, self._lanes.placed(jobs))
            self._board.ring_work()
        return lives

    def insert_within(self, connection: Any, jobs: Sequence[Job]) -> list[bytes]:
        self._check_room()
        self._check_file()
        theirs = through(connection, self.path, self._shared)
        theirs.execute(sql.TAKE_LOCK)
        lives = _inserted(theirs, placed(jobs, limits_in(theirs)))
        self._commits.expect({job.id for job in jobs}.intersection(lives))
        return lives

    def _check_room(self) -> None:
        if self._reserve.spent:
            raise StoreFull(f"{self.path}: the disk is full; free some space, and within 10 s jobs are taken again")

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
            elif answer.jobs:
                self._board.ring_follow()
        return answer

    def _exchange(
        self, changes: Sequence[Change], wants: Sequence[Want], limit: int, owner: str, lease: int, now: int
    ) -> Exchange:
        with transaction(self._db):
            self._lanes.look()
            valid = self._apply(changes, now) if changes else []
            jobs, again = self._claim(wants, limit, owner, lease, now) if wants and limit > 0 else ([], None)
            return Exchange(valid, jobs, earliest(self._next_due(), again))

    def _open(self, wants: Sequence[Want]) -> Sequence[Want]:
        paused = {queue for (queue,) in self._rows("SELECT queue FROM tarry_paused")}
        return [want for want in wants if want.queue not in paused] if paused else wants

    def _worth_claiming(self, wants: Sequence[Want], limit: int, now: int) -> bool:
        """A look without the write lock: an idle worker must not stand in a producer's way."""
        if limit <= 0 or not wants:
            return False
        due = self._next_due()
        if due is not None and due <= now:
            return True
        return self._lanes.waiting() or any(OpenLine(self._db, want).any() for want in wants)

    def _claim(
        self, wants: Sequence[Want], limit: int, owner: str, lease: int, now: int
    ) -> tuple[list[Job], int | None]:
        """The jobs; with none, when a rate lets start what it held back."""
        self._lanes.promote(now)
        if self._lanes.limits or self._lanes.waiting():
            rows, again = self._lanes.chosen(wants, limit, owner, now)
        else:
            rows, again = self._chosen(wants, limit), None
            if rows:
                self._db.execute(sql.CLAIM, (owner, now, self._db.array(array("q", [row[0] for row in rows]))))
        if not rows:
            return [], again
        if keyed := [row[0] for row in rows if row[11] is not None]:
            self._db.execute(sql.LET_GO, (self._db.array(array("q", keyed)),))
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
                unique,
                0 if unique < 0 else holds,
                lane,
                headers,
                progress,
            )
            for _, id, task, body, queue, priority, due, epoch, failures, losses, expires, key, note, unique, holds,
                lane, headers, progress in rows
        ]  # fmt: skip
        jobs.sort(key=lambda job: (-job.priority, job.due, job.id))
        return jobs, None

    def _chosen(self, wants: Sequence[Want], limit: int) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = []
        lines = {(want.queue, want.band): OpenLine(self._db, want) for want in wants}
        for fill in (False, True):
            for want in wants:
                room = limit - len(rows) if fill else min(want.count, limit - len(rows))
                line = lines[want.queue, want.band]
                if room > 0 and not line.ended:
                    rows += line.take(room)
        return rows

    def _rows(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self._db.execute(statement, tuple(values)).fetchall()

    def _apply(self, changes: Sequence[Change], now: int) -> list[bool]:
        for change in changes:
            if change.holds:
                self._db.execute(sql.OUTLIVED_BY, (now, change.id, CODE[change.was], change.epoch))
        if not self._lanes.limits:
            return self._made(changes)
        running = self._lanes.running(changes)
        valid = self._made(changes)
        made = [c.id for c, good in zip(changes, valid, strict=True) if good and c.was is RUNNING]
        self._lanes.ended([running[id] for id in made], now)
        if anew := [c.id for c, good in zip(changes, valid, strict=True) if good and c.was.finished]:
            self._db.execute(sql.INTO_LANES, (self._db.array(tuple(anew)),))
        self._lanes.returned([c.id for c, good in zip(changes, valid, strict=True) if good and c.to is State.READY])
        return valid

    def _made(self, changes: Sequence[Change]) -> list[bool]:
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
        ids = self._db.array(tuple([change.id for change in alike]))
        rows = self._rows(sql.CHANGE_GROUP, (*_values(first), ids, *_fence(first)))
        return {id for (id,) in rows}

    def _change_each(self, changes: list[Change]) -> set[bytes]:
        kept = [(*_values(c), c.id, *_fence(c)) for c in changes if c.to is not None]
        gone = [(c.id, *_fence(c)) for c in changes if c.to is None]
        rows: list[Any] = self._db.executemany(sql.CHANGE, kept).fetchall() if kept else []
        rows += self._db.executemany(sql.FORGET, gone).fetchall() if gone else []
        return {id for (id,) in rows}

    def _ring(self, changes: Sequence[Change]) -> None:
        to = {change.to for change in changes}
        if State.READY in to or State.SCHEDULED in to or self._lanes.limits:
            self._board.ring_work()
        if not to <= {State.READY, State.SCHEDULED}:
            self._board.ring_result()
        else:
            self._board.ring_follow()

    def next_due(self) -> int | None:
        with self._lock, mapped(self.path):
            return self._next_due()

    def _next_due(self) -> int | None:
        due: int | None = self._db.execute(sql.NEXT_DUE).get
        return due

    def extend(self, owner: str, held: Collection[tuple[bytes, int]], lease: int, now: int) -> list[bytes]:
        with self._lock, mapped(self.path):
            until = self._db.execute("SELECT until FROM tarry_owner WHERE name = ?", (owner,)).get
            if held and (until is None or until < now + lease // 2):
                with transaction(self._db):
                    self._db.execute(sql.LEASE, (owner, now + lease, now + lease))
            rows = self._db.execute(
                "SELECT id, epoch FROM tarry_job INDEXED BY tarry_running WHERE state = 2 AND owner = ?", (owner,)
            )
            owned = set(rows.fetchall())
        return [id for id, epoch in held if (id, epoch) not in owned]

    def reclaim(self, now: int, of: str | None = None, limit: int = 1000) -> list[Job]:
        query, arguments = (sql.OVERDUE, (now, limit)) if of is None else (sql.HELD_BY, (of, limit))
        with self._lock, mapped(self.path):
            return [_job(row) for row in self._rows(query, arguments)]

    def owners(self) -> list[str]:
        with self._lock, mapped(self.path):
            return [owner for (owner,) in self._rows(sql.OWNERS)]

    def hold(self, name: str, owner: str, until: int, now: int) -> bool:
        with self._lock, mapped(self.path), transaction(self._db):
            self._db.execute("DELETE FROM tarry_owner WHERE until < ?", (now - 86_400_000_000,))
            return self._db.execute(sql.HOLD, (name, owner, until, now)).get is not None

    def get(self, ids: Sequence[bytes]) -> list[Job | None]:
        found: dict[bytes, Job] = {}
        query = f"SELECT {sql.COLUMNS} FROM tarry_job WHERE id IN (SELECT value FROM carray(?))"
        with self._lock, mapped(self.path):
            if ids:
                rows = self._rows(query, (self._db.array(tuple(ids)),))
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
        text = f"SELECT {sql.COLUMNS} FROM tarry_job WHERE {' AND '.join(where)} ORDER BY id LIMIT ?"
        with self._lock, mapped(self.path):
            return [_job(row) for row in self._rows(text, (*values, query.limit))]

    def counts(self) -> list[Tally]:
        with self._lock, mapped(self.path):
            rows = self._rows(sql.TALLY)
        return [Tally(queue, task, STATES[code], n, oldest, size) for queue, task, code, n, oldest, size in rows]

    def leaving(self, start: int, end: int, limit: int) -> list[Job]:
        with self._lock, mapped(self.path):
            return [_job(row) for row in self._rows(sql.LEAVING, (start, end, limit))]

    def prune(self, now: int, most_bytes: int, limit: int = 1000, by_queue: Mapping[str, int] | None = None) -> int:
        with self._lock, mapped(self.path):
            if not self._durable:
                self._reserve.keep(self._db.pragma("freelist_count") * self._db.pragma("page_size"))
        return self._pruning.prune(now, most_bytes, limit, by_queue or {})

    def pause(self, queue: str, paused: bool) -> None:
        insert, delete = "INSERT OR IGNORE INTO tarry_paused VALUES (?)", "DELETE FROM tarry_paused WHERE queue = ?"
        statement = insert if paused else delete
        with self._lock, mapped(self.path):
            with transaction(self._db):
                self._db.execute(statement, (queue,))
            self._board.ring_work()

    def queues(self) -> dict[str, bool]:
        with self._lock, mapped(self.path):
            found = {queue: False for (queue,) in self._rows(sql.READY_QUEUES) + self._rows(sql.LANED_QUEUES)}
            return found | {queue: True for (queue,) in self._rows("SELECT queue FROM tarry_paused")}

    def backlog(self, queues: Collection[str] | None, now: int, most: int) -> Backlog:
        with self._lock, mapped(self.path):
            return backlog(self._db, queues, now, most)

    def mark(self, owner: str, marks: Sequence[tuple[bytes, int, bytes]]) -> None:
        with self._lock, mapped(self.path):
            with transaction(self._db):
                self._db.executemany(sql.MARK, [(progress, id, epoch, owner) for id, epoch, progress in marks])
            self._board.ring_follow()

    def limit(self, name: str, limit: Limit | None) -> None:
        with self._lock, mapped(self.path):
            with transaction(self._db):
                self._lanes.set(name, limit)
            self._board.ring_work()

    def limits(self) -> dict[str, tuple[Limit, Level]]:
        with self._lock, mapped(self.path):
            return self._lanes.all()

    def recount(self, now: int) -> int:
        with self._lock, mapped(self.path):
            with transaction(self._db, "BEGIN"):  # a look without the write lock: there is hardly ever anything wrong
                if not (self._lanes.miscounted() or self._lanes.wrongly_closed(now)):
                    return 0
            with transaction(self._db):
                wrong = self._lanes.recount(now)
            self._board.ring_work()
            return wrong

    def cells(self, prefix: str) -> dict[str, bytes]:
        with self._lock, mapped(self.path):
            rows = self._rows(sql.CELLS, (prefix, beyond(prefix)))
        return dict(rows)

    def write(self, name: str, value: bytes | None, was: bytes | None) -> bool:
        with self._lock, mapped(self.path), transaction(self._db):
            if self._db.execute("SELECT value FROM tarry_cell WHERE name = ?", (name,)).get != was:
                return False
            if value is None:
                self._db.execute("DELETE FROM tarry_cell WHERE name = ?", (name,))
            else:
                self._db.execute(sql.WRITE, (name, value))
        return True

    def bell(self) -> Bell:
        return self._board.bell()

    def ring_recall(self) -> None:
        self._board.ring_recall()

    def time(self) -> int:
        return time.time_ns() // 1000

    def facts(self) -> list[Fact]:
        with self._lock, mapped(self.path):
            version = self._db.execute("SELECT sqlite_version()").get
            synchronous = self._db.pragma("synchronous")
            journal = self._db.pragma("journal_mode")
        room = os.statvfs(self.path.parent)
        free = room.f_bavail * room.f_frsize
        tight = "" if free > 256 * 2**20 else "under 256 MB: free some space before enqueues are refused"
        return [
            Fact("sqlite", version),
            Fact("schema", str(SCHEMA_VERSION)),
            Fact("durability", f"journal {journal}, synchronous {'FULL' if synchronous == 2 else 'NORMAL'}"),
            Fact("size", f"{self.path.stat().st_size / 1e6:.1f} MB"),
            Fact("free disk", f"{free / 1e9:.1f} GB", tight),
            rights(self.path),
        ]

    def close(self) -> None:
        if isinstance(self._lock, forked.OpenAgain):
            return
        self._commits.close()
        with self._lock:
            if not self._closed:
                self._closed = True
                self._board.close()
                self._db.close(True)


def _inserted(db: Statements, jobs: Sequence[Job]) -> list[bytes]:
    OpenLanes(db).add(places(jobs))
    if any(job.key is not None for job in jobs):
        return [_inserted_keyed(db, job) for job in jobs]
    db.executemany(sql.INSERT, [_row(job) for job in jobs])
    return [job.id for job in jobs]


def _inserted_keyed(db: Statements, job: Job) -> bytes:
    known = db.execute("SELECT 1 FROM tarry_job WHERE id = ?", (job.id,)).get
    if not known and job.key is not None:
        db.execute(sql.OUTLIVED, (job.since, job.task, job.key))
        holder = db.execute(sql.HOLDER, (job.task, job.key)).get
        if holder is not None:
            return bytes(holder)
    db.execute(sql.INSERT, _row(job))
    return job.id


def _row(job: Job) -> tuple[Any, ...]:
    return (
        job.id, job.task, job.body, job.queue, -job.priority, job.due, CODE[job.state], job.epoch, job.failures,
        job.losses, job.since, job.until, job.expires, job.key, job.note, job.unique, job.holds, job.lane,
        job.headers, job.progress,
    )  # fmt: skip


def _job(row: tuple[Any, ...]) -> Job:
    return Job(*row[:6], STATES[row[6]], *row[7:])  # type: ignore[call-arg]


def _values(change: Change) -> tuple[Any, ...]:
    assert change.to is not None
    rank = None if change.priority is None else -change.priority
    return (
        CODE[change.to], change.since, change.due, change.failures, change.losses, change.until, change.note,
        change.queue, rank, change.expires, change.holds, change.body,
    )  # fmt: skip


def _fence(change: Change) -> tuple[int, int, str | None]:
    """What the job must still be: the last values of a statement that changes it."""
    return CODE[change.was], change.epoch, change.owner or None


def _alike(change: Change) -> tuple[Any, ...]:
    """All but the id, which comes first."""
    return astuple(change)[1:]
