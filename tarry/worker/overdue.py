"""Which leases that seem to have run out really have: a clock that was set, a machine that slept and a store that was
away all look like dead workers."""

import logging
from collections.abc import Iterable

from tarry.client.clock import Clock, elapsed
from tarry.errors import PartlyUnavailable
from tarry.model.duration import MINUTE, SECOND
from tarry.model.job import Job
from tarry.store.base import Store
from tarry.store.shared.partly import partly
from tarry.store.shared.patience import PATIENCE
from tarry.worker import owner

log = logging.getLogger("tarry.keeper")

GAP = 5 * SECOND
"""Between two calls, which should be a second apart: longer, and we were suspended, perhaps with all workers."""
SPARED_FOR = 10 * MINUTE
"""For so long a process of this host that lives and does not prolong its lease keeps its jobs. Not for ever: a web
process may live on after the worker in it broke."""
_LEASE = 15 * SECOND
_BATCH = 1000


class Overdue:
    """Of one keeper. `jobs()` answers what to bring back, by the store's word on leases, unless that says nothing now:
    then it is empty until all who live have had the time to prolong theirs."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._patient_until = 0
        self._jumps = clock.jumps
        self._called = elapsed()
        self._late = False
        self._spared: dict[str, tuple[int, int]] = {}
        """The living whose lease was prolonged for them: when first, and when last, by `elapsed`."""

    def be_patient(self) -> None:
        """Nobody's lease counts as over for a while."""
        self._patient_until = elapsed() + round(PATIENCE * SECOND)

    def jobs(self) -> list[Job]:
        """StoreError; PartlyUnavailable with those of the stores that are there."""
        self._notice_a_gap()
        if elapsed() < self._patient_until:
            return []
        found, away = partly(self._found)
        if found:
            # Before a job is taken from anybody, the clock by which that is so is looked at once more.
            self._clock.measure()
        self._notice_a_jump()
        if elapsed() < self._patient_until:
            found = []
        elif found:
            found, away = partly(self._found)
            found = self._without_living(found)
        if away is not None:
            raise PartlyUnavailable(str(away), found, away.missing)
        return found

    def _found(self) -> list[Job]:
        return self._store.reclaim(self._clock.now(), None, _BATCH)

    def _notice_a_gap(self) -> None:
        """Once, and not again while every call comes late: then it is the machine that is slow."""
        now = elapsed()
        late = now - self._called > GAP
        if late and not self._late:
            self.be_patient()
        self._called, self._late = now, late

    def _notice_a_jump(self) -> None:
        if self._clock.jumps != self._jumps:
            self._jumps = self._clock.jumps
            self.be_patient()
            way = "forward" if self._clock.jump > 0 else "back"
            text = "the store's clock was set %s by %.1f s; for %g s no lease counts as over"
            log.warning(text, way, abs(self._clock.jump) / SECOND, PATIENCE)

    def _without_living(self, jobs: list[Job]) -> list[Job]:
        living = {name for name in {job.owner for job in jobs} if self._spares(name)}
        for name in living:
            self._prolong(name, (job for job in jobs if job.owner == name))
        return [job for job in jobs if job.owner not in living]

    def _spares(self, name: str) -> bool:
        now = elapsed()
        self._spared = {name: times for name, times in self._spared.items() if now - times[1] < MINUTE}
        if not owner.is_at_work(name):
            return False
        first, _ = self._spared.get(name, (now, now))
        if now - first >= SPARED_FOR:
            return False
        if name not in self._spared:
            log.warning("%s lives and did not prolong its lease; it is prolonged for it", name)
        self._spared[name] = (first, now)
        return True

    def _prolong(self, name: str, jobs: Iterable[Job]) -> None:
        """So that other hosts leave it alone too, and that it does not fill the next page."""
        held = [(job.id, job.epoch) for job in jobs]
        partly(lambda: self._store.extend(name, held, _LEASE, self._clock.now()))
