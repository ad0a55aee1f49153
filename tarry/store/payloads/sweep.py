"""Deletes payloads that no job refers to: of jobs that are gone, or have others since, or were never stored.

An object lives for at least a day, for its job may be about to be stored. Times are those of the place alone, whatever
the clocks of hosts say. Where anything cannot be asked, nothing is deleted.
"""

import logging
from collections.abc import Callable, Sequence
from hashlib import blake2b
from secrets import token_hex
from typing import Any

from tarry.errors import PayloadUnavailable
from tarry.model.checks.unreadable import is_apart
from tarry.model.duration import HOUR, MINUTE
from tarry.model.flow.wiring import split
from tarry.model.job import Job, State
from tarry.model.moving import is_parked
from tarry.model.quantity import quantity
from tarry.store.payloads.aside import Aside
from tarry.store.payloads.payload_store import PayloadStore
from tarry.store.payloads.place import StoredObject
from tarry.store.rules.owner import new_name
from tarry.store.rules.payload_reference import ARGUMENTS, RESULT, parse_name, read_reference

log = logging.getLogger("tarry.keeper")

OLD = 24 * 3600.0
"""Seconds that every object lives."""
PAGE = 500
_ASKED = 50
EVERY = HOUR
"""Between the end of a round and the begin of the next, whichever host does it."""
_EVERY, _SELDOM = 1.0, 300.0
_HOLD, _HOLD_FOR = "payloads:sweep", 5 * MINUTE
_ROUND = "payloads:round"
"""The named value that has a line for each place: which it is, and the names of the last two rounds there. The mark at
the place has the last one's."""
_MOST_MARK = 100_000
_MOST_PLACES = 8


def register(add_chore: Callable[..., None], store: Any, now: Callable[[], int]) -> None:
    """Makes the sweep a chore of a keeper. store: a `PayloadStore`, or one that stands before it. now: by the store's
    clock."""
    sweep = PayloadSweep(store.payloads, new_name(), now)
    add_chore(_EVERY, Aside(sweep.step, "sweep of payloads"), _SELDOM)


class PayloadSweep:
    """Looks at all objects of one store, page by page. owner: who does it, in the hold of that."""

    def __init__(self, store: PayloadStore, owner: str, now: Callable[[], int]) -> None:
        self._store, self._owner, self._now = store, owner, now
        self._after, self._place_now = "", 0.0
        self._ours: set[str] = set()
        self._warned = ""

    def step(self) -> bool:
        """Looks at the next page; False if there is nothing to do for now, or the place is away. StoreError: the store
        is, and nothing was deleted."""
        now, namespace = self._now(), self._store.namespace.find()
        if not namespace or not self._store.hold(_HOLD, self._owner, now + _HOLD_FOR, now):
            return False
        try:
            return self._look(namespace, now)
        except PayloadUnavailable as error:
            # Not on: a keeper would try it every few seconds.
            self._warn(f"{error}; so what no job refers to is not deleted there now")
            return False

    def _look(self, namespace: str, now: int) -> bool:
        if not self._after and not self._begin(namespace):
            return False
        page = self._store.place.page(namespace, self._after, PAGE)
        # Before: what cannot be deleted must not keep the sweep from those behind it.
        self._after = page[-1].name if page else ""
        self._delete_old([one for one in page if one.written < self._place_now - OLD])
        if not page:
            self._store.hold(_HOLD, self._owner, now + EVERY, now)
            # Who has a hold may take it again: this one waits for the end of the pause, too.
            self._owner = new_name()
        return bool(page)

    def _begin(self, namespace: str) -> bool:
        """Takes the place's time; False if the objects there are those of another store."""
        mark, place = f"{namespace}/store", self._store.place
        found, cell = place.read(mark, _MOST_MARK), self._store.kv_get(_ROUND)
        last, *theirs = [""] if found is None else found.decode("utf-8", "replace").split("\n")
        # A copy of the store, and a backup of it, know of no later round. Stores may be added, but one that is not used
        # here may have jobs that refer to what is there.
        self._ours, rounds = self._urls(), (cell or b"").decode("utf-8", "replace")
        if found is not None and not (last in rounds.split() and self._ours.issuperset(theirs)):
            self._warn_of_others(mark, theirs)
            return False
        next_ = token_hex(8)
        if not self._store.kv_cas(_ROUND, _with_round(rounds, place.url, last, next_).encode(), cell):
            return False
        place.renew(mark, "\n".join([next_, *sorted(self._ours)]).encode())
        self._place_now, self._warned = place.time_of(mark), ""
        return True

    def _urls(self) -> set[str]:
        """Of the stores that are asked for jobs."""
        return {one.url for one in getattr(self._store, "shards", ()) if not one.is_removed} or {self._store.url}

    def _warn_of_others(self, mark: str, theirs: Sequence[str]) -> None:
        self._warn(
            f"[payloads] {self._store.place.url} belongs to the store {', '.join(theirs)[:1000]}, which is not this"
            " one, or as it was before, or more than this process uses; so nothing is deleted there. If what is there"
            f" belongs to this store, remove {mark}"
        )

    def _warn(self, text: str) -> None:
        """Logs it, but not again before the sweep works, or has another trouble."""
        if text != self._warned:
            self._warned = text
            log.warning("%s", text)

    def _delete_old(self, old: Sequence[StoredObject]) -> None:
        # What a writer has left that was killed begins with a dot.
        scraps = [one.name for one in old if one.name.rpartition("/")[2].startswith(".")]
        unused = self._names_to_delete([one.name for one in old if parse_name(one.name)[0]])
        # Looked at twice: a job that moves between stores may be seen in neither for a moment.
        unused = self._names_to_delete(unused)
        if self._ours - self._urls():
            # Taken out meanwhile, and not asked any more.
            return
        if scraps or unused:
            self._store.place.delete([*scraps, *unused])
            count = quantity(len(scraps) + len(unused), "object")
            log.info("[payloads] %s: deleted %s that no job refers to", self._store.place.url, count)

    def _names_to_delete(self, names: Sequence[str]) -> list[str]:
        # What these jobs have in the store may be large all the same.
        parts = (names[start : start + _ASKED] for start in range(0, len(names), _ASKED))
        return [name for part in parts for name in self._find_unused(part)]

    def _find_unused(self, names: Sequence[str]) -> list[str]:
        parsed = {name: parse_name(name) for name in names}
        ids = list({id: None for _, id, _ in parsed.values()})
        jobs = dict(zip(ids, self._store.get(ids), strict=True))
        return [name for name, (_, id, _) in parsed.items() if not _is_in_use(name, jobs[id])]


def _with_round(rounds: str, url: str, last: str, next_: str) -> str:
    """The lines with the round that begins at the place of that URL."""
    place = blake2b(url.encode(), digest_size=8).hexdigest()
    # The same place may have had another URL.
    others = [line for line in rounds.splitlines() if not {place, last} & {*line.split()}]
    # The last, too: the place may not get the next.
    return "\n".join([*others, f"{place} {last} {next_}"][-_MOST_PLACES:])


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
