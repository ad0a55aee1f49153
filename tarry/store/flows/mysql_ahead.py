"""What the changes of nodes will ask of flows, read with the changes themselves in one round trip to MySQL."""

from collections.abc import Collection, Mapping, Sequence

from tarry.model.change import Change
from tarry.model.flow.node_ids import node_id
from tarry.model.flow_row import FlowRow, GateRow
from tarry.model.job import State
from tarry.store.flows import flows as verbs
from tarry.store.flows.settle import GateSum, add_up, effects_by_flow
from tarry.store.flows.sql_tables import FlowSql, flow_row, gate_row
from tarry.store.mysql.link.connection import StatementResult
from tarry.store.mysql.sql import bind, chunks, id_list, id_table
from tarry.store.shared.columns import Row
from tarry.store.shared.state_codes import CODE

SQL = FlowSql(tables="tarry_", upsert=" ON DUPLICATE KEY UPDATE {1}", new="VALUES({})", column="`{}`")
_BLOCKED = f"""SELECT id, due, lane IS NULL FROM tarry_job FORCE INDEX (PRIMARY)
    WHERE id IN ({{}}) AND state = {CODE[State.BLOCKED]}"""
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
    return [_BLOCKED.format(id_list(part)) for part in chunks(ids)]


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
