"""Deletes payloads that no job refers to: of jobs that are gone, or have others since, or were never stored.

An object lives for at least a day, for its job may be about to be stored. Times are those of the place alone, whatever
the clocks of hosts say. Where anything cannot be asked, nothing is deleted.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tarry.errors import PayloadUnavailable
from tarry.model.checks.unreadable import is_apart
from tarry.model.duration import HOUR, MINUTE
from tarry.model.flow.wiring import split
from tarry.model.job import Job, State
from tarry.model.moving import is_parked
from tarry.model.quantity import quantity
from tarry.store.payloads.payload_store import PayloadStore
from tarry.store.payloads.place import StoredObject
from tarry.store.rules.owner import new_name
from tarry.store.rules.payload_reference import ARGUMENTS, RESULT, parse_name, read_reference

log = logging.getLogger("tarry.keeper")

OLD = 24 * 3600.0
"""Seconds that every object lives."""
PAGE = 500
EVERY = HOUR
"""Between the end of a round and the begin of the next, whichever host does it."""
_EVERY, _SELDOM = 1.0, 300.0
_HOLD, _HOLD_FOR = "payloads:sweep", 5 * MINUTE
_MOST_MARK = 100_000


def register(add_chore: Callable[..., None], store: Any, now: Callable[[], int]) -> None:
    """Makes the sweep a chore of a keeper. store: a `PayloadStore`, or one that stands before it. now: by the store's
    clock."""
    sweep = PayloadSweep(store.payloads, new_name(), now)
    add_chore(_EVERY, sweep.step, _SELDOM)


class PayloadSweep:
    """Looks at all objects of one store, page by page. owner: who does it, in the hold of that."""

    def __init__(self, store: PayloadStore, owner: str, now: Callable[[], int]) -> None:
        self._store, self._owner, self._now = store, owner, now
        self._after, self._place_now = "", 0.0
        self._is_warned = False

    def step(self) -> bool:
        """Looks at the next page; False if there is nothing to do for now, or the place is away. StoreError: the store
        is, and nothing was deleted."""
        now, namespace = self._now(), self._store.namespace.find()
        if not namespace or not self._store.hold(_HOLD, self._owner, now + _HOLD_FOR, now):
            return False
        try:
            return self._look(namespace, now)
        except PayloadUnavailable as error:
            # Not on: a keeper would take it for its store that is away, and leave all other chores.
            log.debug("%s", error)
            return False

    def _look(self, namespace: str, now: int) -> bool:
        if not self._after and not self._begin(namespace):
            return False
        page = self._store.place.page(namespace, self._after, PAGE)
        self._delete_old([one for one in page if one.written < self._place_now - OLD])
        self._after = page[-1].name if page else ""
        if not page:
            self._store.hold(_HOLD, self._owner, now + EVERY, now)
        return bool(page)

    def _begin(self, namespace: str) -> bool:
        """Takes the place's time; False if the objects there are those of another store."""
        mark, place = f"{namespace}/store", self._store.place
        ours = {one.url for one in getattr(self._store, "shards", ())} or {self._store.url}
        found = place.read(mark, _MOST_MARK)
        theirs = [] if found is None else found.decode("utf-8", "replace").split("\n")
        # Of several stores that are used as one, some may have come or gone.
        if found is not None and ours.isdisjoint(theirs):
            self._warn(mark, theirs)
            return False
        place.write(mark, "\n".join(sorted(ours)).encode())
        self._place_now = place.time_of(mark)
        return True

    def _warn(self, mark: str, theirs: Sequence[str]) -> None:
        if not self._is_warned:
            self._is_warned = True
            # A copy of a store must not delete what the original refers to.
            text = "[payloads] %s belongs to the store %s, so nothing is deleted there; if that is this one, remove %s"
            log.warning(text, self._store.place.url, ", ".join(theirs)[:1000], mark)

    def _delete_old(self, old: Sequence[StoredObject]) -> None:
        # What a writer has left that was killed begins with a dot.
        scraps = [one.name for one in old if one.name.rpartition("/")[2].startswith(".")]
        unused = self._names_to_delete(one.name for one in old if parse_name(one.name)[0])
        # Looked at twice: a job that moves between stores may be seen in neither for a moment.
        unused = self._names_to_delete(unused) if unused else []
        if scraps or unused:
            self._store.place.delete([*scraps, *unused])
            count = quantity(len(scraps) + len(unused), "object")
            log.info("[payloads] %s: deleted %s that no job refers to", self._store.place.url, count)

    def _names_to_delete(self, names: Iterable[str]) -> list[str]:
        parsed = {name: parse_name(name) for name in names}
        ids = list({id: None for _, id, _ in parsed.values()})
        jobs = dict(zip(ids, self._store.get(ids), strict=True)) if ids else {}
        return [name for name, (_, id, _) in parsed.items() if not _is_in_use(name, jobs[id])]


def _is_in_use(name: str, job: Job | None) -> bool:
    if job is None:
        return False
    # Its worker may have written the result, and be about to say so. While it moves to another store, it does not say
    # where its result is.
    return job.state is State.RUNNING or is_parked(job) or name in _names(job)


def _names(job: Job) -> list[str]:
    values = ((ARGUMENTS, split(job.id, job.body)[1]), (RESULT, job.note))
    found = [read_reference(value, job.id, field) for field, value in values if is_apart(value)]
    return [reference.name for reference in found if reference is not None]
