"""Which queues a worker serves, and what it wishes for from each."""

import time
from collections.abc import Mapping, Sequence

from tarry.errors import StoreError
from tarry.model.job import Job
from tarry.store.base import NORMAL, Store, Want
from tarry.store.shared.partly import there
from tarry.worker.shares import BandShares, Shares

LOOK_EVERY = 1.0
"""Seconds between two looks for new queues while busy: a worker that is never idle would find none."""
_PROMPT = Want("", NORMAL, 0)
"""No queue has this name."""


class Served:
    """The configured queues with their weights; or, with "*", those that have jobs, found as they come."""

    def __init__(self, store: Store, queues: Mapping[str, int], shares: BandShares) -> None:
        self._store = store
        self._all = "*" in queues
        self._served: Mapping[str, int] = {} if self._all else dict(queues)
        self._shares = Shares(shares)
        self._shares.serve(self._served)
        self._looked = 0.0

    def wants(self, room: int, due: bool) -> Sequence[Want]:
        """What to claim. due: scheduled jobs are to be made ready, which a claim does, also those of queues that
        were not found yet; with no line open it would not be one."""
        if self._all and (not self._served or time.monotonic() - self._looked >= LOOK_EVERY):
            self.found_new()
        wants = self._shares.plan(room) if self._served else []
        return [*wants, _PROMPT] if due else wants

    def given(self, wants: Sequence[Want], jobs: Sequence[Job]) -> None:
        """What came of it."""
        self._shares.given(wants, jobs)

    def found_new(self) -> bool:
        """With "*": whether queues have come that were not served yet."""
        if not self._all:
            return False
        self._looked = time.monotonic()
        try:
            queues = there(self._store.queues)
        except StoreError:
            return False
        found = {queue: 1 for queue, paused in queues.items() if not paused}
        if not found.keys() - self._served.keys():
            return False
        self._served = found
        self._shares.serve(found)
        return True
