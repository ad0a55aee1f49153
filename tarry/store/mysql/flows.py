"""Flows and signals in a MySQL or MariaDB database."""

import contextlib
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from tarry.errors import StoreError
from tarry.model.change import Change
from tarry.model.flow.node_ids import node_id
from tarry.model.flow_row import FlowRow, GateRow
from tarry.model.job import HELD, RELATIVE, Job, State
from tarry.model.wake import WakeReason
from tarry.store.mysql import insert as inserting
from tarry.store.mysql import open_lanes, sql
from tarry.store.mysql.insert import RunSql
from tarry.store.mysql.link.connection import MysqlConnection, StatementResult
from tarry.store.mysql.link.literals import bind, chunks, id_list, id_table, raw
from tarry.store.mysql.settings import FRESH, LIMITS, NUMBER, SettingsCache, StoreSettings, limits_of
from tarry.store.mysql.sql import note_literal
from tarry.store.mysql.wakeup import wake_row
from tarry.store.rules import flows as verbs
from tarry.store.rules.flow_settle import GateSum, add_up, effects_by_flow
from tarry.store.rules.flows import NewFlow
from tarry.store.rules.lanes import assign_lanes
from tarry.store.shared.state_codes import CODE
from tarry.store.sql.columns import Row
from tarry.store.sql.flow_tables import FlowSql, SqlFlowTables, flow_row, gate_row
from tarry.store.sql.flows import FlowStore, SqlFlows

T = TypeVar("T")
BLOCKED = CODE[State.BLOCKED]
_DUE = f"GREATEST({{now}}, IF(due < {RELATIVE}, {{now}} + due, due))"
# As `rules.release`. The server sets columns from left to right, and each expression sees those that are set: so the
# time comes last.
_RELEASE = f"""UPDATE tarry_job FORCE INDEX (PRIMARY) SET state_since = {{now}},
    expires = IF(expires > 0 AND expires < {RELATIVE}, {_DUE} + expires, expires),
    state = IF({_DUE} > {{now}}, 0, 1), lane = IF(lane IS NULL AND EXISTS (SELECT 1 FROM tarry_limit
        WHERE name IN (CONCAT('task:', task), CONCAT('each:', task))), '', lane), due = {_DUE}
    WHERE id IN ({{ids}}) AND state = {BLOCKED}"""
# As `rules.wake`.
_WAKE = """UPDATE tarry_job FORCE INDEX (PRIMARY) SET state = 1, due = LEAST(due, {now}), state_since = {now}
    WHERE id IN ({ids})"""
_ASLEEP = "SELECT id, epoch FROM tarry_job FORCE INDEX (PRIMARY) WHERE id IN ({}) AND state = 0 FOR UPDATE"
_IS_BLOCKED = f"SELECT 1 FROM tarry_job FORCE INDEX (PRIMARY) WHERE id = ?1 AND state = {BLOCKED} FOR UPDATE"
_IDLE = f"""SELECT id, {sql.HAS_LABELS.format("tarry_job")} FROM tarry_job FORCE INDEX (PRIMARY)
    WHERE id IN ({{}}) AND (state >= 3 OR state = {BLOCKED}) FOR UPDATE"""


SQL = FlowSql(tables="tarry_", upsert=" ON DUPLICATE KEY UPDATE {1}", new="VALUES({})", column="`{}`")
_READ_BLOCKED = f"""SELECT id, due, lane IS NULL FROM tarry_job FORCE INDEX (PRIMARY)
    WHERE id IN ({{}}) AND state = {BLOCKED}"""
_FEW = 10
"""So many nodes behind a gate with several parents are read although it may not open."""


def lock_flows(ids: Collection[bytes]) -> str:
    """The statement that reads and locks the rows of flows."""
    # By a join, not with IN: see `LEAVE_READY` in mysql/sql.py.
    by_id = f" FROM {id_table(ids)} STRAIGHT_JOIN tarry_flow f FORCE INDEX (PRIMARY) ON f.id = UNHEX(v.i) WHERE"
    return SQL.select("TRUE FOR UPDATE").replace(" FROM tarry_flow f WHERE", by_id)


def read_blocked(ids: Sequence[bytes]) -> list[str]:
    """The statements that read which of these nodes are blocked: id, due, and whether it has no lane."""
    # Without a lock: only who has that of their flow changes them, and this reads what is committed by now.
    return [_READ_BLOCKED.format(id_list(part)) for part in chunks(ids)]


class FlowsAhead:
    """The rows that `settle` reads first for some changes. Each is given once, since `settle` may write it then."""

    def __init__(self, changes: Sequence[Change] = ()) -> None:
        # Who awaits a signal locks its address before any flow.
        awaits = any(change.awaits is not None for change in changes)
        effects = {} if awaits else effects_by_flow(changes)
        sums = {id: add_up(effects[id]) for id in sorted(effects)}
        self._flows: dict[bytes, FlowRow | None] = dict.fromkeys(sums)
        self._gates: dict[bytes, dict[int, GateRow | None]] = {}
        self._nodes: dict[bytes, Row | None] = {}
        for id, summed in sums.items():
            with_rows = [one.gate.first for one in summed.gates if one.gate.parents > 1 or one.raised]
            if with_rows:
                self._gates[id] = dict.fromkeys(with_rows)
            opening = [GateSum(gate, 0, 0) for gate in summed.opens]
            self._nodes |= dict.fromkeys(node for one in (*summed.gates, *opening) for node in _first_nodes(id, one))
        self._number = 0

    def statements(self) -> list[str]:
        """What reads all of it; `came` takes the answers."""
        if not self._flows:
            return []
        # The lock first: what is read behind it cannot change any more.
        of_gates = [
            bind(SQL.gates(f"flow = ?1 AND first IN ({','.join(map(str, firsts))})"), (id,))
            for id, firsts in self._gates.items()
        ]
        self._number = len(of_gates)
        return [lock_flows(self._flows), *of_gates, *read_blocked(list(self._nodes))]

    def came(self, answers: Sequence[StatementResult]) -> None:
        """Takes the answers to `statements`."""
        if answers:
            locked, *others = answers
            self._flows |= {row.id: row for row in map(flow_row, locked.rows)}
            for answer in others[: self._number]:
                for row in map(gate_row, answer.rows):
                    self._gates[row.flow][row.first] = row
            self._nodes |= {bytes(row[0]): row for answer in others[self._number :] for row in answer.rows}

    def flows(self, ids: Collection[bytes]) -> dict[bytes, FlowRow] | None:
        """Those of these flows that there are; None: not all were read."""
        if not all(id in self._flows for id in ids):
            return None
        found = {id: self._flows.pop(id) for id in ids}
        return {id: row for id, row in found.items() if row is not None}

    def gates(self, firsts: Mapping[bytes, Collection[int]]) -> list[GateRow] | None:
        """Those of these gates that there are; None: not all were read."""
        read = self._gates
        if not all(flow in read and first in read[flow] for flow, some in firsts.items() for first in some):
            return None
        found = [read[flow].pop(first) for flow, some in firsts.items() for first in sorted(some)]
        return [gate for gate in found if gate is not None]

    def blocked(self, ids: Sequence[bytes]) -> list[Row] | None:
        """The rows of those of these nodes that are blocked; None: not all were read."""
        if not all(id in self._nodes for id in ids):
            return None
        found = [self._nodes.pop(id) for id in ids]
        return [row for row in found if row is not None]


def _first_nodes(flow: bytes, one: GateSum) -> list[bytes]:
    """The nodes that are likely to be released."""
    gate = one.gate
    if gate.parents > 1 and gate.count > _FEW:
        return []
    return [node_id(flow, gate.first + number) for number in range(min(gate.count, verbs.RELEASED_AT_ONCE))]


class MysqlFlowTables(SqlFlowTables):
    """The rows of flows, in a transaction."""

    sql = SQL

    @abstractmethod
    def run(self, *statements: str) -> None:
        """Runs statements without values."""

    def each(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        self.run(*(bind(statement, row) for row in rows))

    def among(self, column: str, values: Collection[bytes] | Collection[int], place: int) -> tuple[str, Sequence[Any]]:
        numbers = [value for value in values if isinstance(value, int)]
        ids = [value for value in values if isinstance(value, bytes)]
        return f"{column} IN ({','.join(map(str, numbers)) if numbers else id_list(ids)})", ()

    def lock(self, ids: Collection[bytes]) -> dict[bytes, FlowRow]:
        rows = self.rows(lock_flows(ids)) if ids else ()
        return {flow.id: flow for flow in map(flow_row, rows)}

    def delete_jobs(self, ids: Sequence[bytes]) -> None:
        for part in chunks(ids):
            if idle := {bytes(id): has_labels for id, has_labels in self.rows(_IDLE.format(id_list(part)))}:
                table = id_table(idle)
                lose_keys = f"{sql.LOSE_KEYS.format(table)} AND j.key IS NOT NULL"
                labelled = [id for id, has_labels in idle.items() if has_labels]
                self.run(*sql.unlabel(labelled), sql.LEAVE_FINISHED.format(table), lose_keys, sql.FORGET.format(table))

    def wake(self, rows: Sequence[Row], now: int) -> int:
        epochs: dict[bytes, int] = dict(rows)
        woken = 0
        for part in chunks(list(epochs)):
            found = self.rows(_ASLEEP.format(id_list(part)))
            if ids := [bytes(id) for id, epoch in found if epochs[bytes(id)] == epoch]:
                wake = _WAKE.format(now=now, ids=id_list(ids))
                self.run(sql.LEAVE_SCHEDULED.format(id_table(ids)), wake, *_come_ready(ids))
                woken += len(ids)
        return woken

    def end_root(self, flow: bytes, state: State, note: bytes, now: int) -> None:
        if self.rows(_IS_BLOCKED, (flow,)):
            ends = (
                f"state = {CODE[state]}, note = {note_literal(note, state)}, state_since = {now}, keep_until = {HELD},"
                " key_held_until = 0"
            )
            self.run(
                f"{sql.LOSE_KEYS.format(id_table((flow,)))} AND j.key IS NOT NULL",
                f"UPDATE tarry_job FORCE INDEX (PRIMARY) SET {ends}, state_since = {now}, key_held_until = 0"
                f" WHERE id = {raw(flow)}",
                sql.COME_FINISHED.format(id_list((flow,))),
            )


def _come_ready(ids: Sequence[bytes]) -> list[str]:
    """The statements that put jobs, whose rows say that they are ready, where they wait."""
    # A lane with a waiting job must be open, or no claim would look at it.
    statements = (sql.COME_READY, sql.COME_LANED, open_lanes.ADD_JOBS)
    return [statement.format(id_list(ids)) for statement in statements]


class LinkFlowTables(MysqlFlowTables):
    """Through a connection of the store. settings: as inserts trust them. ahead: what was read already."""

    def __init__(self, link: MysqlConnection, settings: StoreSettings, ahead: FlowsAhead | None = None) -> None:
        self._link, self._settings, self._ahead = link, settings, ahead or FlowsAhead()
        self._pending: list[str] = []
        """Writes that go with the next read, in one packet."""
        self._released: list[Row] = []
        """Nodes to release, likewise: id, due, whether it has no lane."""
        self._now = 0

    def rows(self, statement: str, values: Sequence[Any] = ()) -> Sequence[Row]:
        return self.flush(bind(statement, values))[0].rows

    def run(self, *statements: str) -> None:
        self._pending += statements

    def flush(self, *behind: str) -> list[StatementResult]:
        """Sends what is pending, and statements behind it; their answers."""
        pending, self._pending = [*self._pending, *self._releasing()], []
        return self._link.run(*pending, *behind)[len(pending) :] if pending or behind else []

    def lock(self, ids: Collection[bytes]) -> dict[bytes, FlowRow]:
        found = self._ahead.flows(ids)
        return super().lock(ids) if found is None else found

    def gates(self, firsts: Mapping[bytes, Collection[int]]) -> list[GateRow]:
        found = self._ahead.gates(firsts)
        return super().gates(firsts) if found is None else found

    def release(self, flow: bytes, first: int, count: int, now: int) -> int:
        ids = [node_id(flow, first + number) for number in range(count)]
        rows = self._ahead.blocked(ids)
        if rows is None:
            rows = [row for answer in self.flush(*read_blocked(ids)) for row in answer.rows]
        self._released += rows
        self._now = now
        return len(rows)

    def _releasing(self) -> list[str]:
        """The statements that release nodes."""
        rows, now, self._released = self._released, self._now, []
        later = [bytes(id) for id, due, _ in rows if due > (0 if due < RELATIVE else now)]
        ready = [bytes(id) for id, due, _ in rows if due <= (0 if due < RELATIVE else now)]
        has_lanes = bool(self._settings.limits) or not all(is_open for _, _, is_open in rows)
        statements = list[str]()
        for part in chunks(ready):
            come = _come_ready(part) if has_lanes else [sql.COME_READY.format(id_list(part))]
            statements += _RELEASE.format(now=now, ids=id_list(part)), *come
        for part in chunks(later):
            statements += _RELEASE.format(now=now, ids=id_list(part)), sql.COME_SCHEDULED.format(id_list(part))
        return statements

    def insert_jobs(self, jobs: Sequence[Job]) -> list[bytes]:
        mine = assign_lanes(jobs, self._settings.limits)
        return inserting.one_by_one(self.rows, mine, self._settings.number)


class CallerOfMysql(MysqlFlowTables):
    """Through a caller's own connection."""

    def __init__(self, run: RunSql) -> None:
        self._run = run

    def rows(self, statement: str, values: Sequence[Any] = ()) -> Sequence[Row]:
        return self._run(bind(statement, values))

    def run(self, *statements: str) -> None:
        for statement in statements:
            self._run(statement)

    def release(self, flow: bytes, first: int, count: int, now: int) -> int:
        raise NotImplementedError("a flow is stored through a caller's connection, and nothing else is done")

    def insert_jobs(self, jobs: Sequence[Job]) -> list[bytes]:
        ((number,),) = self._run(NUMBER)
        return inserting.one_by_one(self._run, assign_lanes(jobs, limits_of(self._run(LIMITS))), int(number))


class MysqlFlowStore(FlowStore, Protocol):
    """What it needs of the store."""

    def tell(self, work: Callable[[MysqlConnection], T], reasons: Collection[WakeReason]) -> T:
        """Does the work in its own transaction, and wakes sleepers for these reasons."""

    def caller(self, connection: Any) -> RunSql:
        """A function that runs statements on the caller's connection."""


class MysqlFlows(SqlFlows):
    """The flows of one database."""

    def __init__(self, store: MysqlFlowStore, known: SettingsCache) -> None:
        super().__init__(store, SQL)
        self._store, self._known = store, known

    def _write(self, work: Callable[[SqlFlowTables], T]) -> T:
        def whole(link: MysqlConnection) -> T:
            tables = LinkFlowTables(link, self._known.get(link, FRESH))
            done = work(tables)
            tables.flush()
            return done

        return self._store.tell(whole, ())

    def _wake(self, *reasons: WakeReason) -> None:
        # Only a hint, and after the commit: an error would say that what is stored is not.
        with contextlib.suppress(StoreError):
            self._store.tell(lambda link: None, reasons)

    def insert_within(self, connection: Any, new: NewFlow, now: int) -> bytes:
        run = self._store.caller(connection)
        stored_id, is_new = CallerOfMysql(run).store(new)
        if is_new:
            # Nobody tells us whether and when the caller commits; processes that look for news see it then.
            run(wake_row((WakeReason.WORK,)))
        return stored_id
