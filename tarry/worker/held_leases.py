"""The lease of an owner on the jobs that it holds: prolonged now and then, which also tells which jobs it has lost."""

import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic, TypeVar

from tarry.client.clock import Clock, elapsed
from tarry.errors import PartlyUnavailable, StoreError
from tarry.model.duration import SECOND
from tarry.model.job import Job
from tarry.model.killing import reason_for
from tarry.store.rules import kept_places
from tarry.store.rules.base import Store
from tarry.store.shared.backoff import Backoff
from tarry.tasks.running import Running

log = logging.getLogger("tarry.worker")

H = TypeVar("H")

EXTEND_EVERY = 1.0
"""Seconds."""
CHECK_SHARE = 0.02
"""The most of its time that a worker spends to learn early, between two extensions, which jobs are not its own."""


class HeldLeases(Generic[H]):
    """held: what stands for each job, by its id; the caller changes it. lease: microseconds. is_away: whether the store
    is known to be."""

    def __init__(
        self,
        store: Store,
        owner: str,
        held: Mapping[bytes, H],
        clock: Clock,
        lease: int,
        is_away: Callable[[], bool],
    ) -> None:
        self._store, self._owner, self._held, self._clock, self._lease = store, owner, held, clock, lease
        self._is_away = is_away
        self._backoff = Backoff(log, "leases are extended again")
        self.extended_at = 0
        """When the lease of all held jobs was last extended or new, by `elapsed`: before the call that did it."""
        self._extended_at = 0.0
        self._extend_after = EXTEND_EVERY
        """Seconds from there to the next extension."""
        self._extend_took = 0.0
        """Seconds that the last extension took."""

    def record_claim(self, jobs: Sequence[Job], now: float) -> None:
        """Records that these jobs were claimed and are not held yet."""
        if jobs and not self._held:
            self.extended_at = elapsed() - round(max(0.0, time.monotonic() - now) * SECOND)
            # Their lease is new: the next extension is due in a while.
            self._extended_at, self._extend_after = now, EXTEND_EVERY

    def check_soon(self) -> None:
        """Makes the next `extend` act at once, or soon if that takes long."""
        # A worker with many short jobs and many long ones listens often, and each time all long ones would be read.
        self._extend_after = min(self._extend_took / CHECK_SHARE, EXTEND_EVERY)

    def seconds_to_check(self, now: float) -> float:
        """How long the pump may sleep until an early extension that was put off; infinite if there is none."""
        return math.inf if self._extend_after >= EXTEND_EVERY else self.seconds_to_extension(now)

    def seconds_to_extension(self, now: float) -> float:
        """Seconds until `extend` has something to do; infinite if nothing is held."""
        if not self._held:
            return math.inf
        return max(0.0, self._extended_at + self._extend_after - now, self._backoff.left(now))

    def extend(self, now: float) -> Sequence[H]:
        """Extends the leases of all held jobs if it is time; returns the jobs that are not ours any more."""
        if not (self._held and now - self._extended_at >= self._extend_after and not self._backoff.left(now)):
            return ()
        # Before the call: if it fails, the back-off decides when to try again.
        self._extended_at, self._extend_after = now, EXTEND_EVERY
        began = time.monotonic()
        taken = self._extend_held()
        self._extend_took = time.monotonic() - began
        return taken

    def _extend_held(self) -> Sequence[H]:
        # A copy: other threads may hold more meanwhile.
        held = [(id, self.epoch(one)) for id, one in list(self._held.items())]
        began = elapsed()
        try:
            lost = self._store.extend(self._owner, held, self._lease, self._clock.now())
            self._backoff.succeed()
            self.extended_at = began
        except PartlyUnavailable as error:
            # Answers of the stores that are there still count: jobs that they say are lost must end.
            lost = error.answer
            self._note_failure(error)
        except StoreError as error:
            self._note_failure(error)
            return ()
        taken = [self._held[id] for id in lost if id in self._held]
        if taken:
            self.see_lost(taken)
        return taken

    def epoch(self, held: H) -> int:
        """The attempt at the job."""
        raise NotImplementedError

    def see_lost(self, taken: Sequence[H]) -> None:
        """These are not ours any more, as the store says."""
        raise NotImplementedError

    def _note_failure(self, error: StoreError) -> None:
        # While the whole store is away, that is in the log already.
        if self._backoff.fail(time.monotonic(), is_known=self._is_away()):
            log.warning("leases not extended: %s", error)


class AttemptLeases(HeldLeases[Running]):
    """Those of a worker, whose attempts run on for a while once their jobs are lost."""

    def epoch(self, held: Running) -> int:
        return held.job.epoch

    def see_lost(self, taken: Sequence[Running]) -> None:
        self._prolong_places(taken)
        self._note_kill_reasons(taken)

    def _prolong_places(self, taken: Iterable[Running]) -> None:
        """While their code goes on, no other job may start in their place under a limit."""
        attempts = [(running.job.id, running.job.epoch) for running in taken]
        try:
            kept_places.prolong(self._store, self._owner, attempts, self._lease, self._clock.now())
        except StoreError as error:
            log.debug("places under limits not kept for longer: %s", error)

    def _note_kill_reasons(self, taken: Iterable[Running]) -> None:
        """Notes why jobs are not ours any more: if they do not end, the worker is killed for this reason."""
        # An attempt that was interrupted before has its reason.
        fresh = [running for running in taken if running.interrupt is None]
        if not fresh:
            return
        jobs: Sequence[Job | None]
        try:
            jobs = self._store.get([running.job.id for running in fresh])
        except StoreError:
            jobs = [None] * len(fresh)
        for running, job in zip(fresh, jobs, strict=True):
            running.kill_reason = reason_for(job)
