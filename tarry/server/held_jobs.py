"""The owners of jobs that this process took for other programs."""

import time
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from tarry.client.clock import Clock
from tarry.model.duration import SECOND
from tarry.model.flow.wiring import split
from tarry.model.job import Job
from tarry.store.rules import owner
from tarry.store.rules.base import Store
from tarry.store.rules.partial_result import partial_result
from tarry.worker.held_leases import HeldLeases

LEASE = 15 * SECOND
_LOOK_EVERY = 30.0
"""Seconds between two looks for owners whose jobs have all ended elsewhere."""


class HeldJobs(HeldLeases[Job]):
    """The jobs that this process holds for others. Once the process is dead, the keeper gives them back. is_away:
    whether the store is known to be."""

    def __init__(self, store: Store, clock: Clock, is_away: Callable[[], bool]) -> None:
        self.owner = owner.door_name()
        self._jobs: dict[bytes, Job] = {}
        super().__init__(store, self.owner, self._jobs, clock, LEASE, is_away)

    def __len__(self) -> int:
        return len(self._jobs)

    def add(self, jobs: Sequence[Job]) -> None:
        """The process holds these, which were claimed just now."""
        self.record_claim(jobs, time.monotonic())
        # No rule needs the arguments, which may be large; the end of a node needs its envelope.
        self._jobs.update((job.id, replace(job, body=split(job.id, job.body)[0], progress=b"")) for job in jobs)

    def get(self, id: bytes) -> Job | None:
        """The job, without its arguments, if the process holds it."""
        return self._jobs.get(id)

    def drop(self, id: bytes) -> None:
        """The process does not hold this job any more."""
        self._jobs.pop(id, None)

    def attempts(self, owner: str) -> list[tuple[bytes, int]]:
        """Those that it holds of this owner."""
        return [(job.id, job.epoch) for job in self.jobs()] if owner == self.owner else []

    def jobs(self) -> list[Job]:
        """All of them."""
        return list(self._jobs.values())

    def epoch(self, held: Job) -> int:
        return held.epoch

    def see_lost(self, taken: Sequence[Job]) -> None:
        for job in taken:
            self.drop(job.id)


class OutsideOwners:
    """The names of owners for the claims of programs that hold their jobs themselves: each claim has its own lease, so
    each has its own owner. A name whose jobs have all ended is used again."""

    def __init__(self) -> None:
        self._free: dict[int, list[str]] = {}
        """By lease: a name is used again for a lease of the same length only, since a lease gets never shorter."""
        self._used: dict[str, tuple[int, int]] = {}
        """The lease, and how many jobs of it have not ended."""
        self._looked_at = 0.0

    def acquire(self, lease: int) -> tuple[str, int]:
        """A name whose owner holds no job, and the lease to ask for, so that it lasts for `lease` at least."""
        free = self._free.get(lease)
        # The store prolongs a lease only if less than half of what is asked for is left.
        return (free.pop(), 2 * lease) if free else (owner.outside_name(), lease)

    def note_claim(self, name: str, lease: int, count: int) -> None:
        """A claim brought so many jobs to this owner."""
        if count:
            self._used[name] = (lease, count)
        else:
            self._free.setdefault(lease, []).append(name)

    def note_end(self, name: str) -> None:
        """An attempt of this owner has ended."""
        lease, count = self._used.get(name, (0, 0))
        if count > 1:
            self._used[name] = (lease, count - 1)
        elif count:
            del self._used[name]
            self.note_claim(name, lease, 0)

    def free_ended(self, store: Store, now: float) -> None:
        """Frees, now and then, the names whose jobs ended by another process, by a cancel or the keeper. StoreError."""
        if not self._used or now - self._looked_at < _LOOK_EVERY:
            return
        self._looked_at = now
        names, away = partial_result(store.owners)
        if away is not None:
            return
        for name in self._used.keys() - set(names):
            self.note_claim(name, self._used.pop(name)[0], 0)
        # After a burst of claims, not all names are needed again.
        self._free = {lease: free[-1000:] for lease, free in list(self._free.items())[-100:] if free}
