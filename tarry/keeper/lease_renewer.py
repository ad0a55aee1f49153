"""Leases of workers that live and cannot prolong them: their task lets no other thread of the process run."""

import logging
import time
from collections.abc import Callable, Mapping

from tarry.client.clock import Clock
from tarry.errors import PartlyUnavailable
from tarry.model.duration import SECOND
from tarry.model.quantity import quantity
from tarry.store.base import Store
from tarry.store.shared.partly import partly
from tarry.worker import owner

log = logging.getLogger("tarry.keeper")

_MOST_JOBS = 10_000
"""Jobs of one owner that are looked at: it is enough to know some on each of several stores."""


class LeaseRenewer:
    """Runs in another process than the workers, so that nothing that a task does can stop it.

    silent: the owners of this host that gave no sign of life for a moment, each with its lease in microseconds. Those
    whose process is gone, or stopped by a signal or a debugger, are left to their fate.
    """

    def __init__(self, store: Store, silent: Callable[[], Mapping[str, int]], clock: Clock | None = None) -> None:
        self._store, self._silent = store, silent
        self._clock = clock or Clock(store.time)
        self._due: dict[str, float] = {}
        """When each is to be prolonged again, by time.monotonic()."""
        self._logged: set[str] = set()

    def renew_leases(self) -> None:
        """Of all that need it, each to half of it at least. StoreError."""
        silent = {name: lease for name, lease in self._silent().items() if owner.is_at_work(name)}
        self._due = {name: moment for name, moment in self._due.items() if name in silent}
        self._logged &= silent.keys()
        away: PartlyUnavailable | None = None
        for name, lease in silent.items():
            now = time.monotonic()
            if self._due.get(name, 0.0) <= now:
                away = self._renew(name, lease) or away
                self._due[name] = now + lease / SECOND / 4
        if away is not None:
            raise away

    def _renew(self, name: str, lease: int) -> PartlyUnavailable | None:
        """The error, where some of several stores are away and the others have done it."""
        now = self._clock.now()
        jobs, away = partly(lambda: self._store.reclaim(now, name, _MOST_JOBS))
        if not jobs:
            return away
        self._log(name, len(jobs))
        held = [(job.id, job.epoch) for job in jobs]
        return partly(lambda: self._store.extend(name, held, lease, now))[1] or away

    def _log(self, name: str, jobs: int) -> None:
        """Only of those that go on being silent: a busy machine makes many so for a moment."""
        if name in self._due and name not in self._logged:
            self._logged.add(name)
            log.warning(
                "%s works and gives no sign of life; the lease on its %s is prolonged for it",
                name,
                quantity(jobs),
            )
