"""Ends jobs of broadcasts whose host or worker did not take them in time: nobody else takes them."""

from collections.abc import Iterator

from tarry.client.clock import Clock
from tarry.model import lifecycle
from tarry.model.change import Change
from tarry.model.flow.own_queues import is_own_queue
from tarry.model.job import State
from tarry.store.base import Query, Store
from tarry.store.shared.partial_result import reachable_part
from tarry.worker.exchanger import RulesFor

EVERY = 2.0
"""Seconds."""
# Bounded, so that the other chores get their turn; the next call does the rest.
_AT_ONCE = 1000


class BroadcastChore:
    """For one keeper. Each host does it: a change that another one has made is refused."""

    def __init__(self, store: Store, clock: Clock, rules: RulesFor) -> None:
        self._store, self._clock, self._rules = store, clock, rules

    def expire_jobs(self) -> None:
        """Cancels the jobs that are past their expiry. StoreError."""
        now = self._clock.now()
        if changes := list(self._changes(now)):
            self._store.apply(changes, now)

    def _changes(self, now: int) -> Iterator[Change]:
        for queue in filter(is_own_queue, reachable_part(self._store.queues)):
            query = Query((State.READY,), queue, limit=_AT_ONCE)
            for job in reachable_part(lambda: self._store.find(query)):  # noqa: B023
                if 0 < job.expires <= now:
                    rules = self._rules(job.task, job.queue)
                    yield lifecycle.cancel(job, rules, now, "it could not start in time", kind="Expired")
