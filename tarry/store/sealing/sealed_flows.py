"""The flows and signals of a sealed store."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from tarry.model.flow.signal import Signal
from tarry.model.flow_row import FlowChange, FlowRow
from tarry.model.job import Job
from tarry.store.rules.flows import NewFlow, StoreFlows
from tarry.store.sealing.fields import FieldSealer
from tarry.store.sealing.proxy import Proxy, open_answer


class SealedFlows(Proxy):
    """The verbs that take or give nodes, notes and values; all others are those of the store within."""

    def __init__(self, flows: StoreFlows, sealer: FieldSealer, seal_jobs: Callable[[Iterable[Job]], list[Job]]) -> None:
        super().__init__(flows)
        self._flows, self._sealer, self._seal_jobs = flows, sealer, seal_jobs

    def insert(self, new: NewFlow, now: int) -> bytes:
        return self._flows.insert(self._seal(new), now)

    def insert_within(self, connection: Any, new: NewFlow, now: int) -> bytes:
        return self._flows.insert_within(connection, self._seal(new), now)

    def add_nodes(self, jobs: Sequence[Job]) -> None:
        self._flows.add_nodes(self._seal_jobs(jobs))

    def nodes(self, *args: Any, **options: Any) -> list[Job]:
        def unseal(found: list[Job]) -> list[Job]:
            return [self._sealer.open_job(job) for job in found]

        return open_answer(lambda: self._flows.nodes(*args, **options), unseal)

    def find(self, *args: Any) -> list[FlowRow]:
        def unseal(found: list[FlowRow]) -> list[FlowRow]:
            return [self._sealer.open_flow(row) for row in found]

        return open_answer(lambda: self._flows.find(*args), unseal)

    def get(self, flow: bytes) -> FlowRow | None:
        row = self._flows.get(flow)
        return row and self._sealer.open_flow(row)

    def change(self, change: FlowChange, now: int) -> bool:
        return self._flows.change(self._sealer.seal_flow_change(change), now)

    def signal(self, signal: Signal, now: int) -> int:
        return self._flows.signal(self._sealer.seal_signal(signal), now)

    def signals(self, *args: Any) -> list[Signal]:
        return [self._sealer.open_signal(one) for one in self._flows.signals(*args)]

    def _seal(self, new: NewFlow) -> NewFlow:
        return replace(new, root=self._seal_jobs([new.root])[0], nodes=self._seal_jobs(new.nodes))
