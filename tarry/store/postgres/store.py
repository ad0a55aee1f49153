"""The PostgreSQL store: several hosts, many writers, the database that is there already.

What makes it fast: one round trip a verb, as a function in the database that is planned once; rows skipped that others
have locked; partial indexes, so that finished and scheduled jobs cost a claim nothing; a place to begin to look from,
so that rows which are gone and cannot be cleared away yet cost nothing either (`postgres.functions`).
"""

import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

from tarry.errors import StoreBusy
from tarry.model.change import Change
from tarry.model.job import Job, State
from tarry.model.limit import Level, Limit
from tarry.store.base import PROMOTED_AT_ONCE, Backlog, Exchange, Fact, Query, Store, Tally, Want
from tarry.store.postgres import rows as pack
from tarry.store.postgres import sql
from tarry.store.postgres.bells import PostgresBells
from tarry.store.postgres.connection import Connections
from tarry.store.postgres.errors import told
from tarry.store.postgres.facts import facts
from tarry.store.postgres.finished import PostgresFinished
from tarry.store.postgres.floors import Floors
from tarry.store.postgres.functions import STORED_WITHIN
from tarry.store.postgres.lanes import (
    LaneClaim,
    NotAlone,
    change_limit,
    limits_and_levels,
    open_wrongly_closed,
    recount,
    set_limit,
)
from tarry.store.postgres.link import Link, Row
from tarry.store.postgres.migrate import at_opening
from tarry.store.postgres.ringing import RECALL, RESULTS, STEPS, WORK
from tarry.store.postgres.url import parsed
from tarry.store.postgres.within import inserted_within
from tarry.store.shared.bell import Bell
from tarry.store.shared.lanes import earliest
from tarry.store.shared.patience import about
from tarry.store.shared.prefix import beyond
from tarry.store.shared.pruning import Pruning

Answer = TypeVar("Answer")
AT_ONCE = 5000
"""At most so many jobs or changes in one command, so that it stays within its time."""
PATIENT = 60
"""Seconds for what reads all, which people wait for."""
_JOB, _MADE = slice(0, 17), 17
_DAY = 86_400_000_000


class PostgresStore(Store):
    """Jobs in a schema of a database; `url` as in docs/stores.md.

    durable: for producers and people, whose word that it is stored must survive a power cut of the server. A worker
    opens the store with durable=False: what may be lost then is a claim or an outcome, and the job runs again. What it
    inserts is as safe as anybody's.
    """

    def __init__(self, url: str, durable: bool = True) -> None:
        self._place = parsed(url)
        self.url = self._place.url
        self._schema = self._place.schema
        self._durable = durable
        self._pid = os.getpid()
        self._connections = Connections(self._place)
        self._bells = PostgresBells(self._connections)
        self._floors = Floors()
        self._pruning = Pruning(PostgresFinished(self._connections, self._schema))
        try:
            at_opening(self._connections)
        except BaseException:
            self.close()
            raise

    # Keeping

    def insert(self, jobs: Sequence[Job]) -> list[bytes]:
        lives: list[bytes] = []
        for start in range(0, len(jobs), AT_ONCE):
            lives += self._inserted(jobs[start : start + AT_ONCE])
        return lives

    def _inserted(self, jobs: Sequence[Job]) -> list[bytes]:
        ring = self._bells.within(WORK)
        keyed = any(job.key is not None for job in jobs)
        with told(self._place):
            values = (*pack.new_jobs(jobs), keyed, False, *ring)
        began = time.monotonic()
        others = self._rows(sql.INSERT, values)
        self._notice_delay(began, [job.id for job in jobs])
        self._bells.ring(WORK, sent=ring[0] is not None)
        lives = [job.id for job in jobs]
        for place, id in others:
            lives[place - 1] = id
        return lives

    def _notice_delay(self, began: float, ids: Sequence[bytes]) -> None:
        """What took long to store may have come below the floors of others: they are told to look for it."""
        if time.monotonic() - began > STORED_WITHIN / 1e6 * 0.9:
            self._call(lambda link: link.run(self._at(sql.ASIDE), (pack.uuids(ids),)))

    def insert_within(self, connection: Any, jobs: Sequence[Job]) -> list[bytes]:
        return inserted_within(connection, jobs, self._place, self._connections)

    # Claiming and changing

    def claim(self, wants: Sequence[Want], limit: int, owner: str, lease: int, now: int) -> list[Job]:
        return self.exchange((), wants, limit, owner, lease, now).jobs

    def apply(self, changes: Sequence[Change], now: int) -> list[bool]:
        return self.exchange(changes, (), 0, "", 0, now).valid if changes else []

    def exchange(
        self, changes: Sequence[Change], wants: Sequence[Want], limit: int, owner: str, lease: int, now: int
    ) -> Exchange:
        valid: list[bool] = []
        while len(changes) > AT_ONCE:
            valid += self.apply(changes[:AT_ONCE], now)
            changes = changes[AT_ONCE:]
        answer = self._exchanged(changes, wants, limit, owner, lease, now)
        if answer.jobs:
            self._bells.stir()
        return Exchange(valid + answer.valid, answer.jobs, answer.next_due) if valid else answer

    def _exchanged(
        self, changes: Sequence[Change], wants: Sequence[Want], limit: int, owner: str, lease: int, now: int
    ) -> Exchange:
        wants = wants if limit > 0 else ()
        bounds = self._floors.of(wants)
        with told(self._place):
            changed = pack.changes(changes)
        values = (not self._durable, *changed, now, *bounds, max(limit, 0), PROMOTED_AT_ONCE, owner, lease)
        began = time.monotonic()
        *rows, end = self._rows(sql.EXCHANGE, values)
        made, on_time, late, scheduled, next_due, limited, in_lanes = end[_MADE:]
        self._floors.saw(wants, zip(on_time, late, strict=True), scheduled)
        valid = _told(made, len(changes))
        if changes:
            self._notice_delay(began, [change.id for change in changes])
            self._ring(changes, limited)
        jobs = pack.claimed((row[_JOB] for row in rows), owner, now)
        again = None
        if in_lanes:
            jobs, again = self._claimed_in_lanes(wants, limit, owner, lease, now)
        if jobs and not changes:
            self._bells.ring(STEPS)
        return Exchange(valid, jobs, earliest(next_due, again))

    def _claimed_in_lanes(
        self, wants: Sequence[Want], limit: int, owner: str, lease: int, now: int
    ) -> tuple[list[Job], int | None]:
        def work(link: Link) -> tuple[list[Row], int | None]:
            with link.transaction_of(*self._lightly()):
                rows, again = LaneClaim(link, self._schema, owner, now).chosen(wants, limit)
                if rows:
                    link.run(self._at(sql.LEASE), (owner, now + lease, now + lease // 2))
                return rows, again

        rows, again = self._call(work)
        return pack.claimed(rows, owner, now), again

    def _lightly(self) -> list[str]:
        idle = f"SET LOCAL idle_in_transaction_session_timeout = {self._place.seconds * 1000:.0f}"
        plans = "SET LOCAL enable_seqscan = off"
        return [idle, plans] if self._durable else [idle, plans, "SET LOCAL synchronous_commit = off"]

    def _ring(self, changes: Sequence[Change], limited: bool) -> None:
        to = {change.to for change in changes}
        waits = limited or State.READY in to or State.SCHEDULED in to
        ended = not to <= {State.READY, State.SCHEDULED}
        self._bells.ring((WORK if waits else "") + (RESULTS if ended else STEPS))

    def next_due(self) -> int | None:
        ((due, aside),) = self._rows(sql.NEXT_DUE, (self._floors.scheduled(),))
        return earliest(due, aside)

    # Owning

    def extend(self, owner: str, held: Collection[tuple[bytes, int]], lease: int, now: int) -> list[bytes]:
        if not held:
            return []

        def work(link: Link) -> list[Row]:
            if not link.rows(self._at(sql.LEASED), (owner, now + lease // 2)):
                link.run(self._at(sql.LEASE), (owner, now + lease, now + lease))
            return link.rows(self._at(sql.OWNED), (pack.uuids([id for id, _ in held]),))

        found = set(self._call(work))
        running = pack.CODE[State.RUNNING]
        return [id for id, epoch in held if (id, epoch, running, owner) not in found]

    def reclaim(self, now: int, of: str | None = None, limit: int = 1000) -> list[Job]:
        query, values = (sql.OVERDUE, (now, limit)) if of is None else (sql.HELD_BY, (of, limit))
        return [pack.job(row) for row in self._rows(query, values)]

    def owners(self) -> list[str]:
        return [owner for (owner,) in self._rows(sql.OWNERS)]

    def hold(self, name: str, owner: str, until: int, now: int) -> bool:
        def work(link: Link) -> bool:
            link.run(self._at(sql.OLD_LEASES), (now - _DAY,))
            return bool(link.rows(self._at(sql.HOLD), (name, owner, until, now)))

        return self._call(work)

    # For people

    def get(self, ids: Sequence[bytes]) -> list[Job | None]:
        rows = self._rows(sql.GET, (pack.uuids(ids),)) if ids else []
        found = {row[0]: pack.job(row) for row in rows}
        return [found.get(id) for id in ids]

    def find(self, query: Query) -> list[Job]:
        where: list[str] = ["true"]
        values: list[Any] = []
        more: list[tuple[str, Any]] = [
            ("id > encode({}, 'hex')::uuid", query.after or None), ("queue = {}", query.queue),
            ("task = {}", query.task), ("key = {}", query.key), ("since < {}", query.before),
        ]  # fmt: skip
        for column, value in more:
            if value is not None:
                values.append(value)
                where.append(column.format(f"${len(values)}"))
        if query.states:
            where.append(f"state IN ({', '.join(str(pack.CODE[state]) for state in query.states)})")
        text = f"SELECT {sql.COLUMNS} FROM {{s}}.job WHERE {' AND '.join(where)} ORDER BY id LIMIT {query.limit:d}"
        return [pack.job(row) for row in self._patiently(lambda link: link.rows(self._at(text), values))]

    def counts(self) -> list[Tally]:
        rows = self._patiently(lambda link: link.rows(self._at(sql.TALLY)))
        return [Tally(queue, task, pack.STATES[code], n, oldest, size) for queue, task, code, n, oldest, size in rows]

    def leaving(self, start: int, end: int, limit: int) -> list[Job]:
        return [pack.job(row) for row in self._rows(sql.LEAVING, (start, end, limit))]

    def prune(self, now: int, most_bytes: int, limit: int = 1000, by_queue: Mapping[str, int] | None = None) -> int:
        return self._pruning.prune(now, most_bytes, limit, by_queue or {})

    def pause(self, queue: str, paused: bool) -> None:
        self._call(lambda link: link.run(self._at(sql.PAUSE if paused else sql.RESUME), (queue,)))
        self._bells.ring(WORK)

    def queues(self) -> dict[str, bool]:
        found: dict[str, bool] = dict(self._rows(sql.QUEUES, self._floors.known()))
        self._floors.know(found)
        return dict(sorted(found.items()))

    def backlog(self, queues: Collection[str] | None, now: int, most: int) -> Backlog:
        names = [queue for queue, paused in self.queues().items() if not paused] if queues is None else [*queues]
        ((count, oldest),) = self._rows(sql.BACKLOG, (pack.texts(names), now, most, int(queues is None)))
        return Backlog(count, now if oldest is None else oldest)

    def mark(self, owner: str, marks: Sequence[tuple[bytes, int, bytes]]) -> None:
        if not marks:
            return
        ids, epochs, told = zip(*marks, strict=True)
        values = (pack.uuids(ids), pack.ints(epochs), pack.blobs(told), owner)
        self._call(lambda link: link.run(self._at(sql.MARK), values))
        self._bells.ring(STEPS)

    def limit(self, name: str, limit: Limit | None) -> None:
        if limit is None or not self._patiently(lambda link: change_limit(link, self._schema, name, limit)):
            self._set_limit(name, limit)
        self._bells.ring(WORK)

    def _set_limit(self, name: str, limit: Limit | None) -> None:
        """StoreBusy if somebody's transaction that has enqueued stays open for too long."""
        until = time.monotonic() + PATIENT
        while time.monotonic() < until:
            try:
                return self._patiently(lambda link: set_limit(link, self._schema, name, limit))
            except NotAlone:
                time.sleep(about(0.3))  # in which the others get on
        raise StoreBusy(
            f"{self.url}: the limit {name} is not set: a transaction that enqueued has been open for over {PATIENT} s;"
            " see pg_stat_activity, end it, and set the limit again"
        )

    def limits(self) -> dict[str, tuple[Limit, Level]]:
        return self._call(lambda link: limits_and_levels(link, self._schema))

    def recount(self, now: int) -> int:
        wrong = [name for (name,) in self._rows(sql.MISCOUNTED)]
        put_right = self._patiently(lambda link: recount(link, self._schema, wrong)) if wrong else 0
        if self._call(lambda link: open_wrongly_closed(link, self._schema, now)) or put_right:
            self._bells.ring(WORK)
        return put_right

    def cells(self, prefix: str) -> dict[str, bytes]:
        return dict(self._rows(sql.CELLS, (prefix, beyond(prefix))))

    def write(self, name: str, value: bytes | None, was: bytes | None) -> bool:
        if value is None and was is None:
            return not self._rows(sql.ABSENT, (name,))
        if was is None:
            return self._changed(sql.WRITE_NEW, (name, value))
        return self._changed(sql.ERASE, (name, was)) if value is None else self._changed(sql.WRITE, (name, value, was))

    # Bells, and the rest

    def bell(self) -> Bell:
        return self._bells.bell()

    def ring_recall(self) -> None:
        self._bells.ring(RECALL)

    def time(self) -> int:
        ((told,),) = self._rows(sql.TIME)
        return int(told)

    def facts(self) -> list[Fact]:
        return self._call(lambda link: facts(link, self._place))

    def close(self) -> None:
        """Gives back the connections; in a forked child, only lets go of those of its parent."""
        if self._pid == os.getpid():
            self._bells.close()
            self._connections.close()

    def _at(self, statement: str) -> str:
        return sql.at(statement, self._schema)

    def _call(self, work: Callable[[Link], Answer]) -> Answer:
        return self._connections.call(work)

    def _patiently(self, work: Callable[[Link], Answer]) -> Answer:
        """In one transaction, which may take longer than others."""

        def patient(link: Link) -> Answer:
            usual, link.seconds = link.seconds, PATIENT + 1.0
            try:
                with link.transaction_of(
                    f"SET LOCAL statement_timeout = '{PATIENT}s'", "SET LOCAL enable_seqscan = on"
                ):
                    return work(link)
            finally:
                link.seconds = usual

        return self._call(patient)

    def _rows(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        text = self._at(statement)
        return self._call(lambda link: link.rows(text, values))

    def _changed(self, statement: str, values: Sequence[Any]) -> bool:
        return self._call(lambda link: link.run(self._at(statement), values)) > 0


def _told(made: list[int] | None, count: int) -> list[bool]:
    """For each of so many changes whether it is among those that were made."""
    if made is not None and len(made) == count:
        return [True] * count
    valid = [False] * count
    for place in made or ():
        valid[place - 1] = True
    return valid
