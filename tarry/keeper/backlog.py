"""Measures the backlog of each pool that scales with it, and reports it to the master, which sets the count."""

from collections.abc import Callable, Collection, Mapping
from itertools import filterfalse

from tarry.client.clock import Clock
from tarry.model.duration import LONGEST, SECOND
from tarry.model.flow.own_queues import is_own_queue
from tarry.store.rules.base import Store
from tarry.store.rules.history.gauges import MOST_SAMPLED, QueueSample
from tarry.store.rules.partial_result import reachable_part
from tarry.worker.external_queues import find_external

REPORT_EVERY = 0.5
"""Seconds."""
# With so many, many more workers are needed anyway, and a count of all would cost the store much.
COUNTED = 1000
"""The most jobs that are counted."""

SAMPLED = 10_000
"""The most ready jobs that a sample of the history counts of each queue and band."""

BacklogReport = dict[str, tuple[int, float]]
"""By pool: how many jobs wait, and for how many seconds the oldest has waited."""


class BacklogReporter:
    """A chore of the keeper. pools: their names and queues; None stands for all queues."""

    def __init__(
        self,
        store: Store,
        pools: Mapping[str, Collection[str] | None],
        notify: Callable[[BacklogReport], None],
        clock: Clock | None = None,
    ) -> None:
        self._store, self._pools, self._notify = store, pools, notify
        self._clock = clock or Clock(store.time)

    def report_backlogs(self) -> None:
        """Reports the backlogs; shards that are away are left out. StoreError: nothing is reported."""
        now = self._clock.now()
        self._notify({pool: self._count_waiting(queues, now) for pool, queues in self._pools.items()})

    def _count_waiting(self, queues: Collection[str] | None, now: int) -> tuple[int, float]:
        if queues is None and (external := find_external(self._store)):
            # The workers of the pool leave these out, so they must not be started for them.
            queues = reachable_part(self._store.queues).keys() - external
        backlog = reachable_part(lambda: self._store.backlog(queues, now, COUNTED))
        # This host's clock may be a little behind the store's.
        return backlog.count, max(0, now - backlog.oldest) / SECOND


def sample_backlogs(store: Store, now: int) -> dict[str, QueueSample]:
    """A sample of each queue that has ready jobs; StoreError. Cheap, however many jobs wait."""
    queues = sorted(filterfalse(is_own_queue, store.queues()))
    return {queue: _sample(store, queue, now) for queue in queues[:MOST_SAMPLED]}


def _sample(store: Store, queue: str, now: int) -> QueueSample:
    ready = sum(band.count for band in store.waiting.bands(queue, SAMPLED).values())
    return QueueSample(ready, min(max(0, now - store.backlog([queue], now, COUNTED).oldest), LONGEST) if ready else 0)
