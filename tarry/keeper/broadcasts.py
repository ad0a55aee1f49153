"""Ends jobs of broadcasts whose host or worker did not take them in time, or is gone: nobody else takes them."""

from collections.abc import Iterator

from tarry.client.clock import Clock
from tarry.model import lifecycle
from tarry.model.change import Change
from tarry.model.duration import MINUTE
from tarry.model.flow.own_queues import is_own_queue, owner_of
from tarry.model.job import Job, State
from tarry.store import owner
from tarry.store.base import Query, Store
from tarry.store.hosts import list_hosts
from tarry.store.shared.partial_result import reachable_part
from tarry.worker.exchanger import RulesFor

EVERY = 2.0
"""Seconds."""
GONE_AFTER = 10 * MINUTE
"""For so long a job that has started waits for a host that cannot be seen: it may be cut off from the store."""
# Bounded, so that the other chores get their turn; the next call does the rest.
_AT_ONCE = 1000


class BroadcastChore:
    """For one keeper. Each host does it: a change that another one has made is refused."""

    def __init__(self, store: Store, clock: Clock, rules: RulesFor) -> None:
        self._store, self._clock, self._rules = store, clock, rules

    def expire_jobs(self) -> None:
        """Cancels the jobs that are past their expiry, and those that have started and whose host or worker is gone.
        StoreError."""
        now = self._clock.now()
        if changes := list(self._changes(now)):
            self._store.apply(changes, now)

    def _changes(self, now: int) -> Iterator[Change]:
        queues = [queue for queue in reachable_part(self._store.queues) if is_own_queue(queue)]
        names = self._live_names(now) if queues else frozenset()
        for queue in queues:
            query = Query((State.READY,), queue, limit=_AT_ONCE)
            for job in reachable_part(lambda: self._store.find(query)):  # noqa: B023
                rules = self._rules(job.task, job.queue)
                if 0 < job.expires <= now:
                    yield lifecycle.cancel(job, rules, now, "it could not start in time", kind="Expired")
                elif not job.expires and _is_gone(job, names, now):
                    yield lifecycle.cancel(job, rules, now, f"{owner_of(queue)} does not run any more", kind="Gone")

    def _live_names(self, now: int) -> frozenset[str]:
        """The masters and workers that are known to run."""
        hosts = [host for host in list_hosts(self._store, now) if host.is_alive]
        workers = (name for host in hosts for name in (*(each.owner for each in host.workers), *host.more_workers))
        return frozenset((*(host.instance for host in hosts), *workers))


def _is_gone(job: Job, live: frozenset[str], now: int) -> bool:
    """Whether nobody takes a ready job any more that has started before, and was to go on or to be tried again."""
    name = owner_of(job.queue)
    return name not in live and (owner.is_dead(name) or now - job.state_since >= GONE_AFTER)
