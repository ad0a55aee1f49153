"""The rows of flows in an SQL database, within a transaction: what `settle` needs, and what the verbs change.

In the statements here ?1 is the first value and ?2 the second; a store rewrites them for its driver.
"""

import itertools
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from tarry.model.change import Change
from tarry.model.flow.node_ids import MAX_NODES, flow_of, node_id
from tarry.model.flow_row import FlowRow, GateRow, Phase
from tarry.model.job import HELD, Job, State
from tarry.store.rules.flow_settle import Settled, end_flow, settle
from tarry.store.rules.flows import STORING_TIME, NewFlow, abandoned, deleted_meanwhile
from tarry.store.shared.state_codes import CODE, state_of
from tarry.store.sql.columns import Row
from tarry.store.sql.transaction import SqlTransaction

_BLOCKED = CODE[State.BLOCKED]
LAST_INDEX = 2**32 - 1
"""No node of a flow has a greater index."""
FLOW_COLUMNS = (
    "phase",
    "at",
    "size",
    "active",
    "blocked",
    "failed",
    "armed",
    "ends",
    "undo",
    "keep_done",
    "keep_dead",
    "note",
)
GATE_COLUMNS = ("count", "waits", "next")


class FlowSql(Struct, frozen=True, kw_only=True):
    """How one database writes the statements. {}: a value, or a column."""

    tables: str
    """The prefix of its tables' names."""
    id: str = "{}"
    """An id in a condition."""
    bytes_of: str = "{}"
    """An id that is read."""
    lock: str = " FOR UPDATE"
    """Behind a SELECT: locks its rows until the transaction ends."""
    upsert: str = " ON CONFLICT ({}) DO UPDATE SET {}"
    """Behind an INSERT: the columns of the key; what is set in a row that is there."""
    new: str = "excluded.{}"
    """The value that the INSERT has for a column."""
    column: str = "{}"
    """A column whose name may be a reserved word."""
    greatest: str = "greatest"
    """The function that gives the greatest of its values."""

    def select(self, where: str) -> str:
        """The rows of flows, as `flow_row` reads them."""
        columns = ", ".join(map(self.column.format, FLOW_COLUMNS))
        return f"SELECT {self.bytes_of.format('id')}, {columns} FROM {self.tables}flow f WHERE {where}"

    def gates(self, where: str) -> str:
        """The rows of gates, as `gate_row` reads them."""
        flow = self.bytes_of.format("flow")
        return f"SELECT {flow}, first, {', '.join(GATE_COLUMNS)} FROM {self.tables}gate g WHERE {where}"

    def given(self, place: int) -> str:
        """An id that is the value of this number."""
        return self.id.format(f"?{place}")


@lru_cache(maxsize=100)
def upserting(sql: FlowSql, table: str, keys: tuple[str, ...], columns: tuple[str, ...], ids: int = 1) -> str:
    """The statement that writes a row, whether it is there or not; its first `ids` values are ids."""
    keys, columns = (tuple(map(sql.column.format, names)) for names in (keys, columns))
    places = [sql.given(place) if place <= ids else f"?{place}" for place in range(1, len(keys) + len(columns) + 1)]
    sets = ", ".join(f"{column} = {sql.new.format(column)}" for column in columns)
    into = f"INSERT INTO {sql.tables}{table} ({', '.join(keys + columns)}) VALUES ({', '.join(places)})"
    return into + sql.upsert.format(", ".join(keys), sets)


def touching_flows(changes: Sequence[Change], valid: Sequence[bool] | None = None) -> list[Change]:
    """Those of the changes that do something to a flow, or await a signal. valid: which of them count; None: all."""
    made = changes if valid is None or all(valid) else itertools.compress(changes, valid)
    return [change for change in made if change.node is not None or change.awaits is not None]


def flow_row(row: Row) -> FlowRow:
    """The flow of a row of `FlowSql.select`."""
    id, phase, at, size, active, blocked, failed, armed, ends, undo, keep_done, keep_dead, note = row
    return FlowRow(
        bytes(id), Phase(phase), at, size, active, blocked, failed, armed, state_of(ends), undo, keep_done, keep_dead,
        bytes(note),
    )  # fmt: skip


def gate_row(row: Row) -> GateRow:
    """The gate of a row of `FlowSql.gates`."""
    flow, *numbers = row
    return GateRow(bytes(flow), *numbers)


def flow_values(flow: FlowRow) -> Row:
    """The id of a flow, and the values of FLOW_COLUMNS."""
    return (
        flow.id, int(flow.phase), flow.at, flow.size, flow.active, flow.blocked, flow.failed, flow.armed,
        CODE[flow.ends], flow.undo, flow.keep_done, flow.keep_dead, flow.note,
    )  # fmt: skip


class SqlFlowTables(SqlTransaction):
    """`FlowTables` in an SQL database."""

    sql: FlowSql

    @abstractmethod
    def among(self, column: str, values: Collection[bytes] | Collection[int], place: int) -> tuple[str, Sequence[Any]]:
        """The condition that the column is one of these ids or numbers; and what is bound for it as the value of this
        number, if it needs one."""

    @abstractmethod
    def insert_jobs(self, jobs: Sequence[Job]) -> list[bytes]:
        """As `Store.insert`."""

    @abstractmethod
    def release(self, flow: bytes, first: int, count: int, now: int) -> int:
        """As `FlowTables.release`."""

    @abstractmethod
    def wake(self, rows: Sequence[Row], now: int) -> int:
        """Makes jobs ready, each with its epoch, that are scheduled in it (`rules.wake`); returns how many were."""

    def delete_jobs(self, ids: Sequence[bytes]) -> None:
        """Deletes those of these jobs that are finished or blocked."""
        where, values = self.among("id", ids, 1)
        self.each(f"DELETE FROM {self.sql.tables}job WHERE {where} AND (state >= 3 OR state = {_BLOCKED})", [values])

    # FlowTables

    def end_root(self, flow: bytes, state: State, note: bytes, now: int) -> None:
        ended = f"state = ?2, note = ?3, state_since = ?4, keep_until = {HELD}, key_held_until = 0"
        where = f"id = {self.sql.given(1)} AND state = {_BLOCKED}"
        self.each(f"UPDATE {self.sql.tables}job SET {ended} WHERE {where}", [(flow, CODE[state], note, now)])

    def lock(self, ids: Collection[bytes]) -> dict[bytes, FlowRow]:
        if not ids:
            return {}
        where, values = self.among("id", sorted(ids), 1)
        found = self.rows(self.sql.select(f"{where} ORDER BY id{self.sql.lock}"), values)
        return {flow.id: flow for flow in map(flow_row, found)}

    def save(self, flows: Iterable[FlowRow]) -> None:
        columns = map(self.sql.column.format, FLOW_COLUMNS)
        sets = ", ".join(f"{column} = ?{place}" for place, column in enumerate(columns, 2))
        self.each(
            f"UPDATE {self.sql.tables}flow SET {sets} WHERE id = {self.sql.given(1)}", list(map(flow_values, flows))
        )

    def gates(self, firsts: Mapping[bytes, Collection[int]]) -> list[GateRow]:
        found: list[GateRow] = []
        for flow, some in firsts.items():
            where, values = self.among("first", sorted(some), 2)
            statement = self.sql.gates(f"flow = {self.sql.given(1)} AND {where} ORDER BY first")
            found += map(gate_row, self.rows(statement, (flow, *values)) if some else ())
        return found

    def told_gates(self, flow: bytes) -> list[GateRow]:
        where = f"flow = {self.sql.given(1)} AND waits = 0 ORDER BY first"
        return [gate_row(row) for row in self.rows(self.sql.gates(where), (flow,))]

    def open_gates(self, flow: bytes, most: int) -> list[GateRow]:
        where = f"flow = {self.sql.given(1)} AND next >= 0 ORDER BY first LIMIT {most}"
        return [gate_row(row) for row in self.rows(self.sql.gates(where), (flow,))]

    def save_gates(self, gates: Iterable[GateRow]) -> None:
        rows = [(gate.flow, gate.first, gate.count, gate.waits, gate.next) for gate in gates]
        if rows:
            self.each(upserting(self.sql, "gate", ("flow", "first"), GATE_COLUMNS), rows)

    def drop_gates(self, gates: Iterable[GateRow]) -> None:
        statement = f"DELETE FROM {self.sql.tables}gate WHERE flow = {self.sql.given(1)} AND first = ?2"
        if rows := [(gate.flow, gate.first) for gate in gates]:
            self.each(statement, rows)

    # What the verbs change

    def settle(self, changes: Sequence[Change], now: int, await_signal: Callable[[Change], None]) -> Settled:
        """What these changes, which were all made, do to flows and signals."""
        for change in changes:
            if change.awaits is not None:
                await_signal(change)
        return settle(self, changes, now)

    def store(self, new: NewFlow) -> tuple[bytes, bool]:
        """Stores a flow: the id of the one that lives, and whether that is new."""
        # The root first: another transaction that stores the same flow, or one with its key, waits here for this one.
        (stored_id,) = self.insert_jobs([new.root])
        id = new.root.id
        if stored_id != id or self.rows(self.sql.select(f"id = {self.sql.given(1)}"), (id,)):
            return stored_id, False
        self.each(upserting(self.sql, "flow", ("id",), FLOW_COLUMNS), [flow_values(new.flow)])
        self.save_gates(new.gates)
        if new.nodes:
            self.insert_jobs(new.nodes)
        return id, True

    def add_nodes(self, jobs: Sequence[Job]) -> None:
        """As `StoreFlows._insert_nodes`."""
        flow = flow_of(jobs[0].id)
        # Locked, so that nobody deletes it at this moment.
        if not self.lock((flow,)):
            raise deleted_meanwhile()
        self.insert_jobs(jobs)

    def grow(self, flow: bytes, count: int) -> int | None:
        """As `StoreFlows.grow`."""
        row = self.lock((flow,)).get(flow)
        if row is None or row.phase is Phase.ENDED or row.size + count > MAX_NODES:
            return None
        self.save((replace(row, size=row.size + count),))
        return row.size

    def abandon(self, flow: bytes, now: int) -> None:
        """Ends a flow that was not stored whole in time."""
        row = self.lock((flow,)).get(flow)
        if row is not None and row.phase is Phase.STORING and row.at <= now - STORING_TIME:
            end_flow(self, abandoned(row), now, keep=0)

    def delete_some(self, flow: bytes, now: int, limit: int, postponed: int) -> bool:
        """Deletes up to `limit` nodes or gates of an ended flow; if there are none, the flow, and returns True.
        postponed: microseconds after which a flow that has nodes which still run is looked at again."""
        row = self.lock((flow,)).get(flow)
        if row is None or row.phase is not Phase.ENDED:
            return False
        if idle := self._ids(flow, f"(state >= 3 OR state = {_BLOCKED})", limit):
            self.delete_jobs(idle)
        elif self._ids(flow, "state >= 0", 1):
            # A person runs one of them once more.
            self.save((replace(row, at=max(now, row.at) + postponed),))
        elif not self._drop_some_gates(flow, limit):
            self.delete_jobs((flow,))
            self.each(f"DELETE FROM {self.sql.tables}flow WHERE id = {self.sql.given(1)}", [(flow,)])
            return True
        return False

    def _ids(self, flow: bytes, where: str, limit: int) -> list[bytes]:
        """The ids of nodes of a flow of which that is true."""
        within = f"id > {self.sql.given(1)} AND id <= {self.sql.given(2)} AND {where}"
        statement = f"SELECT {self.sql.bytes_of.format('id')} FROM {self.sql.tables}job WHERE {within}"
        rows = self.rows(f"{statement} ORDER BY id LIMIT {limit}", (flow, node_id(flow, LAST_INDEX)))
        return [bytes(id) for (id,) in rows]

    def _drop_some_gates(self, flow: bytes, limit: int) -> bool:
        """Whether there were gates to delete."""
        found = self.rows(self.sql.gates(f"flow = {self.sql.given(1)} ORDER BY first LIMIT {limit}"), (flow,))
        self.drop_gates(map(gate_row, found))
        return bool(found)
