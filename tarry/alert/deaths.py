"""Which jobs died lately."""

from collections.abc import Callable, Collection, Sequence

from msgspec import Struct

from tarry.alert.condition import clean_line
from tarry.model.checks.unreadable import read_note
from tarry.model.duration import HOUR, MINUTE
from tarry.model.job import Job, State
from tarry.store.rules.base import Store
from tarry.store.rules.partial_result import reachable_part

# A job may be stored later than its own time says.
OVERLAP = MINUTE
"""Microseconds by which each search overlaps the one before."""
MAX_LOOKBACK = HOUR
"""Microseconds that a search goes back at most, after the store was away."""
PAGE, MOST_PAGES = 500, 10
"""Jobs in a page, and pages in one search; the next search continues from there."""
MOST_COUNTED, MOST_TASKS = 1000, 200
"""The most dead jobs of a task, and the most tasks, that are counted."""


class Death(Struct, frozen=True):
    """A job that died; `at` is in microseconds since the epoch."""

    id: bytes
    at: int
    reason: str


class Deaths:
    """kept: the different times for which queues keep dead jobs, in microseconds. lookback: how far the first search
    goes back."""

    def __init__(self, store: Store, kept: Callable[[], Collection[int]], lookback: int) -> None:
        self._store, self._kept, self._lookback = store, kept, lookback
        self._next_start: dict[int, int] = {}
        """Where the next search begins, by time of keeping."""
        self._dead: dict[str, dict[bytes, Death]] = {}

    def refresh(self, now: int, complete: bool) -> None:
        """Adds the deaths since the last search. complete: all stores could be asked. StoreError."""
        # If a store could not be asked, the next search begins at the same place again.
        for kept in sorted(set(self._kept())):
            start = max(self._next_start.get(kept, now - self._lookback), now - MAX_LOOKBACK)
            end = self._read(kept, start, now)
            if complete:
                self._next_start[kept] = end

    def since(self, start: int) -> dict[str, Sequence[Death]]:
        """The deaths since `start` by task, earliest first; forgets older ones."""
        recent = {task: {id: one for id, one in dead.items() if one.at >= start} for task, dead in self._dead.items()}
        self._dead = {task: dead for task, dead in recent.items() if dead}
        return {task: sorted(dead.values(), key=lambda one: (one.at, one.id)) for task, dead in self._dead.items()}

    def _read(self, kept: int, start: int, now: int) -> int:
        """Adds the deaths among jobs kept for that long; returns where the next search begins."""
        # The store lists jobs by when it forgets them. It keeps dead jobs of a queue for a fixed time, so that order is
        # also the order of their deaths.
        at = start
        for _ in range(MOST_PAGES):
            page = reachable_part(lambda: self._store.expiring(at + kept, now + kept + MINUTE, PAGE))  # noqa: B023
            for job in page:
                if job.state is State.DEAD and job.state_since >= start:
                    self._add(job)
            if len(page) < PAGE:
                return now - OVERLAP
            # Jobs with the same time as the last one may be on the next page. A job seen twice counts once.
            # At least one further: a page full of jobs of one moment would else be read again and again.
            at = max(page[-1].keep_until - kept, at + 1)
        return at

    def _add(self, job: Job) -> None:
        if job.task in self._dead or len(self._dead) < MOST_TASKS:
            dead = self._dead.setdefault(job.task, {})
            if len(dead) < MOST_COUNTED:
                dead[job.id] = Death(job.id, job.state_since, _reason(job))


def _reason(job: Job) -> str:
    facts = read_note(job.note)
    if not {"type", "message"} & facts.keys():
        return "no reason is known"
    return clean_line(f"{facts.get('type', '')}: {facts.get('message', '')}", 200)
