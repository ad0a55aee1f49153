"""Whose turn it is among the jobs of one key of an ordered task (`@app.task(order_by=...)`, `order` of an HTTP task).

A limit of one for each key lets nobody claim two of them at once. But the lane of a key may give a later job while an
earlier one waits for its next attempt, comes back from a dead worker, or is dead and holds its key. So whoever claims
such a job asks here before it starts it: those of its key that were enqueued before it have to end first.

The answer comes from the jobs themselves, by an entry in the index of labels, and nothing is written for it. So no
crash, lost answer or deletion by hand leaves anything that is wrong.
"""

import logging
from collections.abc import Iterable
from itertools import islice

from msgspec.structs import replace

from tarry.model import lifecycle
from tarry.model.duration import SECOND
from tarry.model.job import Job, JobLabel, State, order_label
from tarry.model.outcome import HeldBack
from tarry.model.overrides import holds_when_dead
from tarry.store.rules import ids
from tarry.store.rules.base import Query, Store
from tarry.store.rules.partial_result import reachable_part

log = logging.getLogger("tarry.worker")

REMEMBERED = 10_000
"""Keys of which a process knows from where on it has to look."""
LONGEST_PAUSE = 30 * SECOND
"""A job that is held back asks again after this time at the latest: the one before it may be cancelled or deleted."""
_SHORTEST_PAUSE, _LONGEST_BEHIND_LIVE = SECOND // 5, 1 * SECOND
_BEHIND = SECOND // 20
"""Microseconds after an attempt is due that those behind it ask whether it has ended."""
_COMES_WITHIN = 1 * SECOND
"""Microseconds from the making of an id to its insert. One that takes longer is waited for once it was claimed here."""
_PAGE = 500
_WAITING = (State.READY, State.SCHEDULED, State.RUNNING)


class KeyTurns:
    """Tells who has to wait. Its methods read the store, so they may block. Thread-safe."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._starts: dict[tuple[JobLabel, bool], bytes] = {}
        """By key, and whether dead jobs hold it: an id up to which all of its jobs have ended. Only a hint, which saves
        reading those again."""

    def held_back(self, jobs: Iterable[Job], now: int) -> dict[bytes, HeldBack]:
        """What becomes of those claimed jobs that must not start yet, by id."""
        # Few tasks are ordered, and a key has one claimed job at a time: so each is asked for by itself.
        ordered = [job for job in jobs if job.headers and order_label(job.headers)]
        return {job.id: held for job in ordered if (held := self._look(job, now)) is not None}

    def bring_forward(self, job: Job, now: int) -> None:
        """After the end of a job: makes the next one of its key ready at once, if it was held back. StoreError."""
        self._hasten(self._first(job, b"", now), now)

    def _look(self, job: Job, now: int) -> HeldBack | None:
        try:
            first = self.job_before(job, now)
            if first is None:
                return None
            self._hasten(first, now)
        except Exception as error:  # also over a record that another program has written: the other keys go on
            # The order is not known, and must not be broken.
            log.warning("%s %s waits: the order of its key is not known: %s", job.task, ids.text(job.id), error)
            return HeldBack(now + 1 * SECOND)
        return HeldBack(_ask_again(job, first, now), first.id)

    def job_before(self, job: Job, now: int) -> Job | None:
        """The first job of the key that has to end before this one starts; None: it may start. StoreError."""
        first = self._first(job, job.id, now)
        return first if first is not None and first.id < job.id else None

    def _first(self, of: Job, until: bytes, now: int) -> Job | None:
        """The first unfinished job of the key of that job, up to an id (empty: of all), without those whose time has
        not come."""
        label = order_label(of.headers)
        if label is None:
            return None
        states = (*_WAITING, State.DEAD) if holds_when_dead(of.headers) else _WAITING
        query = Query(states, labels=(label,), after=self._start_for(of, label), until=until, limit=1)
        while jobs := self._read(query):
            if query.limit == 1:
                self._note_start(of, label, jobs[0], now)
            if first := next((job for job in jobs if _holds(job, now)), None):
                return first
            if len(jobs) < query.limit:
                break
            query = replace(query, after=jobs[-1].id, limit=_PAGE)
        return None

    def _read(self, query: Query) -> list[Job]:
        # All jobs of a key are where this one was claimed. The other stores need not be there.
        return reachable_part(lambda: self._store.find(query))

    def _start_for(self, job: Job, label: JobLabel) -> bytes:
        start = self._starts.get((label, holds_when_dead(job.headers)), b"")
        # It came late, or somebody runs it again: then the others are to see it.
        return b"" if job.id <= start else start

    def _note_start(self, of: Job, label: JobLabel, first: Job, now: int) -> None:
        key, lately = (label, holds_when_dead(of.headers)), max(now - _COMES_WITHIN, 0) // 1000
        start = min((int.from_bytes(first.id, "big") - 1).to_bytes(16, "big"), lately.to_bytes(6, "big") + bytes(10))
        # Again at the end, so that the keys that were asked for long ago are forgotten first.
        self._starts.pop(key, None)
        self._starts[key] = start
        if len(self._starts) > REMEMBERED:
            for old in list(islice(self._starts, REMEMBERED // 2)):
                self._starts.pop(old, None)

    def _hasten(self, first: Job | None, now: int) -> None:
        if first is not None and first.due > now and lifecycle.is_held_back(first):
            self._store.apply([lifecycle.bring_forward(first, now)], now)


def _holds(first: Job, now: int) -> bool:
    """Whether an unfinished job that was enqueued before holds back the others: not while it waits for the time that
    its enqueue gave it."""
    return first.state is not State.SCHEDULED or bool(first.epoch) or first.due <= now


def _ask_again(job: Job, first: Job, now: int) -> int:
    """When a job that is held back asks again. Those that wait for the same attempt ask at the same time, so that the
    first of them comes first."""
    if first.state is State.SCHEDULED and first.due > now and not lifecycle.is_held_back(first):
        return min(first.due + _BEHIND, now + LONGEST_PAUSE)
    longest = LONGEST_PAUSE if first.state is State.DEAD else _LONGEST_BEHIND_LIVE
    return now + min(_SHORTEST_PAUSE << min(max(job.epoch - 1, 0), 10), longest)
