"""Flows and signals in a schema of PostgreSQL."""

import itertools
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar
from uuid import UUID

from tarry.model.change import Change
from tarry.model.flow.node_ids import MAX_NODES
from tarry.model.flow.signal import MOST_KEPT, Signal
from tarry.model.flow.wiring import Gate
from tarry.model.flow_row import FlowChange, FlowRow, GateRow, Phase
from tarry.model.job import Job, State
from tarry.model.wake import WakeReason
from tarry.store.postgres import packing as pack
from tarry.store.postgres import sql
from tarry.store.postgres.constants import in_schema
from tarry.store.postgres.job_columns import NEW_TYPES
from tarry.store.postgres.limits import PostgresTransaction
from tarry.store.postgres.link.connection import PostgresConnection
from tarry.store.postgres.link.pool import PostgresPool
from tarry.store.postgres.link.postgres_errors import translate_errors
from tarry.store.postgres.link.url import PostgresUrl
from tarry.store.postgres.scan_start import set_aside_if_slow
from tarry.store.postgres.transactional import CallerConnection, caller_connection, insert_jobs
from tarry.store.rules import flows as verbs
from tarry.store.rules.flow_settle import EffectSum, GateSum, Settled, add_up, effects_by_flow
from tarry.store.rules.flows import NewFlow
from tarry.store.rules.history.journal import record_of_new
from tarry.store.shared.columns import CLAIMED
from tarry.store.shared.state_codes import CODE
from tarry.store.sql.columns import Row
from tarry.store.sql.flow_signals import LAST_KEPT
from tarry.store.sql.flow_tables import FLOW_COLUMNS, GATE_COLUMNS, FlowSql, SqlFlowTables, flow_values
from tarry.store.sql.flows import FlowStore, SqlFlows

T = TypeVar("T")
SQL = FlowSql(tables="{s}.", id=sql.STATEMENTS.id, bytes_of="uuid_send({})")
_ID = sql.STATEMENTS.id
_INSERT = f"SELECT * FROM {{s}}.insert_flow_v1({', '.join(f'?{place}' for place in range(1, len(NEW_TYPES) + 19))})"
_CHANGE = f"SELECT * FROM {{s}}.change_flow_v1({', '.join(f'?{place}' for place in range(1, 13))})"
_RELEASE_FLOW = "SELECT * FROM {s}.release_flow_v1(?1, ?2, ?3)"
_SIGNAL = f"SELECT * FROM {{s}}.signal_v1({', '.join(f'?{place}' for place in range(1, 10))})"
_GROW = f"""UPDATE {{s}}.flow SET size = size + ?2
    WHERE id = {_ID.format("?1")} AND phase <> {Phase.ENDED:d} AND size + ?2 <= {MAX_NODES} RETURNING size - ?2"""
_RELEASE = "SELECT {s}.release_v1(?1, ?2, ?3, ?4)"
_WAKE = "SELECT {s}.wake_waiting_v1(?1, ?2, ?3)"
# One statement for all rows: a large flow may have very many gates, and an exchange may be about very many flows.
_FLUSH = f"""WITH kept AS (INSERT INTO {{s}}.gate (flow, first, count, waits, next)
    SELECT * FROM unnest(?1::uuid[], ?2::bigint[], ?3::bigint[], ?4::bigint[], ?5::bigint[])
    ON CONFLICT (flow, first) DO UPDATE SET count = excluded.count, waits = excluded.waits, next = excluded.next),
    dropped AS (DELETE FROM {{s}}.gate g USING unnest(?6::uuid[], ?7::bigint[]) AS d (flow, first)
        WHERE g.flow = ANY (?6::uuid[]) AND g.flow = d.flow AND g.first = d.first)
    UPDATE {{s}}.flow f SET {", ".join(f"{column} = n.{column}" for column in FLOW_COLUMNS)}
    FROM unnest(?8::uuid[], {", ".join(f"?{place}::bigint[]" for place in range(9, 8 + len(FLOW_COLUMNS)))},
        ?{8 + len(FLOW_COLUMNS)}::bytea[]) AS n (id, {", ".join(FLOW_COLUMNS)})
    WHERE f.id = ANY (?8::uuid[]) AND f.id = n.id"""


def _uuid(id: bytes) -> UUID:
    return UUID(bytes=id)


def split_ids(ids: bytes) -> list[bytes]:
    """Ids of 16 bytes each, one after the other."""
    return [ids[at : at + 16] for at in range(0, len(ids), 16)]


class PostgresFlowTables(PostgresTransaction, SqlFlowTables):
    """The rows of flows, in a transaction of the connection."""

    sql = SQL

    def __init__(self, connection: PostgresConnection, schema: str) -> None:
        super().__init__(connection, schema)
        self._wait_for_nothing()
        self.awake: list[bytes] = []
        """The jobs that this transaction made ready or scheduled."""

    def _wait_for_nothing(self) -> None:
        self._flows: dict[bytes, FlowRow] = {}
        self._gates: dict[tuple[bytes, int], GateRow | None] = {}
        """None: to be deleted."""

    def among(self, column: str, values: Collection[bytes] | Collection[int], place: int) -> tuple[str, Sequence[Any]]:
        numbers = [value for value in values if isinstance(value, int)]
        ids = [value for value in values if isinstance(value, bytes)]
        return f"{column} = ANY (?{place})", (pack.big_ints(numbers) if numbers else pack.uuids(ids),)

    # Writes wait for the next read of what they change, or for the end.

    def save(self, flows: Iterable[FlowRow]) -> None:
        self._flows |= {flow.id: flow for flow in flows}

    def save_gates(self, gates: Iterable[GateRow]) -> None:
        self._gates |= {(gate.flow, gate.first): gate for gate in gates}

    def drop_gates(self, gates: Iterable[GateRow]) -> None:
        self._gates |= {(gate.flow, gate.first): None for gate in gates}

    def lock(self, ids: Collection[bytes]) -> dict[bytes, FlowRow]:
        self.flush()
        return super().lock(ids)

    def gates(self, firsts: Mapping[bytes, Collection[int]]) -> list[GateRow]:
        self._flush_of(firsts)
        return super().gates(firsts)

    def told_gates(self, flow: bytes) -> list[GateRow]:
        self._flush_of((flow,))
        return super().told_gates(flow)

    def open_gates(self, flow: bytes, most: int) -> list[GateRow]:
        self._flush_of((flow,))
        return super().open_gates(flow, most)

    def _flush_of(self, flows: Collection[bytes]) -> None:
        if any(flow in flows for flow, _ in self._gates):
            self.flush()

    def flush(self) -> None:
        """Writes what waits."""
        flows, gates = list(self._flows.values()), self._gates
        self._flows, self._gates = {}, {}
        if flows or gates:
            kept = [gate for gate in gates.values() if gate is not None]
            numbers = ([getattr(gate, name) for gate in kept] for name in ("first", "count", "waits", "next"))
            dropped = [place for place, gate in gates.items() if gate is None]
            ids, *columns, notes = (
                zip(*map(flow_values, flows), strict=True) if flows else ((),) * (1 + len(FLOW_COLUMNS))
            )
            values = (
                self._uuids([gate.flow for gate in kept]), *map(self._big_ints, numbers),
                self._uuids([flow for flow, _ in dropped]), self._big_ints([first for _, first in dropped]),
                self._uuids(ids), *map(self._big_ints, columns), self._blobs(notes),
            )  # fmt: skip
            self.each(_FLUSH, [values])

    # How arrays are given.

    _uuids: Callable[..., Any] = staticmethod(pack.uuids)
    _big_ints: Callable[..., Any] = staticmethod(pack.big_ints)
    _blobs: Callable[..., Any] = staticmethod(pack.blobs)

    def insert_jobs(self, jobs: Sequence[Job]) -> list[bytes]:
        stored_ids = [job.id for job in jobs]
        keyed = any(job.key is not None for job in jobs)
        values = (*pack.new_jobs(jobs), keyed, False, None, "", record_of_new(jobs))
        for place, id in self.rows(sql.INSERT, values):
            stored_ids[place - 1] = bytes(id)
        self.awake += [job.id for job in jobs if job.state is not State.BLOCKED]
        return stored_ids

    def release(self, flow: bytes, first: int, count: int, now: int) -> int:
        values = _uuid(flow), pack.big_ints([first]), pack.big_ints([count]), now
        return self._ready(_RELEASE, values)

    def wake(self, rows: Sequence[Row], now: int) -> int:
        ids, epochs = zip(*rows, strict=True)
        return self._ready(_WAKE, (pack.uuids(ids), pack.ints(epochs), now))

    def _ready(self, statement: str, values: Sequence[Any]) -> int:
        """How many jobs a function made ready or scheduled."""
        ids = split_ids(self.rows(statement, values)[0][0])
        self.awake += ids
        return len(ids)


_VALUE = re.compile(r"\?([1-9][0-9]*)")


class CallerOfPostgres(PostgresFlowTables):
    """The same through a caller's own connection: enough to store a flow."""

    def __init__(self, caller: CallerConnection, url: PostgresUrl) -> None:
        self._caller, self._url = caller, url
        self._wait_for_nothing()

    def rows(self, statement: str, values: Sequence[Any] = ()) -> Sequence[Row]:
        # Drivers take the values in their order of appearance.
        order = [int(number) - 1 for number in _VALUE.findall(statement)]
        text = in_schema(_VALUE.sub("%s", statement), self._url.schema)
        return self._caller.rows(text, [values[at] for at in order])

    def each(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        for row in rows:
            self.rows(f"{statement} RETURNING 1", row)

    @staticmethod
    def _uuids(ids: Iterable[bytes]) -> list[str]:
        # In the form that every driver takes.
        return [id.hex() for id in ids]

    _big_ints: Callable[..., Any] = staticmethod(list)
    _blobs: Callable[..., Any] = staticmethod(list)

    def insert_jobs(self, jobs: Sequence[Job]) -> list[bytes]:
        return insert_jobs(self._caller, jobs, self._url)


_MADE = len(CLAIMED)
_RELEASED = _MADE + 7
"""Columns of the last row of `exchange_nodes_v1`."""


class PostgresFlowStore(FlowStore, Protocol):
    """What it needs of the store."""

    _pool: PostgresPool

    def _claim_settings(self, lazy: bool = True) -> list[str]: ...

    def wake(self, *reasons: WakeReason) -> None:
        """Wakes sleepers."""


class PostgresFlows(SqlFlows):
    """The flows of one schema."""

    def __init__(self, store: PostgresFlowStore) -> None:
        super().__init__(store, SQL)
        self._store, self._pool = store, store._pool

    def _write(self, work: Callable[[SqlFlowTables], T]) -> T:
        return self._write_through(lambda connection, tables: work(tables), lazy=False)

    def _write_through(
        self, work: Callable[[PostgresConnection, PostgresFlowTables], T], lazy: bool, ids: Sequence[bytes] = ()
    ) -> T:
        """Does the work in one transaction. ids: jobs that are changed by it, but those that flows release."""
        began = time.monotonic()

        def whole(connection: PostgresConnection) -> tuple[T, list[bytes]]:
            with connection.transaction_with(*self._store._claim_settings(lazy)):
                tables = PostgresFlowTables(connection, self._pool.url.schema)
                done = work(connection, tables)
                tables.flush()
                return done, tables.awake

        done, awake = self._pool.call(whole)
        set_aside_if_slow(self._pool, began, [*ids, *awake])
        return done

    def _wake(self, *reasons: WakeReason) -> None:
        self._store.wake(*reasons)

    def _insert(self, new: NewFlow, now: int) -> bytes:
        jobs, began = [new.root, *new.nodes], time.monotonic()
        _, *numbers = flow_values(new.flow)
        with translate_errors(self._pool.url):
            values = (
                *pack.new_jobs(jobs), new.root.key is not None, record_of_new(new.nodes), *numbers,
                *(pack.big_ints([getattr(gate, name) for gate in new.gates]) for name in ("first", *GATE_COLUMNS)),
            )  # fmt: skip
        ((stored_id, is_new),) = self._rows(_INSERT, values)
        if is_new:
            set_aside_if_slow(self._pool, began, [job.id for job in jobs])
            self._wake(WakeReason.WORK)
        return bytes(stored_id)

    def grow(self, flow: bytes, count: int) -> int | None:
        rows = self._rows(_GROW, (flow, count))
        return int(rows[0][0]) if rows else None

    def change(self, change: FlowChange, now: int) -> bool:
        values = (
            _uuid(change.id), int(change.was), int(change.to), None if change.ends is None else CODE[change.ends],
            change.note, change.at, change.active, change.failed, change.blocked,
            None if change.seen is None else pack.big_ints(change.seen), verbs.RELEASED_AT_ONCE, now,
        )  # fmt: skip
        return self._settled(_CHANGE, values)

    def _release_next(self, after: bytes, now: int, most: int) -> tuple[bytes | None, int]:
        began = time.monotonic()
        ((flow, released, more_to_release, ended, awake),) = self._rows(
            _RELEASE_FLOW, (_uuid(after or bytes(16)), most, now)
        )
        if flow is None:
            return None, 0
        set_aside_if_slow(self._pool, began, split_ids(awake))
        self._announce(Settled(released, more_to_release, ended))
        return bytes(flow), released

    def _settled(self, statement: str, values: Sequence[Any]) -> bool:
        """Calls a function that settles one flow: whether there was anything to do."""
        began = time.monotonic()
        ((done, released, more_to_release, ended, awake),) = self._rows(statement, values)
        if done:
            set_aside_if_slow(self._pool, began, split_ids(awake))
            self._announce(Settled(released, more_to_release, ended))
        return bool(done)

    def _send(self, signal: Signal, now: int) -> tuple[int, bool]:
        began = time.monotonic()
        values = (
            signal.name, signal.key, signal.id, signal.value, signal.until, signal.until + LAST_KEPT, MOST_KEPT,
            verbs.WOKEN_AT_ONCE, now,
        )  # fmt: skip
        ((awake, more),) = self._rows(_SIGNAL, values)
        if woken := split_ids(awake):
            set_aside_if_slow(self._pool, began, woken)
            self._wake(WakeReason.WORK, WakeReason.STEP)
        return len(woken), more

    def insert_within(self, connection: Any, new: NewFlow, now: int) -> bytes:
        caller = caller_connection(connection, self._pool)
        tables = CallerOfPostgres(caller, self._pool.url)
        stored_id, _ = tables.store(new)
        tables.flush()
        return stored_id

    def exchange(
        self,
        changes: Sequence[Change],
        packed: Callable[[Sequence[Change]], Row],
        rows_of: Callable[[str, Row], list[Row]],
    ) -> list[Row]:
        """An exchange with changes that do something to flows, or whose jobs await a signal: its rows. packed: the
        arguments of `exchange_v1` for changes. rows_of: runs a statement."""
        places = list(range(1, len(changes) + 1))
        while True:
            some = [changes[place - 1] for place in places]
            with translate_errors(self._pool.url):
                values = *packed(some), *pack_effects(some)
            *rows, end = rows_of(sql.EXCHANGE_NODES, values)
            made, released = end[_MADE], end[_RELEASED]
            if released is not None:
                return [*rows, (*end[:_MADE], places, *end[_MADE + 1 :])]
            # Nothing was done. At most one call more for each change, but mostly one in all.
            places = [places[place - 1] for place in sorted(made)]


def pack_effects(changes: Sequence[Change]) -> list[Any]:
    """The arguments of `exchange_nodes_v1` that `exchange_v1` does not have."""
    sums = [(id, add_up(effects)) for id, effects in sorted(effects_by_flow(changes).items())]
    return [
        pack.uuids([id for id, _ in sums]),
        *_pack_sums([one for _, one in sums]),
        verbs.RELEASED_AT_ONCE,
        *_pack_awaited(changes),
    ]


def _pack_sums(sums: Sequence[EffectSum]) -> Iterable[Any]:
    for name in ("active", "failed", "armed", "blocked"):
        yield pack.big_ints([getattr(one, name) for one in sums])
    yield pack.ints([int(one.revives) for one in sums])
    yield pack.blobs([one.note for one in sums])
    gates = [[*one.gates, *map(_opening, one.opens)] for one in sums]
    ends = [0, *itertools.accumulate(map(len, gates))]
    yield pack.ints([end + 1 for end in ends[:-1]])
    yield pack.ints(ends[1:])
    rows = [gate for some in gates for gate in some]
    for name in ("first", "count", "parents"):
        yield pack.big_ints([getattr(row.gate, name) for row in rows])
    yield pack.big_ints([row.raised for row in rows])
    yield pack.big_ints([row.told for row in rows])


def _opening(gate: Gate) -> GateSum:
    """A gate that waits for nothing."""
    return GateSum(Gate(gate.first, gate.count, 0), 0, 0)


def _pack_awaited(changes: Sequence[Change]) -> Iterable[Any]:
    awaited = [(place, change.awaits) for place, change in enumerate(changes, 1) if change.awaits is not None]
    yield pack.ints([place for place, _ in awaited])
    yield pack.texts([awaits.name for _, awaits in awaited])
    yield pack.texts([awaits.key for _, awaits in awaited])
    yield pack.big_ints([awaits.after for _, awaits in awaited])
