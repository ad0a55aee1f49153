"""The PostgreSQL store: several hosts, many writers, the database that is there already.

Why it is fast: each hot verb is one round trip, to a function that is planned once in a session. A claim skips rows
that others have locked. Partial indexes keep finished and scheduled jobs out of its way; the scan start does so for
deleted rows that cannot be vacuumed yet (`functions/exchange.sql`). The functions keep no state in the session, so they
work behind any pooler.
"""

import itertools
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from msgspec.structs import replace

from tarry.errors import QueueFull, StoreError
from tarry.model.bound import Bound, KeyBounds
from tarry.model.change import Change
from tarry.model.job import Job, State
from tarry.model.limit import KeyLimit, Level, Limit
from tarry.model.wake import WakeReason, wake_reasons
from tarry.store.postgres import packing as pack
from tarry.store.postgres import sql
from tarry.store.postgres.diagnostics import diagnose
from tarry.store.postgres.finished import PostgresFinished
from tarry.store.postgres.flows import PostgresFlows, split_ids
from tarry.store.postgres.history import PostgresHistory
from tarry.store.postgres.lane_reader import PostgresLaneReader
from tarry.store.postgres.limits import PostgresLimits, PostgresRooms, limit_key, set_limit
from tarry.store.postgres.link.connection import PostgresConnection
from tarry.store.postgres.link.pool import PostgresPool
from tarry.store.postgres.link.postgres_errors import translate_errors
from tarry.store.postgres.link.url import parse_url
from tarry.store.postgres.migrate import create_or_check
from tarry.store.postgres.pausing import await_claims
from tarry.store.postgres.scan_start import ScanStarts, set_aside_if_slow
from tarry.store.postgres.sql import WAITING
from tarry.store.postgres.transactional import caller_connection, insert_within
from tarry.store.postgres.wakeup import PostgresHub
from tarry.store.rules.base import (
    NOTHING,
    PROMOTED_AT_ONCE,
    Backlog,
    Diagnostic,
    Exchange,
    PlaceAnswer,
    ShareChange,
    ValuesWithin,
    Want,
    gives_more,
)
from tarry.store.rules.history.journal import record_of_changes, record_of_new
from tarry.store.rules.kept_places import given_up
from tarry.store.rules.lanes import JobKey, earliest
from tarry.store.rules.sleeper import Wakeup
from tarry.store.shared.admission import Admission, admit_all
from tarry.store.shared.bounded_room import RoomTable
from tarry.store.shared.columns import CLAIMED
from tarry.store.shared.state_codes import CODE
from tarry.store.shared.uncertain import NOT_DONE, a_part_is_done
from tarry.store.sql.columns import Row
from tarry.store.sql.flow_tables import touching_flows
from tarry.store.sql.lane_claim import claim_in_lanes
from tarry.store.sql.pruning import Pruning
from tarry.store.sql.sql_store import SqlStore
from tarry.store.sql.waiting import SqlWaiting

T = TypeVar("T")
Packed = Callable[[Sequence[Change]], Row]
FetchRows = Callable[[str, Row], list[Row]]
# One command must stay within its timeout.
BATCH = 5000
"""The most jobs or changes in one command."""
_MADE = len(CLAIMED)
_OF_FLOWS = _MADE + 7
"""The columns of `exchange_nodes_v1`: a job, then what the last row says, of all and of flows."""
_NOTHING_RELEASED = 0, False, b""


def _locks_first(change: Change) -> bool:
    """Whether levels or jobs are locked before the change is made. No claim may come in that transaction: it would lock
    levels once more, in another order than others."""
    return bool(change.keeps_places or change.seen_times or change.rate_correction)


def _is_held_back(jobs: Sequence[Job], limit: int) -> bool:
    """Whether a claim had room for more jobs of lanes: those that are left, if any, wait for others of their limits."""
    return 0 < len(jobs) < limit and any(job.lane is not None for job in jobs)


class _NotSuperseded(Exception):
    """Rolls back."""


class PostgresStore(SqlStore):
    """Jobs in a schema of a database; `url` as in docs/stores.md.

    durable: whether each commit waits for the disk, as producers and people need. A worker opens the store with
    durable=False: a power cut of the server may then lose a claim or an outcome, and the job runs again. Inserts always
    wait for the disk.
    """

    _sql = sql.STATEMENTS
    is_pooled = True

    def __init__(self, url: str, durable: bool = True) -> None:
        self._url = parse_url(url)
        self.url = self._url.shown
        self._schema = self._url.schema
        self._durable = durable
        self._pid = os.getpid()
        self._pool = PostgresPool(self._url)
        self._hub = PostgresHub(self._pool)
        self._scan_starts = ScanStarts()
        self._pruning = Pruning(PostgresFinished(self, self._pool, self._schema))
        self.history = PostgresHistory(self, self._pool)
        self.flows: PostgresFlows = PostgresFlows(self)
        self.waiting = SqlWaiting(WAITING, self._rows)
        try:
            create_or_check(self._pool)
        except BaseException:
            self.close()
            raise

    # Keeping

    def insert(self, jobs: Sequence[Job]) -> list[bytes]:
        stored_ids: list[bytes] = []
        for start in range(0, len(jobs), BATCH):
            with a_part_is_done(start > 0):
                stored_ids += self._insert_batch(jobs[start : start + BATCH])
        return stored_ids

    def _insert_batch(self, jobs: Sequence[Job]) -> list[bytes]:
        # If none was sent for a while, the transaction itself sends the notice, which is soonest.
        notice = self._hub.reserve(WakeReason.WORK)
        is_plain = len(jobs) == 1 and pack.is_plain(jobs[0])
        began = time.monotonic()
        others = self._insert_plain(jobs[0], notice) if is_plain else self._insert_any(jobs, notice)
        set_aside_if_slow(self._pool, began, [job.id for job in jobs])
        self._hub.notify(WakeReason.WORK, is_sent=notice[0] is not None)
        stored_ids = [job.id for job in jobs]
        for place, id in others:
            stored_ids[place - 1] = id
        return stored_ids

    def _insert_plain(self, job: Job, notice: tuple[str | None, str]) -> list[Row]:
        text, more = (sql.INSERT_PLAIN, ()) if notice[0] is None else (sql.INSERT_PLAIN_AND_NOTIFY, notice)
        with translate_errors(self._url):
            values = *pack.plain_job(job), record_of_new((job,)), *more
        self._call(lambda connection: connection.run(self._for_schema(text), values))
        return []  # there is no key that another job could hold

    def _insert_any(self, jobs: Sequence[Job], notice: tuple[str | None, str]) -> list[Row]:
        """The places of the jobs whose key is held, and its holders."""
        keyed = any(job.key is not None for job in jobs)
        with translate_errors(self._url):
            values = (*pack.new_jobs(jobs), keyed, False, *notice, record_of_new(jobs))
        return self._rows(sql.INSERT, values)

    def insert_bounded(
        self,
        jobs: Sequence[Job],
        bounds: Mapping[str, Bound],
        now: int,
        freed: Collection[str] = (),
        key_bounds: KeyBounds = NOTHING,
    ) -> list[bytes | QueueFull]:
        answers: list[bytes | QueueFull] = []
        for start in range(0, len(jobs), BATCH):
            with a_part_is_done(start > 0):
                batch = jobs[start : start + BATCH]
                admit = partial(Admission, jobs=batch, bounds=bounds, now=now, freed=freed, key_bounds=key_bounds)
                answers += self._insert_admitted(batch, admit)
        return answers

    def _insert_admitted(self, jobs: Sequence[Job], admit: Callable[[RoomTable], Admission]) -> list[bytes | QueueFull]:
        began = time.monotonic()

        def work(connection: PostgresConnection) -> list[bytes | QueueFull]:
            with connection.transaction_with(*self._claim_settings(lazy=False)):
                admission = admit(PostgresRooms(connection, self._schema))
                return admission.insert(lambda admitted: self._insert_with(connection, admitted))

        answers = self._call(work)
        set_aside_if_slow(self._pool, began, [id for id in answers if isinstance(id, bytes)])
        self._hub.notify(WakeReason.WORK)
        return answers

    def _insert_with(self, connection: PostgresConnection, jobs: Sequence[Job]) -> list[bytes]:
        keyed = any(job.key is not None for job in jobs)
        with translate_errors(self._url):
            values = (*pack.new_jobs(jobs), keyed, False, None, "", record_of_new(jobs))
        stored_ids = [job.id for job in jobs]
        for place, id in connection.rows(self._for_schema(sql.INSERT), values):
            stored_ids[place - 1] = bytes(id)
        return stored_ids

    def supersede(self, change: Change, job: Job, now: int) -> bool:
        began = time.monotonic()
        if done := self._call(lambda connection: self._supersede(connection, change, job, now)):
            set_aside_if_slow(self._pool, began, [change.id, job.id])
            self._hub.notify(WakeReason.WORK, *wake_reasons([change], True))
        return done

    def _supersede(self, connection: PostgresConnection, change: Change, job: Job, now: int) -> bool:
        packed = self._packed([change], now, (), (0, PROMOTED_AT_ONCE, "", 0))
        with translate_errors(self._url):
            new = (*pack.new_jobs([job]), True, False, None, "", record_of_new([job]))
        try:
            with connection.transaction_with(*self._claim_settings(lazy=False)):
                limits = self._limits(connection)
                limits.keep_places([change], now)
                # The first argument: not without an fsync, since a job is stored.
                *_, end = connection.rows(self._for_schema(sql.EXCHANGE), (False, *packed[1:]))
                if not end[_MADE]:
                    raise _NotSuperseded
                limits.keep_followed_place(change, now)
                if connection.rows(self._for_schema(sql.INSERT), new):
                    raise _NotSuperseded
        except _NotSuperseded:
            return False
        return True

    def oldest_waiting(self, queue: str, limit: int) -> list[Job]:
        return [self._job(row) for row in self._rows_of_all(sql.OLDEST_WAITING, (queue, max(0, limit)))]

    def _take_room(self, jobs: Sequence[Job], bounds: Mapping[str, Bound], now: int, key_bounds: KeyBounds) -> None:
        """Takes room for all jobs in a transaction of its own; QueueFull."""

        def work(connection: PostgresConnection) -> None:
            with connection.transaction_with():
                admit_all(PostgresRooms(connection, self._schema), jobs, bounds, now, key_bounds)

        if bounds or key_bounds:
            self._call(work)

    def insert_within(
        self,
        connection: Any,
        jobs: Sequence[Job],
        bounds: Mapping[str, Bound] = NOTHING,
        now: int = 0,
        key_bounds: KeyBounds = NOTHING,
    ) -> list[bytes]:
        # Not in the caller's transaction, which would keep all other producers waiting until it ends. If it rolls back,
        # the next count gives the room back.
        self._take_room(jobs, bounds, now, key_bounds)
        return insert_within(connection, jobs, self._pool)

    def kv_within(self, connection: Any) -> ValuesWithin:
        from tarry.store.sql.values_within import CallerValues  # noqa: PLC0415 - few put schedules so

        caller, tables = caller_connection(connection, self._pool), self._for_schema(self._sql.tables)

        def run(statement: str, values: Sequence[Any]) -> Sequence[Row]:
            # A driver's cursor has rows only of a statement that answers some.
            return caller.rows(statement if statement.startswith("SELECT") else f"{statement} RETURNING 1", values)

        return CallerValues(run, f"{tables}cell", "%s::text", "%s::bytea", self._sql.insert_new)

    # Claiming and changing

    def exchange(
        self, changes: Sequence[Change], wants: Sequence[Want], limit: int, owner: str, lease: int, now: int
    ) -> Exchange:
        valid, more_to_release = list[bool](), False
        *parts, last = pack.split_changes(changes, BATCH) if changes else ((),)
        if wants and any(map(_locks_first, last)):
            parts, last = [*parts, last], ()
        for part in parts:
            with a_part_is_done(bool(valid)):
                first = self._exchange_batch(part, (), 0, "", 0, now)
            valid, more_to_release = valid + first.valid, more_to_release or first.more_to_release
        with a_part_is_done(bool(valid)):
            answer = self._exchange_batch(last, wants, limit, owner, lease, now)
        if _is_held_back(answer.jobs, limit):
            answer = replace(answer, is_held_back=True)
        # Where there are jobs more are likely to come: without NOTIFY sleepers look more often again.
        if answer.jobs:
            self._hub.poll_often()
        return (
            replace(answer, valid=valid + answer.valid, more_to_release=more_to_release or answer.more_to_release)
            if valid
            else answer
        )

    def _exchange_batch(
        self, changes: Sequence[Change], wants: Sequence[Want], limit: int, owner: str, lease: int, now: int
    ) -> Exchange:
        wants = wants if limit > 0 else ()
        packed = partial(self._packed, now=now, wants=wants, claimer=(max(limit, 0), PROMOTED_AT_ONCE, owner, lease))
        began = time.monotonic()
        if any(map(_locks_first, changes)):
            *rows, end = self._call(lambda connection: self._exchange_locked(connection, changes, packed, now))
        else:
            *rows, end = self._exchange_rows(changes, packed, self._rows)
        made, on_time, late, scheduled, next_due, limited, in_lanes = end[_MADE:_OF_FLOWS]
        released, more_to_release, awake = end[_OF_FLOWS:] or _NOTHING_RELEASED
        self._scan_starts.update(wants, zip(on_time, late, strict=True), scheduled)
        valid = pack.valid(made, len(changes))
        # Also where nothing is limited: another job may wait for the end of such an attempt.
        if gone := given_up(changes, valid):
            # No error may leave this: changes are made. What is not freed now ends with its lease.
            with suppress(StoreError):
                self._call(lambda connection: self._limits(connection).free_places(gone, now, limited))
        if changes:
            set_aside_if_slow(self._pool, began, [*(change.id for change in changes), *split_ids(awake)])
            self._hub.notify(*wake_reasons(changes, (limited and in_lanes is not None) or released > 0))
        jobs = pack.unpack_claimed((row[:_MADE] for row in rows), owner, now)
        again, unanswered = None, False
        # Where keys have numbers of their own, the function claims nothing: limits are shared out in Python, over a few
        # statements.
        if in_lanes:
            try:
                jobs, again = self._claim_in_lanes(wants, limit, owner, lease, now)
            except StoreError as error:
                if not changes:
                    raise
                # No error may leave this: the changes are made. The next exchange comes at once, and raises.
                next_due, unanswered = 0, not isinstance(error, NOT_DONE)
        # A claim is a step that watchers of jobs want to see; with changes it was told above.
        if jobs and not changes:
            self._hub.notify(WakeReason.STEP)
        return Exchange(valid, jobs, earliest(next_due, again), unanswered=unanswered, more_to_release=more_to_release)

    def _exchange_rows(self, changes: Sequence[Change], packed: Packed, rows: FetchRows) -> list[Row]:
        if touching_flows(changes):
            return self.flows.exchange(changes, packed, rows)
        return rows(sql.EXCHANGE, packed(changes))

    def _exchange_locked(
        self, connection: PostgresConnection, changes: Sequence[Change], packed: Packed, now: int
    ) -> list[Row]:
        with connection.transaction_with(*self._claim_settings()):
            changes = pack.lock_and_compare(connection, self._schema, changes)
            limits = self._limits(connection)
            locked = limits.lock_to_correct(changes)
            limits.keep_places(changes, now)
            rows = self._exchange_rows(
                changes, packed, lambda statement, values: connection.rows(self._for_schema(statement), values)
            )
            valid = pack.valid(rows[-1][_MADE], len(changes))
            limits.correct(locked, itertools.compress(changes, valid), now)
            return rows

    def _packed(self, changes: Sequence[Change], now: int, wants: Sequence[Want], claimer: Row) -> Row:
        """The arguments of `exchange_v1`. claimer: the last ones, but for what is counted."""
        with translate_errors(self._url):
            packed = *pack.changes(changes), now, *self._scan_starts.pack_wants(wants)
        return not self._durable, *packed, *claimer, record_of_changes(changes)

    def _claim_in_lanes(
        self, wants: Sequence[Want], limit: int, owner: str, lease: int, now: int
    ) -> tuple[list[Job], int | None]:
        def work(connection: PostgresConnection) -> tuple[list[Row], int | None]:
            with connection.transaction_with(*self._claim_settings()):
                reader = PostgresLaneReader(connection, self._schema, owner, now)
                again = claim_in_lanes(reader, wants, limit, now)
                if reader.claimed:
                    connection.run(self._for_schema(sql.LEASE), (owner, now + lease, now + lease // 2))
                return reader.claimed, again

        rows, again = self._call(work)
        return pack.unpack_claimed(rows, owner, now), again

    def _claim_settings(self, lazy: bool = True) -> list[str]:
        # The claim, or insert, holds locks that others wait for. If this process stops in the middle, the server must
        # end the transaction; behind a pooler the session has no such setting.
        idle = f"SET LOCAL idle_in_transaction_session_timeout = {self._url.timeout * 1000:.0f}"
        plans = "SET LOCAL enable_seqscan = off"
        return [idle, plans] if self._durable or not lazy else [idle, plans, "SET LOCAL synchronous_commit = off"]

    def next_due(self) -> int | None:
        return earliest(*self._rows(sql.NEXT_DUE, (self._scan_starts.scheduled_start(),))[0])

    # Owning

    def extend(self, owner: str, held: Collection[tuple[bytes, int]], lease: int, now: int) -> list[bytes]:
        if not held:
            return []

        def work(connection: PostgresConnection) -> list[Row]:
            # Nothing is written while more than half of the lease is left.
            if not connection.rows(self._for_schema(sql.LEASED), (owner, now + lease // 2)):
                connection.run(self._for_schema(sql.LEASE), (owner, now + lease, now + lease))
            return connection.rows(self._for_schema(sql.OWNED), (pack.uuids([id for id, _ in held]),))

        found = set(self._call(work))
        running = CODE[State.RUNNING]
        return [id for id, epoch in held if (id, epoch, running, owner) not in found]

    def _jobs_by_id(self, ids: Collection[bytes]) -> list[Job]:
        return self._jobs(f"{self._sql.jobs} WHERE id = ANY (?1)", (pack.uuids(list(ids)),))

    def pause(self, queue: str, paused: bool) -> None:
        super().pause(queue, paused)
        if paused:
            await_claims(self._rows)
        self._hub.notify(WakeReason.WORK)

    def queues(self) -> dict[str, bool]:
        found: dict[str, bool] = dict(self._rows(sql.QUEUES, self._scan_starts.pack_known()))
        self._scan_starts.add_queues(found)
        return dict(sorted(found.items()))

    def backlog(self, queues: Collection[str] | None, now: int, most: int) -> Backlog:
        names = [queue for queue, paused in self.queues().items() if not paused] if queues is None else [*queues]
        ((count, oldest),) = self._rows(sql.BACKLOG, (pack.texts(names), now, most, int(queues is None)))
        return Backlog(count, now if oldest is None else oldest)

    def save_progress(self, owner: str, marks: Sequence[tuple[bytes, int, bytes]]) -> list[bool]:
        if not marks:
            return []
        ids, epochs, progress = zip(*marks, strict=True)
        values = (pack.uuids(ids), pack.ints(epochs), pack.blobs(progress), owner)
        rows = self._call(lambda connection: connection.rows(self._for_schema(sql.SAVE_PROGRESS), values))
        self._hub.notify(WakeReason.STEP)
        owned = {(id.bytes, epoch) for id, epoch in rows}
        return [(id, epoch) in owned for id, epoch, _ in marks]

    def limit(self, name: str, limit: Limit | None) -> None:
        set_limit(self._pool, self._schema, name, limit)
        self._hub.notify(WakeReason.WORK)

    def change_shares(self, changes: Sequence[ShareChange], now: int) -> list[bool]:
        def work(connection: PostgresConnection) -> list[bool]:
            with connection.transaction_with(*self._claim_settings()):
                return self._limits(connection).change_shares(changes, now)

        made = self._call(work)
        if gives_more(changes, made):
            self._hub.notify(WakeReason.WORK)
        return made

    def limit_key(self, task: str, lane: str, limit: KeyLimit | None) -> None:
        limit_key(self._pool, self._schema, task, lane, limit)
        self._hub.notify(WakeReason.WORK)

    def limits(self) -> dict[str, tuple[Limit, Level]]:
        return self._call(lambda connection: self._limits(connection).with_levels())

    def levels(self, names: Sequence[str]) -> list[Level]:
        return self._call(lambda connection: self._limits(connection).levels(names))

    def take_place(self, name: str, key: JobKey, until: int, cost: int, now: int) -> PlaceAnswer:
        def work(connection: PostgresConnection) -> PlaceAnswer:
            with connection.transaction_with(*self._claim_settings()):
                return self._limits(connection).take_place(name, key, until, cost, now)

        return self._call(work)

    def recount(self, now: int) -> int:
        if not self._call_long(lambda connection: self._limits(connection).needs_recount(now)):
            return 0
        wrong = self._call_long(lambda connection: self._limits(connection).recount(now))
        self._hub.notify(WakeReason.WORK)
        return wrong

    def _limits(self, connection: PostgresConnection) -> PostgresLimits:
        return PostgresLimits(connection, self._schema)

    # Wake-up, and the rest

    def wakeup(self) -> Wakeup:
        return self._hub.wakeup()

    def wake(self, *reasons: WakeReason) -> None:
        """Wakes sleepers."""
        self._hub.notify(*reasons)

    def wake_for_recall(self) -> None:
        self.wake(WakeReason.RECALL)

    def time(self) -> int:
        return int(self._rows(sql.TIME)[0][0])

    def diagnostics(self) -> list[Diagnostic]:
        return self._call(lambda connection: diagnose(connection, self._url))

    def close(self) -> None:
        """Closes the connections. A forked child leaves those of its parent alone."""
        if self._pid == os.getpid():
            self._hub.close()
            self._pool.close()

    def _for_schema(self, statement: str) -> str:
        return sql.for_schema(statement, self._schema)

    def _call(self, work: Callable[[PostgresConnection], T]) -> T:
        return self._pool.call(work)

    def _call_long(self, work: Callable[[PostgresConnection], T]) -> T:
        return self._pool.call_long(work)

    def _rows(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        return self._call(lambda connection: connection.rows(self._for_schema(statement), values))

    def _rows_of_all(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        return self._call_long(lambda connection: connection.rows(self._for_schema(statement), values))

    def _each_cell(self) -> tuple[str, str, str]:
        return sql.INSERT_CELLS, sql.DELETE_CELLS, sql.UPDATE_CELLS

    def _change_cells(self, statement: str, rows: Sequence[Sequence[Any]]) -> int:
        names, *values = zip(*rows, strict=True)
        return self._change(statement, (pack.texts(names), *map(pack.blobs, values)))

    def _change_each(self, statement: str, rows: Sequence[Sequence[Any]]) -> int:
        text = self._for_schema(statement)

        def work(connection: PostgresConnection) -> int:
            if len(rows) == 1:
                return connection.run(text, rows[0])
            with connection.transaction_with():
                return sum(connection.run(text, row) for row in rows)

        return self._call(work)
