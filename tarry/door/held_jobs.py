"""The owners of jobs that this process took for other programs."""

import contextlib
import threading
import time
from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from tarry.errors import StoreError
from tarry.model.duration import SECOND
from tarry.model.flow.wiring import split
from tarry.model.job import Job
from tarry.store.rules import owner
from tarry.store.rules.base import Store
from tarry.store.rules.partial_result import partial_result
from tarry.worker.unseen_claims import LookTimes

LEASE = 15 * SECOND
EXTEND_EVERY = 1.0
"""Seconds."""
_LOOK_EVERY = 30.0
"""Seconds between two looks for owners whose jobs have all ended elsewhere."""
_MOST_DOUBTS = 1000
_RECLAIMED = 1000


class HeldJobs:
    """The jobs that this process holds for others. Once the process is dead, the keeper gives them back."""

    def __init__(self) -> None:
        self.owner = owner.door_name()
        self._jobs: dict[bytes, Job] = {}
        self._extended_at = 0.0

    def __len__(self) -> int:
        return len(self._jobs)

    def add(self, jobs: Iterable[Job]) -> None:
        """The process holds these from now on."""
        if not self._jobs:
            # Their lease is new.
            self._extended_at = time.monotonic()
        # No rule needs the arguments, which may be large; the end of a node needs its envelope.
        self._jobs.update((job.id, replace(job, body=split(job.id, job.body)[0], progress=b"")) for job in jobs)

    def get(self, id: bytes) -> Job | None:
        """The job, without its arguments, if the process holds it."""
        return self._jobs.get(id)

    def drop(self, id: bytes) -> None:
        """The process does not hold this job any more."""
        self._jobs.pop(id, None)

    def jobs(self) -> list[Job]:
        """All of them."""
        return list(self._jobs.values())

    def extend_after(self, now: float) -> float:
        """Seconds until `extend` is due."""
        return max(0.0, self._extended_at + EXTEND_EVERY - now)

    def extend(self, store: Store, moment: int) -> None:
        """Prolongs the lease, and forgets the jobs that were taken away. StoreError."""
        self._extended_at = time.monotonic()
        # A copy: jobs are added by other threads, too.
        held = [(id, job.epoch) for id, job in list(self._jobs.items())]
        lost, away = partial_result(lambda: store.extend(self.owner, held, LEASE, moment))
        for id in lost:
            self.drop(id)
        if away is not None:
            raise away


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


class Doubts:
    """The owners for which the answer of a claim was lost: the store may have given them jobs of which nobody knows."""

    def __init__(self, held: HeldJobs) -> None:
        self._held = held
        self._known: dict[str, tuple[set[tuple[bytes, int]], LookTimes]] = {}
        """By owner, the attempts of it that are known besides those that are held, and when to look."""
        self._reserving, self._lock = 0, threading.Lock()
        """Calls of other threads that take jobs in the name of the holder."""

    def __bool__(self) -> bool:
        return bool(self._known)

    def note(self, name: str, known: Iterable[Job] = ()) -> None:
        """An answer for this owner was lost, but for these jobs."""
        if len(self._known) < _MOST_DOUBTS:
            self._known[name] = {(job.id, job.epoch) for job in known}, LookTimes()

    @contextlib.contextmanager
    def reserving(self) -> Iterator[None]:
        """While another thread takes a job in the name of the holder, and holds it."""
        with self._lock:
            self._reserving += 1
        try:
            yield
        except StoreError:
            self.note(self._held.owner)
            raise
        finally:
            with self._lock:
                self._reserving -= 1

    def settle(self, store: Store, moment: int) -> list[Job]:
        """The jobs of one of these owners of which nobody knows, to be given back. StoreError."""
        # While such a call lasts, a job that it has brought is not held yet.
        skipped, now = self._held.owner if self._reserving else "", time.monotonic()
        due = (name for name, (_, times) in list(self._known.items()) if name != skipped and times.is_due(now))
        if (name := next(due, None)) is None:
            return []
        entry = known, times = self._known[name]
        jobs = store.reclaim(moment, name, _RECLAIMED)
        times.record_look(now)
        # Another thread may have lost one more reply meanwhile.
        if times.is_over and self._known[name] is entry:
            del self._known[name]
        return [job for job in jobs if (job.id, job.epoch) not in known and self._held.get(job.id) is None]
