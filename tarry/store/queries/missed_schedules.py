"""Which schedules in the store make no jobs now, and what all of them missed: without a look at each of them.

A schedule that is not paused and whose newest tick made no job has a mark, written before it and removed after it.
Marks are hints: who reads them looks at the schedules, too.
"""

from collections.abc import Iterable

import msgspec
from msgspec import Struct

from tarry.model.checks.decoders import decode_json
from tarry.model.checks.unreadable import UNREADABLE
from tarry.model.job import StoredCount, StoredTime
from tarry.model.schedules import stored as rules
from tarry.model.schedules.stored import StoredSchedule
from tarry.store.queries import stored_schedules
from tarry.store.rules.base import Store
from tarry.store.rules.partial_result import partial_result, reachable_part

MARK = stored_schedules.MARK
MOST_READ = 1000
_TRIES = 5
_SUMS = "stored-schedules:ticks"


class TickSums(Struct, frozen=True, omit_defaults=True):
    """Of all schedules that the store ever kept, as far as keepers noted it: a crash may lose some."""

    last: StoredTime = 0
    """The newest tick that became a job, microseconds since the epoch; 0: none yet."""
    missed: StoredCount = 0
    """Ticks that became no job."""


def read_missed(store: Store) -> dict[str, StoredSchedule]:
    """The schedules, by name and `MOST_READ` at most, whose newest tick made no job and that are not paused."""
    return {name: one for name, one in _read_marked(store).items() if one is not None and rules.is_missed(one)}


def _read_marked(store: Store) -> dict[str, StoredSchedule | None]:
    """None: there is none of that name, or it cannot be read. What a shard has that is away is left out."""
    marks = reachable_part(lambda: store.kv_page(MARK, "", MOST_READ))
    names = [mark.removeprefix(MARK) for mark in marks]
    cells, away = partial_result(lambda: store.kv_read(stored_schedules.cells_of(names)))
    missing = away.missing if away is not None else {}
    return {
        name: None if cell is None else stored_schedules.decode(store, name, cell)
        for at, (name, cell) in enumerate(zip(names, cells, strict=True))
        if at not in missing
    }


def remove_stale_marks(store: Store) -> None:
    """Removes marks that crashes left; StoreError."""
    stale = [name for name, one in _read_marked(store).items() if one is None or not rules.is_missed(one)]
    store.kv_write([(MARK + name, None, b"") for name in stale])


def read_sums(store: Store) -> TickSums:
    """What all of them missed, and when the newest ran; StoreError."""
    return _decode(reachable_part(lambda: store.kv_get(_SUMS)))


def _decode(cell: bytes | None) -> TickSums:
    try:
        return TickSums() if cell is None else decode_json(cell, TickSums)
    except UNREADABLE:  # another program has written it
        return TickSums()


class TickCounter:
    """Adds to the sums of the store. Not thread-safe."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._cell: bytes | None = None
        """As it was when this one wrote it: mostly it still is, since one keeper ticks."""

    def add(self, changes: Iterable[tuple[StoredSchedule, StoredSchedule]]) -> None:
        """What became of ticks of schedules, each as it was before and as it is now. StoreError."""
        pairs = [*changes]
        last = max((new.last for old, new in pairs if new.last != old.last), default=0)
        missed = sum(run.ticks for old, new in pairs for run in new.runs if run.is_missed and run.tick > old.after)
        tries = _TRIES if last or missed else 0
        for _ in range(tries):
            known = _decode(self._cell)
            value = msgspec.json.encode(TickSums(last or known.last, known.missed + missed))
            if self._store.kv_cas(_SUMS, value, self._cell):
                self._cell = value
                return
            self._cell = self._store.kv_get(_SUMS)
