"""What waits for each pool that follows its backlog: looked at now and then, and told to whoever sets its count."""

from collections.abc import Callable, Collection, Mapping

from tarry.client.clock import Clock
from tarry.model.duration import SECOND
from tarry.store.base import Store
from tarry.store.shared.partly import there

REPORT_EVERY = 0.5
"""Seconds."""
COUNTED = 1000
"""Jobs that are counted at most: enough to know that many more workers are wanted."""

BacklogReport = dict[str, tuple[int, float]]
"""By pool: how many jobs wait, and for how many seconds the first of them has."""


class BacklogReporter:
    """For the keeper. pools: names, with their queues, or None for all that there are."""

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
        """Tells what is there now; what of the stores is away is left out. StoreError: nothing is told."""
        now = self._clock.now()
        self._notify({pool: self._waiting(queues, now) for pool, queues in self._pools.items()})

    def _waiting(self, queues: Collection[str] | None, now: int) -> tuple[int, float]:
        backlog = there(lambda: self._store.backlog(queues, now, COUNTED))
        return backlog.count, max(0, now - backlog.oldest) / SECOND
