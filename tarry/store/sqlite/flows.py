"""Flows and signals in the embedded store's file."""

from array import array
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from tarry.model.change import Change
from tarry.model.flow.node_ids import node_id
from tarry.model.job import RELATIVE, Job, State
from tarry.model.wake import WakeReason
from tarry.store.rules.base import band
from tarry.store.rules.flow_settle import Settled
from tarry.store.rules.flows import NewFlow
from tarry.store.rules.lanes import assign_lanes
from tarry.store.shared.state_codes import CODE
from tarry.store.sql.columns import Row
from tarry.store.sql.flow_signals import SqlSignals
from tarry.store.sql.flow_tables import FlowSql, SqlFlowTables, touching_flows
from tarry.store.sql.flows import FlowStore, SqlFlows
from tarry.store.sqlite.file import call_again, transaction
from tarry.store.sqlite.insert import insert_any
from tarry.store.sqlite.limits import SqliteLimits, SqliteTransaction
from tarry.store.sqlite.link.connection import Statements
from tarry.store.sqlite.link.database import Database

T = TypeVar("T")
# The transaction has the write lock of the file, so no row needs one.
SQL = FlowSql(tables="tarry_", lock="", greatest="max")
_LANE = """lane = iif(lane IS NULL AND EXISTS (
    SELECT 1 FROM tarry_limit WHERE name IN ('task:' || task, 'each:' || task)), '', lane)"""
_DUE = f"max(?3, iif(due < {RELATIVE}, ?3 + due, due))"
# As `rules.release`.
_RELEASE = f"""UPDATE tarry_job SET state = iif({_DUE} > ?3, 0, 1), state_since = ?3, due = {_DUE},
    expires = iif(expires > 0 AND expires < {RELATIVE}, {_DUE} + expires, expires), {_LANE}
    WHERE id >= ?1 AND id < ?2 AND state = {CODE[State.BLOCKED]} RETURNING id, state, queue, claim_order, task, lane"""
# As `rules.wake`.
_WAKE = """UPDATE tarry_job SET state = 1, due = min(due, ?3), state_since = ?3
    WHERE id = ?1 AND epoch = ?2 AND state = 0 RETURNING id, state, queue, claim_order, task, lane"""
_NOTHING: tuple[Settled, Sequence[bytes]] = Settled(), ()


class SqliteFlowTables(SqliteTransaction, SqlFlowTables):
    """The rows of flows, in a transaction that has the write lock. array: makes one value of many."""

    sql = SQL

    def __init__(self, db: Statements, array: Callable[[Any], Any]) -> None:
        super().__init__(db)
        self._array = array
        self.released: list[bytes] = []
        """The ids of the jobs that it made ready or scheduled."""

    def among(self, column: str, values: Collection[bytes] | Collection[int], place: int) -> tuple[str, Sequence[Any]]:
        numbers = [value for value in values if isinstance(value, int)]
        bound = self._array(array("q", numbers) if numbers else tuple(values))
        return f"{column} IN (SELECT value FROM carray(?{place}))", (bound,)

    def insert_jobs(self, jobs: Sequence[Job]) -> list[bytes]:
        return insert_any(self._db, assign_lanes(jobs, SqliteLimits(self._db).read()))

    def release(self, flow: bytes, first: int, count: int, now: int) -> int:
        return self._ready(_RELEASE, (node_id(flow, first), node_id(flow, first + count), now))

    def wake(self, rows: Sequence[Row], now: int) -> int:
        return sum(self._ready(_WAKE, (*row, now)) for row in rows)

    def _ready(self, statement: str, values: Sequence[Any]) -> int:
        """How many jobs a statement changed; opens the lanes of those that are ready by it."""
        rows = self.rows(statement, values)
        self.released += [bytes(id) for id, *_ in rows]
        laned = [place for _, state, *place in rows if state == 1 and place[-1] is not None]
        SqliteLimits(self._db).add((queue, band(-claim_order), task, lane) for queue, claim_order, task, lane in laned)
        return len(rows)


class SqliteFlowStore(FlowStore, Protocol):
    """What it needs of the store."""

    @property
    def path(self) -> Path:
        """Of its file."""
        ...

    def lend(self) -> AbstractContextManager[Database]:
        """The connection, for nobody else meanwhile."""
        ...

    def lend_to_insert(self) -> AbstractContextManager[Database]:
        """As `lend`. StoreFull or StoreUnavailable if nothing more may be stored."""
        ...

    def caller_statements(self, connection: Any) -> Statements:
        """A caller's connection, once it is fit for inserts and has the write lock."""
        ...

    def expect(self, ids: Collection[bytes]) -> None:
        """Wakes sleepers once the caller has committed, which is when these jobs can be seen."""

    def wake(self, *reasons: WakeReason) -> None:
        """Wakes sleepers."""


class SqliteFlows(SqlFlows):
    """The flows of one file."""

    def __init__(self, store: SqliteFlowStore) -> None:
        super().__init__(store, SQL)
        self._store = store

    def _write(self, work: Callable[[SqlFlowTables], T]) -> T:
        with self._store.lend() as db:
            return call_again(partial(_transact, db, work), self._store.path)

    def _wake(self, *reasons: WakeReason) -> None:
        self._store.wake(*reasons)

    def _insert(self, new: NewFlow, now: int) -> bytes:
        with self._store.lend_to_insert() as db:
            stored_id, is_new = call_again(partial(_transact, db, lambda tables: tables.store(new)), self._store.path)
        if is_new:
            self._wake(WakeReason.WORK)
        return stored_id

    def _insert_nodes(self, jobs: Sequence[Job]) -> None:
        with self._store.lend_to_insert() as db, transaction(db):
            if jobs:
                SqliteFlowTables(db, db.array).add_nodes(jobs)

    def insert_within(self, connection: Any, new: NewFlow, now: int) -> bytes:
        # Storing needs no arrays, which a caller's connection may not have.
        stored_id, is_new = SqliteFlowTables(self._store.caller_statements(connection), tuple).store(new)
        self._store.expect({stored_id} if is_new else ())
        return stored_id


def _transact(db: Database, work: Callable[[SqlFlowTables], T]) -> T:
    with transaction(db):
        return work(SqliteFlowTables(db, db.array))


def settle_flows(
    db: Database, changes: Sequence[Change], valid: Sequence[bool], now: int
) -> tuple[Settled, Sequence[bytes]]:
    """What those of the changes that were made do to flows and signals, in the transaction that made them; and the ids
    of the jobs that it made ready or scheduled."""
    made = touching_flows(changes, valid)
    if not made:
        return _NOTHING
    tables = SqliteFlowTables(db, db.array)
    return tables.settle(made, now, SqlSignals(tables).wait), tables.released
