"""Jobs that the store has claimed for somebody who did not get the reply, and so does not know of them.

Such a claim may be made late: a server that hung, or that waits for the end of a sleep, carries out a request long
after the worker has given it up. Leases are the owner's, so the jobs would be the worker's for as long as it lives. So
they are looked for more than once.
"""

import logging
import math
from collections.abc import Collection, Sequence

from tarry.client.clock import Clock
from tarry.errors import PartlyUnavailable
from tarry.model.job import Job
from tarry.store.rules.base import Store
from tarry.worker.capacity import CLAIMED_AT_ONCE

log = logging.getLogger("tarry.worker")

AGAIN_FIRST, AGAIN_LAST = 1.0, 64.0
"""Seconds until the second look, and before the last one. Each pause is twice the one before: two minutes in all."""


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
    """Those of one worker."""

    def __init__(self, store: Store, owner: str, clock: Clock) -> None:
        self._store, self._owner, self._clock = store, owner, clock
        self._times: LookTimes | None = None

    def note_loss(self) -> None:
        """A reply was lost: from now on the jobs are looked for."""
        self._times = LookTimes()

    def is_due(self, now: float) -> bool:
        """Whether to look now."""
        return self._times is not None and self._times.is_due(now)

    def find(self, known: Collection[tuple[bytes, int]], now: float) -> Sequence[Job]:
        """The worker's jobs besides these attempts, by id and epoch. Answers what can be read; the rest is read by a
        later call."""
        # So many as a lost reply can have brought; if several were lost, the next look finds the others.
        limit = len(known) + CLAIMED_AT_ONCE
        try:
            jobs = self._store.reclaim(self._clock.now(), self._owner, limit)
            if len(jobs) < limit and self._times is not None:
                self._times.record_look(now)
        except PartlyUnavailable as error:
            jobs = error.answer
        except Exception as error:
            log.debug("jobs of a lost reply are not given back yet: %s", error)
            return ()
        return [job for job in jobs if (job.id, job.epoch) not in known]
