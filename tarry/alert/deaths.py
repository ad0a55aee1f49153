"""Which jobs died lately: asked of the store by when they will be forgotten, which is so long after they died."""

from collections.abc import Callable, Collection, Sequence

import msgspec
from msgspec import Struct

from tarry.alert.condition import clean_line
from tarry.model.duration import HOUR, MINUTE
from tarry.model.job import Job, State
from tarry.store.base import Store
from tarry.store.shared.partly import there

OVERLAP = MINUTE
"""Microseconds that each look goes back before the last: what a worker settled may be stored later than it says."""
MAX_LOOKBACK = HOUR
"""As far as it goes back at most, after the store was away."""
PAGE, MOST_PAGES = 500, 10
"""Jobs that are read at once, and how often in one look; the next goes on from there."""
MOST_COUNTED, MOST_TASKS = 1000, 200
"""The dead of one task, and tasks, that are counted."""


class Death(Struct, frozen=True):
    """One of them; `at`: microseconds since the epoch."""

    id: bytes
    at: int
    reason: str


class Deaths:
    """kept: how long dead jobs are kept, in microseconds, all the different answers. back: how far the first look goes
    back."""

    def __init__(self, store: Store, kept: Callable[[], Collection[int]], lookback: int) -> None:
        self._store, self._kept, self._lookback = store, kept, lookback
        self._next_start: dict[int, int] = {}
        """Where the next look begins, for each of these."""
        self._dead: dict[str, dict[bytes, Death]] = {}

    def refresh(self, now: int, complete: bool) -> None:
        """Adds those since the last look. whole: it counts as one, since all stores are there. StoreError."""
        for kept in sorted(set(self._kept())):
            start = max(self._next_start.get(kept, now - self._lookback), now - MAX_LOOKBACK)
            end = self._read(kept, start, now)
            if complete:
                self._next_start[kept] = end

    def since(self, start: int) -> dict[str, Sequence[Death]]:
        """Those since then, by task, the earliest first; older ones are forgotten."""
        recent = {task: {id: one for id, one in dead.items() if one.at >= start} for task, dead in self._dead.items()}
        self._dead = {task: dead for task, dead in recent.items() if dead}
        return {task: sorted(dead.values(), key=lambda one: (one.at, one.id)) for task, dead in self._dead.items()}

    def _read(self, kept: int, start: int, now: int) -> int:
        """Adds those of which it is kept for so long; answers where to begin the next time."""
        at = start
        for _ in range(MOST_PAGES):
            page = there(lambda: self._store.leaving(at + kept, now + kept + MINUTE, PAGE))  # noqa: B023
            for job in page:
                if job.state is State.DEAD and job.since >= start:
                    self._add(job)
            if len(page) < PAGE:
                return now - OVERLAP
            # What has the same moment as the last may be on the next page; seen twice is counted once.
            at = max(page[-1].until - kept, at + 1)
        return at

    def _add(self, job: Job) -> None:
        if job.task in self._dead or len(self._dead) < MOST_TASKS:
            dead = self._dead.setdefault(job.task, {})
            if len(dead) < MOST_COUNTED:
                dead[job.id] = Death(job.id, job.since, _reason(job))


def _reason(job: Job) -> str:
    try:
        facts = msgspec.json.decode(job.note, type=dict[str, str])
    except msgspec.MsgspecError:
        return "no reason is known"
    return clean_line(f"{facts.get('type', '')}: {facts.get('message', '')}", 200)
