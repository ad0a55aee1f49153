"""Renews the leases of workers that are alive but cannot do it, since their task lets no other thread run."""

import logging
import time
from collections.abc import Callable, Mapping

from tarry.client.clock import Clock
from tarry.errors import PartlyUnavailable
from tarry.model.duration import SECOND
from tarry.model.quantity import quantity
from tarry.store.rules import owner
from tarry.store.rules.base import Store
from tarry.store.rules.partial_result import partial_result

log = logging.getLogger("tarry.keeper")

# A few on each shard are enough.
_MOST_JOBS = 10_000
"""The most jobs of an owner that are read."""


class LeaseRenewer:
    """Runs outside of the worker processes, so that no task can stop it.

    silent: the owners on this host that have missed heartbeats, each with its lease in microseconds.
    """

    def __init__(self, store: Store, silent: Callable[[], Mapping[str, int]], clock: Clock | None = None) -> None:
        self._store, self._silent = store, silent
        self._clock = clock or Clock(store.time)
        self._due: dict[str, float] = {}
        """When each lease is due for renewal, by time.monotonic()."""
        self._logged: set[str] = set()

    def renew_leases(self) -> None:
        """Renews the leases of all silent owners well before they end. StoreError."""
        # Not for a process that is gone, or stopped by a signal or a debugger: it does not work on its jobs.
        silent = {name: lease for name, lease in self._silent().items() if owner.is_running(name)}
        self._due = {name: moment for name, moment in self._due.items() if name in silent}
        self._logged &= silent.keys()
        away: PartlyUnavailable | None = None
        for name, lease in silent.items():
            now = time.monotonic()
            if self._due.get(name, 0.0) <= now:
                # One shard that is away must not cost the other owners their leases.
                away = self._renew(name, lease) or away
                self._due[name] = now + lease / SECOND / 4
        if away is not None:
            raise away

    def _renew(self, name: str, lease: int) -> PartlyUnavailable | None:
        """Renews one lease. Returns the error if it was renewed on some shards only, since others are away."""
        now = self._clock.now()
        jobs, away = partial_result(lambda: self._store.reclaim(now, name, _MOST_JOBS))
        if not jobs:
            return away
        self._log(name, len(jobs))
        held = [(job.id, job.epoch) for job in jobs]
        return partial_result(lambda: self._store.extend(name, held, lease, now))[1] or away

    def _log(self, name: str, jobs: int) -> None:
        """Logs an owner that stays silent."""
        # Only at the second renewal: on a busy machine many are silent for a moment.
        if name in self._due and name not in self._logged:
            self._logged.add(name)
            log.warning(
                "%s works and gives no sign of life; the lease on its %s is prolonged for it",
                name,
                quantity(jobs),
            )
