"""Finds the jobs whose lease has really run out."""

# A clock that was set, a machine that slept and a store that was away all look like dead workers.

import logging
from collections.abc import Iterable

from tarry.client.clock import Clock, elapsed
from tarry.errors import PartlyUnavailable
from tarry.model.duration import MINUTE, SECOND
from tarry.model.job import Job
from tarry.store.rules import owner
from tarry.store.rules.base import Store
from tarry.store.rules.partial_result import partial_result
from tarry.store.shared.backoff import LEASE_GRACE

log = logging.getLogger("tarry.keeper")

# Calls should be a second apart. After a longer gap we were suspended, perhaps together with all workers.
GAP = 5 * SECOND
MOST_GAPS = 3
"""After so many gaps in a row the machine is slow, and its calls tell of no suspension."""
# Not for ever: a web process may live on after the worker in it broke.
SPARED_FOR = 10 * MINUTE
"""How long a live process of this host keeps its jobs without extending their leases."""
_LEASE = 15 * SECOND
_BATCH = 1000


class ExpiredLeases:
    """For one keeper. After a gap or a step of the clock it finds no jobs until all live workers have had the time to
    extend their leases."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._patient_until = 0
        self._jumps = clock.jumps
        self._called = elapsed()
        self._gaps = 0
        """How many calls in a row came late."""
        self._spared: dict[str, tuple[int, int]] = {}
        """Live owners whose leases we extend: the first and the last time, by `elapsed`."""

    def be_patient(self) -> None:
        """Treats no lease as over for a while."""
        self._patient_until = elapsed() + round(LEASE_GRACE * SECOND)

    @property
    def is_patient(self) -> bool:
        """Whether no lease counts as over now."""
        return elapsed() < self._patient_until

    def find_jobs(self) -> list[Job]:
        """The jobs to recover. StoreError; PartlyUnavailable has the jobs of the stores that are available."""
        self._notice_a_gap()
        if self.is_patient:
            return []
        found, away = partial_result(self._find)
        if found:
            # Measure the clock again before a job is taken from its owner.
            self._clock.measure()
        self._notice_a_jump()
        if self.is_patient:
            found = []
        elif found:
            # Found again, by the clock as measured just now.
            found, away = partial_result(self._find)
            found = self._without_live_owners(found)
        if away is not None:
            raise PartlyUnavailable(str(away), found, away.missing)
        return found

    def _find(self) -> list[Job]:
        return self._store.reclaim(self._clock.now(), None, _BATCH)

    def _notice_a_gap(self) -> None:
        """Notices a gap between two calls."""
        now = elapsed()
        self._gaps = self._gaps + 1 if now - self._called > GAP else 0
        if 0 < self._gaps <= MOST_GAPS:
            self.be_patient()
        self._called = now

    def _notice_a_jump(self) -> None:
        if self._clock.jumps != self._jumps:
            self._jumps = self._clock.jumps
            self.be_patient()
            way = "forward" if self._clock.jump > 0 else "back"
            text = "the store's clock was set %s by %.1f s; for %g s no lease counts as over"
            log.warning(text, way, abs(self._clock.jump) / SECOND, LEASE_GRACE)

    def _without_live_owners(self, jobs: list[Job]) -> list[Job]:
        living = {name for name in {job.owner for job in jobs} if self._spares(name)}
        for name in living:
            self._prolong(name, (job for job in jobs if job.owner == name))
        return [job for job in jobs if job.owner not in living]

    def _spares(self, name: str) -> bool:
        now = elapsed()
        self._spared = {name: times for name, times in self._spared.items() if now - times[1] < MINUTE}
        if not owner.is_running(name):
            return False
        first, _ = self._spared.get(name, (now, now))
        if now - first >= SPARED_FOR:
            return False
        if name not in self._spared:
            log.warning("%s lives and did not prolong its lease; it is prolonged for it", name)
        self._spared[name] = (first, now)
        return True

    def _prolong(self, name: str, jobs: Iterable[Job]) -> None:
        """Extends the leases of these jobs."""
        # So other hosts leave the jobs alone, too, and the next page has other jobs.
        held = [(job.id, job.epoch) for job in jobs]
        partial_result(lambda: self._store.extend(name, held, _LEASE, self._clock.now()))
