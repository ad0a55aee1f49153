"""What people and clients see of tubes and jobs: peeks, kicks and statistics. All of it reads the store, and blocks.

The store has no list of a tube's jobs by priority that could be read without a claim: what depends on the order of
ready jobs looks at the LOOKED_AT oldest ones.
"""

from collections.abc import Iterable
from itertools import filterfalse
from operator import attrgetter

from msgspec import Struct

from tarry.model.flow.own_queues import is_own_queue
from tarry.model.job import Job, State
from tarry.model.lifecycle import NotPossible
from tarry.server.beanstalk import job_mapping
from tarry.server.beanstalk.job_mapping import state_of
from tarry.store.rules.base import Query, Store, Tally

LOOKED_AT = 200
KICKED_MOST = 10_000
"""Jobs that one `kick` kicks at most."""
_PAGE = 1000


class TubeJobs(Struct):
    """How many jobs of a tube, or of all, are in each of the protocol's states."""

    urgent: int = 0
    ready: int = 0
    reserved: int = 0
    delayed: int = 0
    buried: int = 0

    def add(self, tally: Tally, due: int) -> None:
        """Adds jobs of one state; due: how many of the scheduled ones are ready by now."""
        match tally.state:
            case State.READY:
                self.ready += tally.count
            case State.RUNNING:
                self.reserved += tally.count
            case State.DEAD:
                self.buried += tally.count
            case State.SCHEDULED:
                self.ready, self.delayed = self.ready + due, self.delayed + tally.count - due

    @property
    def total(self) -> int:
        """Jobs that the protocol knows of."""
        return self.ready + self.reserved + self.delayed + self.buried


class Tubes:
    """The tubes of a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def names(self) -> set[str]:
        """Tubes that have jobs; without those of broadcasts."""
        found = {tally.queue for tally in self._store.counts() if tally.state in job_mapping.BANDS_OF_STATES}
        return set(filterfalse(is_own_queue, found))

    def jobs(self, now: int, tube: str | None = None) -> TubeJobs:
        """Of one tube; None: of all."""
        jobs = TubeJobs()
        for tally in self._store.counts():
            if tube in (None, tally.queue):
                jobs.add(tally, self._due_among(tally, now))
        if jobs.ready:
            jobs.urgent = sum(job.priority > 0 for job in self._ready(tube, now))
        return jobs

    def peek(self, state: str, tube: str, now: int) -> Job | None:
        """The next job of a tube that is ready, delayed or buried."""
        if state == "ready":
            return min(self._ready(tube, now), key=lambda job: (-job.priority, job.id), default=None)
        if state == "delayed":
            jobs = self._find(State.SCHEDULED, tube)
            return min((job for job in jobs if job.due > now), key=attrgetter("due", "id"), default=None)
        return min(self._find(State.DEAD, tube), key=attrgetter("state_since", "id"), default=None)

    def kick(self, tube: str, most: int, now: int) -> int:
        """Makes buried jobs ready, or if there are none, delayed ones; returns how many."""
        most = min(most, KICKED_MOST)
        return self._kick_all(State.DEAD, "state_since", tube, most, now) or self._kick_all(
            State.SCHEDULED, "due", tube, most, now
        )

    def _kick_all(self, state: State, order: str, tube: str, most: int, now: int) -> int:
        kicked, after = 0, b""
        while kicked < most:
            page = self._store.find(Query((state,), tube, after=after, limit=_PAGE))
            first = sorted(page, key=attrgetter(order, "id"))[: most - kicked]
            kicked += self._kick_each(first, now)
            if len(page) < _PAGE:
                break
            after = page[-1].id
        return kicked

    def _kick_each(self, jobs: Iterable[Job], now: int) -> int:
        changes = []
        for job in jobs:
            try:
                changes.append(job_mapping.kick(job, now))
            except NotPossible:
                # It became ready by itself since.
                continue
        return sum(self._store.apply(changes, now)) if changes else 0

    def _ready(self, tube: str | None, now: int) -> list[Job]:
        jobs = self._find(State.READY, tube) + self._find(State.SCHEDULED, tube)
        return [job for job in jobs if state_of(job, now) == "ready"]

    def _due_among(self, tally: Tally, now: int) -> int:
        # Due jobs stay scheduled until somebody claims: only then does a second look tell how many.
        if tally.state is not State.SCHEDULED or tally.oldest > now:
            return 0
        found = self._store.find(Query((State.SCHEDULED,), tally.queue, tally.task, limit=_PAGE))
        return sum(job.due <= now for job in found)

    def _find(self, state: State, tube: str | None) -> list[Job]:
        return self._store.find(Query((state,), tube, limit=LOOKED_AT))
