"""The verbs of flows and signals in an SQL database."""

from abc import abstractmethod
from collections.abc import Callable, Collection, Sequence
from typing import Any, ClassVar, Protocol, TypeVar

from msgspec.structs import replace

from tarry.model.duration import MINUTE
from tarry.model.flow.node_ids import node_id
from tarry.model.flow.signal import Signal, SignalWait
from tarry.model.flow_row import FlowChange, FlowRow, Phase
from tarry.model.job import HELD, Job, State
from tarry.model.wake import WakeReason
from tarry.store.rules import flows as verbs
from tarry.store.rules.flow_settle import RELEASING, Settled, change_flow, release_flow
from tarry.store.rules.flow_turns import Turns
from tarry.store.rules.flows import FLOW_TASK, RELEASED_AT_ONCE, STORING_TIME, FlowQuery, NewFlow, StoreFlows
from tarry.store.shared.state_codes import CODE
from tarry.store.sql.columns import Row, name_text
from tarry.store.sql.flow_signals import (
    LOOKED_AT,
    SqlSignals,
    asleep_after,
    awaiting_row,
    is_over,
    next_waking,
    signal_row,
)
from tarry.store.sql.flow_tables import LAST_INDEX, FlowSql, SqlFlowTables, flow_row, gate_row
from tarry.store.sql.prefix import prefix_end
from tarry.store.sql.sql_store import SqlStatements, fitting

T = TypeVar("T")
_SUMMED_EVERY = MINUTE
_POSTPONED = STORING_TIME
"""When a flow that has a node that still runs is looked at again."""


class FlowStore(Protocol):
    """What it needs of an SQL store: see `SqlStore`."""

    _sql: ClassVar[SqlStatements]

    def _rows(self, statement: str, values: Sequence[Any] = ()) -> Sequence[Row]: ...

    def _jobs(self, statement: str, values: Sequence[Any]) -> list[Job]: ...

    def get(self, ids: Sequence[bytes]) -> list[Job | None]: ...


class SqlFlows(StoreFlows):
    """The flows of one SQL store."""

    def __init__(self, store: FlowStore, sql: FlowSql) -> None:
        self._rows, self._jobs, self._get = store._rows, store._jobs, store.get
        self._sql, self._job_sql = sql, store._sql
        self._turns = Turns()
        self._summed_at, self._ended_nodes = -_SUMMED_EVERY, 0
        """When the nodes of ended flows were summed up last, and how many there were."""
        self._looked_at = b""
        """The job that was checked last of those that wait for a signal."""

    @abstractmethod
    def _write(self, work: Callable[[SqlFlowTables], T]) -> T:
        """Does the work in one transaction, which has the write lock where there is one for all."""

    @abstractmethod
    def _wake(self, *reasons: WakeReason) -> None:
        """Wakes sleepers."""

    def _insert(self, new: NewFlow, now: int) -> bytes:
        stored_id, is_new = self._write(lambda tables: tables.store(new))
        if is_new:
            self._wake(WakeReason.WORK)
        return stored_id

    def _insert_nodes(self, jobs: Sequence[Job]) -> None:
        if jobs:
            self._write(lambda tables: tables.add_nodes(jobs))

    def grow(self, flow: bytes, count: int) -> int | None:
        return self._write(lambda tables: tables.grow(flow, count))

    def nodes(self, flow: bytes, after: int, limit: int, states: Collection[State] = ()) -> list[Job]:
        some = f" AND state IN ({', '.join(str(CODE[state]) for state in states)})" if states else ""
        where = f"id > {self._sql.given(1)} AND id <= {self._sql.given(2)}{some}"
        statement = f"{self._job_sql.jobs} WHERE {where} ORDER BY id LIMIT {max(0, limit)}"
        return self._jobs(statement, (node_id(flow, max(0, after)), node_id(flow, LAST_INDEX)))

    def find(self, query: FlowQuery) -> list[FlowRow]:
        where, values = _conditions(query, self._sql, self._job_sql)
        statement = self._sql.select(f"{where} ORDER BY id DESC LIMIT {max(0, query.limit)}")
        rows = [flow_row(row) for row in self._rows(statement, values)]
        return [replace(row, root=root) for row, root in zip(rows, self._get([row.id for row in rows]), strict=True)]

    def get(self, flow: bytes) -> FlowRow | None:
        rows = self._rows(self._sql.select(f"id = {self._sql.given(1)}"), (flow,))
        return flow_row(rows[0]) if rows else None

    def change(self, change: FlowChange, now: int) -> bool:
        settled = self._write(lambda tables: change_flow(tables, change, now))
        if settled is not None:
            self._announce(settled)
        return settled is not None

    def _announce(self, settled: Settled) -> None:
        reasons = ((WakeReason.WORK, settled.released), (WakeReason.RESULT, settled.ended))
        if due := [reason for reason, happened in reasons if happened]:
            self._wake(*due)

    # What is left over. Each part begins with a look without locks, since mostly there is nothing.

    def release_more(self, now: int, limit: int = RELEASED_AT_ONCE) -> bool:
        return self._release(now, limit) or self._wake_left(now)

    def tidy(self, now: int, limit: int = RELEASED_AT_ONCE) -> bool:
        return self._delete(now, limit) or self._drop_signals(now, limit)

    def _release(self, now: int, limit: int) -> bool:
        return self._turns.take(lambda after, most: self._release_next(after, now, most), limit)

    def _release_next(self, after: bytes, now: int, most: int) -> tuple[bytes | None, int]:
        """Releases up to so many nodes of the first flow behind this one that has some: the flow, and how many."""
        # By the flow of each gate: there may be very many flows, but few gates are open.
        phases = ", ".join(str(int(phase)) for phase in RELEASING)
        moving = f"EXISTS (SELECT 1 FROM {self._sql.tables}flow f WHERE f.id = g.flow AND f.phase IN ({phases}))"
        where = f"next >= 0 AND flow > {self._sql.given(1)} AND {moving} ORDER BY flow, first LIMIT 1"
        rows = self._rows(self._sql.gates(where), (after or bytes(16),))
        if not rows:
            return None, 0
        flow = gate_row(rows[0]).flow
        settled = self._write(lambda tables: release_flow(tables, flow, now, most))
        self._announce(settled)
        return flow, settled.released

    def _wake_left(self, now: int) -> bool:
        """Goes on with a signal that has not woken all who wait."""
        rows = self._rows(next_waking(self._sql))
        for name, key in rows:
            self._wake_more(name_text(name), name_text(key), now)
        return bool(rows)

    def _delete(self, now: int, limit: int) -> bool:
        if storing := self._first(Phase.STORING, now - STORING_TIME):
            self._write(lambda tables: tables.abandon(storing.id, now))
            return True
        ended = self._first(Phase.ENDED, HELD)
        if ended is None or not (ended.at <= now or self._has_too_many(now)):
            return False
        if self._write(lambda tables: tables.delete_some(ended.id, now, limit, _POSTPONED)):
            self._ended_nodes -= ended.size
        return True

    def _first(self, phase: Phase, at: int) -> FlowRow | None:
        """The flow of that phase with the earliest `at`, if that is not after this time."""
        where = f"phase = {int(phase)} AND at <= ?1 ORDER BY at, id LIMIT 1"
        rows = self._rows(self._sql.select(where), (at,))
        return flow_row(rows[0]) if rows else None

    def _has_too_many(self, now: int) -> bool:
        """Whether ended flows have too many nodes. They are summed up once a minute, since there may be very many; if
        there are too many, once for each time of a call, since other hosts delete them too."""
        every = 1 if self._ended_nodes > verbs.KEPT_NODES else _SUMMED_EVERY
        if abs(now - self._summed_at) >= every:
            ((size,),) = self._rows(f"SELECT sum(size) FROM {self._sql.tables}flow WHERE phase = {int(Phase.ENDED)}")
            self._summed_at, self._ended_nodes = now, int(size or 0)
        return self._ended_nodes > verbs.KEPT_NODES

    def _drop_signals(self, now: int, limit: int) -> bool:
        if self._rows(f"SELECT 1 FROM {self._sql.tables}signal WHERE until > 0 AND until <= ?1 LIMIT 1", (now,)):
            return self._write(lambda tables: SqlSignals(tables).drop_old(now, limit))
        self._drop_waits()
        return False

    def _drop_waits(self) -> None:
        """Forgets those of some jobs that are said to wait for a signal and never will again."""
        rows = self._rows(asleep_after(self._sql), (self._looked_at or bytes(16),))
        self._looked_at = bytes(rows[-1][0]) if len(rows) == LOOKED_AT else b""
        if over := [(bytes(row[0]), row[1]) for row in rows if is_over(row)]:
            self._write(lambda tables: SqlSignals(tables).forget(over))

    # Signals

    def _send(self, signal: Signal, now: int) -> tuple[int, bool]:
        return self._wake_by(lambda signals: signals.send(signal, now))

    def _wake_more(self, name: str, key: str, now: int) -> tuple[int, bool]:
        return self._wake_by(lambda signals: signals.wake_more(name, key, now))

    def _wake_by(self, work: Callable[[SqlSignals], tuple[int, bool]]) -> tuple[int, bool]:
        woken, more = self._write(lambda tables: work(SqlSignals(tables)))
        if woken:
            self._wake(WakeReason.WORK, WakeReason.STEP)
        return woken, more

    def signals(self, job: bytes, name: str, key: str, after: int) -> list[Signal]:
        where = f"name = ?1 AND {self._sql.column.format('key')} = ?2 AND n > ?3"
        statement = f"SELECT n, id, value, until FROM {self._sql.tables}signal WHERE {where} ORDER BY n"
        return [signal_row(name, key, row) for row in self._rows(statement, (name, key, max(0, after)))]

    def awaiting(self, prefix: str, limit: int, after: SignalWait | None = None) -> list[SignalWait]:
        later, values = "", list[Any]()
        if after is not None:
            values = [after.name, after.name, after.key, after.name, after.key, after.job]
            later = f"""AND (a.name > ?3 OR a.name = ?4 AND a.key > ?5
                OR a.name = ?6 AND a.key = ?7 AND a.job > {self._sql.given(8)})"""
        statement = f"""SELECT a.name, a.key, {self._sql.bytes_of.format("a.job")}, a.epoch, a.seen
            FROM {self._sql.tables}awaiting a WHERE a.name >= ?1 AND a.name < ?2 {later} AND EXISTS (
                SELECT 1 FROM {self._sql.tables}job j
                WHERE j.id = a.job AND j.state = {CODE[State.SCHEDULED]} AND j.epoch = a.epoch)
            ORDER BY a.name, a.key, a.job LIMIT {max(0, limit)}"""
        return [awaiting_row(row) for row in self._rows(statement, (prefix, prefix_end(prefix), *values))]


def _conditions(query: FlowQuery, sql: FlowSql, jobs: SqlStatements) -> tuple[str, list[Any]]:
    """The query as a condition on rows of flows, and its values."""
    root = f"EXISTS (SELECT 1 FROM {sql.tables}job r WHERE r.id = f.id AND r."
    asked = [
        (f"{root}task = {{}})", None if query.name is None else FLOW_TASK + query.name),
        (f"{root}{jobs.key} = {{}})", query.key),
        ("at < {}", query.at_before),
        (f"id < {sql.id}", query.before or None),
    ]
    given = [(condition, value) for condition, value in asked if value is not None]
    # Not `format`: the prefix of the tables may have braces, too.
    where = [condition.replace("{}", f"?{place}") for place, (condition, _) in enumerate(given, 1)]
    values = [value for _, value in given]
    if query.queues:
        where.append(f"{root.removesuffix('r.')}{fitting(jobs, 'r.queue', query.queues, values)})")
    if query.phases:
        where.append(f"phase IN ({', '.join(str(int(phase)) for phase in query.phases)})")
    return " AND ".join(where) or "1 = 1", values
