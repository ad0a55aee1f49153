"""The flows and signals of a sealed store."""

from collections.abc import Callable, Iterable
from typing import Any

from tarry.model.flow.signal import Signal
from tarry.model.flow_row import FlowChange, FlowRow
from tarry.model.job import Job
from tarry.store.rules.flows import StoreFlows
from tarry.store.sealing.fields import FieldSealer
from tarry.store.shared.proxy import open_answer
from tarry.store.shared.rewriting import RewritingFlows


class SealedFlows(RewritingFlows):
    """The verbs that take or give nodes, notes and values; all others are those of the store within."""

    def __init__(self, flows: StoreFlows, sealer: FieldSealer, seal_jobs: Callable[[Iterable[Job]], list[Job]]) -> None:
        super().__init__(flows, seal_jobs)
        self._sealer = sealer

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
