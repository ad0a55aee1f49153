"""Jobs that the store has claimed for somebody who did not get the reply, and so does not know of them.

Such a claim may be made late: a server that hung, or that waits for the end of a sleep, carries out a request long
after the worker has given it up. Leases are the owner's, so the jobs would be the worker's for as long as it lives. So
they are looked for more than once.
"""

import contextlib
import logging
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from tarry.client.clock import Clock
from tarry.errors import PartlyUnavailable
from tarry.model.job import Job
from tarry.store.rules.base import Store
from tarry.store.shared.backoff import Backoff
from tarry.worker.capacity import CLAIMED_AT_ONCE

log = logging.getLogger("tarry.worker")

AGAIN_FIRST, AGAIN_LAST = 1.0, 64.0
"""Seconds until the second look, and before the last one. Each pause is twice the one before: two minutes in all."""
MOST_OWNERS = 1000
"""For which jobs are looked for; those of any more come back when their lease ends."""


class LookTimes:
    """When to look for jobs of a reply that was lost: the first time at once. Moments are of time.monotonic()."""

    def __init__(self) -> None:
        self._again, self._pause = 0.0, AGAIN_FIRST

    def is_due(self, now: float) -> bool:
        """Whether to look now."""
        return now >= self._again

    @property
    def is_over(self) -> bool:
        """Whether the last look was made."""
        return self._again == math.inf

    def record_look(self, now: float) -> None:
        """All was looked through."""
        self._again = now + self._pause if self._pause <= AGAIN_LAST else math.inf
        self._pause *= 2


class UnseenClaims:
    """Those of the owners for which replies were lost. known: the attempts of an owner that are known now, by id and
    epoch."""

    def __init__(self, store: Store, clock: Clock, known: Callable[[str], Collection[tuple[bytes, int]]]) -> None:
        self._store, self._clock, self._known = store, clock, known
        self._lost: dict[str, tuple[set[tuple[bytes, int]], LookTimes]] = {}
        """By owner, the attempts that came in spite of the loss, and when to look."""
        self._backoff = Backoff()

    def __bool__(self) -> bool:
        return bool(self._lost)

    def note_loss(self, owner: str, jobs: Iterable[Job] = ()) -> None:
        """A reply for this owner was lost, but for these jobs: from now on others are looked for."""
        if owner in self._lost or len(self._lost) < MOST_OWNERS:
            self._lost[owner] = {(job.id, job.epoch) for job in jobs}, LookTimes()

    @contextlib.contextmanager
    def watch(self, owner: str) -> Iterator[None]:
        """Around a claim for this owner: if it fails, its reply may be lost."""
        try:
            yield
        except Exception:
            self.note_loss(owner)
            raise

    def find(self, now: float, skipped: str = "") -> Sequence[Job]:
        """The jobs of one of these owners of which nobody knows, if it is time to look. Answers what can be read; the
        rest is read by a later call. skipped: an owner for which a claim is under way."""
        due = (owner for owner, (_, times) in list(self._lost.items()) if owner != skipped and times.is_due(now))
        if self._backoff.left(now) or (owner := next(due, None)) is None:
            return ()
        noted, times = entry = self._lost[owner]
        # So many as a lost reply can have brought; if several were lost, the next look finds the others.
        limit = len(noted) + len(self._known(owner)) + CLAIMED_AT_ONCE
        try:
            jobs = self._store.reclaim(self._clock.now(), owner, limit)
        except Exception as error:
            self._backoff.fail(now)
            log.debug("not all jobs of a lost reply are given back yet: %s", error)
            jobs = error.answer if isinstance(error, PartlyUnavailable) else []
        else:
            self._backoff.succeed()
            if len(jobs) < limit:
                times.record_look(now)
            # Another thread may have lost one more reply meanwhile.
            if times.is_over and self._lost.get(owner) is entry:
                del self._lost[owner]
        known = {*noted, *self._known(owner)}
        return [job for job in jobs if (job.id, job.epoch) not in known]
