"""Random histories with flows, in which the Redis store must do as the reference does."""

from typing import ClassVar

import pytest

from tarry.model.flow.node_ids import flow_of, node_id
from tarry.model.flow_row import GateRow, Phase
from tarry.store.opening import open_store
from tarry.store.redis.store import RedisStore
from tarry.store.rules.base import Store
from tarry.store.rules.flow_settle import RELEASING
from tarry.store.rules.flows import FlowQuery
from tests.servers.redis import RedisServer
from tests.store.flow_histories import FlowHistories
from tests.store.test_machine import ALL, histories


class RedisFlowHistories(FlowHistories):
    server: ClassVar[RedisServer]

    def opened(self) -> Store:
        self.server.empty()
        return open_store(self.server.url)

    def gates(self, flows: list[bytes]) -> list[GateRow]:
        """What is kept beside the gates must fit, too."""
        assert isinstance(self.store, RedisStore)
        command, prefix = self.store._link.command, self.store._prefix
        found: list[GateRow] = []
        for flow in sorted(flows):
            rows = command("HGETALL", f"{prefix}:gates:".encode() + flow[:12])
            gates = {number(first): row for first, row in pairs(rows)}
            found += [parse_gate(flow, first, gates[first]) for first in sorted(gates)]
        places = {True: set[bytes](), False: set[bytes]()}
        for gate in found:
            if not gate.waits:
                places[gate.next >= 0].add(node_id(gate.flow, gate.first))
        assert set(self.store._command("ZRANGE", "open", 0, -1)) == places[True]
        assert set(self.store._command("ZRANGE", "withheld", 0, -1)) == places[False]
        rows = self.reference.flows.find(FlowQuery(limit=ALL))
        open_ones = {flow_of(id) for id in places[True]}
        releasing = {row.id for row in rows if row.phase in RELEASING} & open_ones
        assert releasing <= set(self.store._command("ZRANGE", "moving", 0, -1))
        ended = sum(row.size for row in rows if row.phase is Phase.ENDED)
        assert int(self.store._command("GET", "endednodes") or 0) == ended
        return found


def number(text: bytes) -> int:
    return int.from_bytes(text, "big")


def parse_gate(flow: bytes, first: int, row: bytes) -> GateRow:
    return GateRow(flow, first, number(row[:3]), number(row[3:6]), number(row[6:]) if row[6:] else -1)


def pairs(flat: list[bytes]) -> list[tuple[bytes, bytes]]:
    return list(zip(flat[::2], flat[1::2], strict=True))


@pytest.fixture(autouse=True, scope="module")
def _served(redis_server: RedisServer) -> None:
    RedisFlowHistories.server = redis_server


TestRedisFlows = pytest.mark.timeout(400)(RedisFlowHistories.TestCase)
TestRedisFlows.settings = histories(20)
