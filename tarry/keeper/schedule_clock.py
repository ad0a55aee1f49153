"""Finds the schedules in the store that would sleep for long: their times were written while a clock was ahead."""

import logging
from collections.abc import Iterator

from tarry.model.checks.unreadable import stored_number
from tarry.model.duration import HOUR, MINUTE
from tarry.model.schedules import stored as rules
from tarry.model.schedules.stored import MAX_AHEAD, StoredSchedule
from tarry.store.queries import stored_schedules
from tarry.store.queries.stored_schedules import SeenSchedule
from tarry.store.rules.base import Store

log = logging.getLogger("tarry.cron")

_CELL = "stored-schedules:clock"
"""The time up to which keepers have looked at schedules, exact to an hour."""
_READ_EVERY = MINUTE
_PAGE = 200

Mended = list[tuple[SeenSchedule, StoredSchedule]]
"""Schedules as they are stored, and as they are to be."""


class ScheduleClock:
    """Whether the store's clock was set back by more than a day since keepers looked at its schedules, and which of
    them were further than it is. Not thread-safe."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._last, self._read_at = 0, 0

    def was_set_back(self, now: int) -> bool:
        """To be asked before each look; StoreError."""
        if now < self._last:
            # It was a moment of the other time. Also after an error the next look is to find this.
            self._read_at = 0
        self._last = now
        # A call of the store at each look would double what an idle keeper costs.
        if now < self._read_at:
            return False
        cell = self._store.kv_get(_CELL)
        if stored_number(cell) > now + MAX_AHEAD:
            return True
        # If somebody else notes it first, that is as good.
        if now >= stored_number(cell) + HOUR:
            self._store.kv_cas(_CELL, b"%d" % now, cell)
        self._read_at = now + _READ_EVERY
        return False

    def find_late(self, now: int) -> Iterator[Mended]:
        """Page by page. The clock counts as right once the last page was taken from all shards; StoreError."""
        log.warning("the store's clock was set back far: schedules in the store tick from now on")
        cell, after, is_whole = self._store.kv_get(_CELL), "", True
        while (page := stored_schedules.seen_page(self._store, after, _PAGE)).last:
            yield [(one, new) for one in page.schedules if (new := _on_time(one.name, one.schedule, now)) is not None]
            after, is_whole = page.last, is_whole and page.is_whole
        if is_whole and page.is_whole:
            self._store.kv_cas(_CELL, b"%d" % now, cell)
        self._read_at = now + _READ_EVERY


def _on_time(name: str, one: StoredSchedule, now: int) -> StoredSchedule | None:
    """None: it is already."""
    try:
        new = rules.on_time(name, one, now)
    except ValueError as error:  # a zone that is not known on this host
        new = rules.with_problem(one, str(error), now)
    return None if new == one else new
