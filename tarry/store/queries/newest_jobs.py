"""Finds the newest jobs that match. Stores read in the order of ids, the oldest first: so this looks at stretches of
time, from the newest one back."""

import time
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from tarry.errors import PartlyUnavailable
from tarry.model.job import Job
from tarry.store.queries.job_search import (
    LONGEST,
    MOST_EXAMINED,
    PAGE,
    STRETCH,
    JobSearch,
    SearchResult,
    find_with_keys,
    first_label,
    is_found,
)
from tarry.store.rules.base import Query, Store
from tarry.store.rules.partial_result import partial_result, reachable_part

_MS = 1 << 80
_SECOND, _LAST = 1000 * _MS, (1 << 128) - 1
"""In ids, which begin with 48 bits of milliseconds."""
_WIDER = 8


def newest_jobs(
    store: Store, search: JobSearch, before: bytes = b"", clock: Callable[[], float] = time.monotonic
) -> SearchResult:
    """The newest jobs that match, as many as the query's limit, the newest first; its `next` is the id before which the
    next page begins. before: only ids less than this; empty: all.

    It may find too few, and yet have a next page: to look at all would have taken too long. StoreError.
    """
    return _NewestSearch(store, search, before, clock).run()


class _NewestSearch:
    """One search. Ids are numbers here."""

    def __init__(self, store: Store, search: JobSearch, before: bytes, clock: Callable[[], float]) -> None:
        self._store, self._search, self._clock = store, search, clock
        self._before = _number(before) if before else _LAST + 1
        self._found: list[Job] = []
        self._examined = 0
        self._away: PartlyUnavailable | None = None

    def run(self) -> SearchResult:
        query, began = self._search.query, self._clock()
        first, end = self._first(), min(self._before - 1, _number(self._search.until) if self._search.until else _LAST)
        now, width, most = time.time_ns() // 1_000_000 * _MS, _SECOND, PAGE
        while end >= first and len(self._found) <= query.limit:
            start = self._shorten(max(min(end, now) - width, first - 1), end, most)
            self._found += reversed(self._read(start, end))
            # Few match: so the next stretch is longer, and has more jobs.
            end, width, most = start, width * _WIDER, min(most * _WIDER, STRETCH)
            is_over = self._clock() - began > LONGEST or self._examined >= MOST_EXAMINED
            if is_over and end >= first and len(self._found) <= query.limit:
                return self._result(self._found, _id(self._shown_cursor(end + 1)))
        if len(self._found) <= query.limit:
            return self._result(self._found, None)
        found = self._found[: query.limit]
        return self._result(found, found[-1].id)

    def _first(self) -> int:
        """The least id that it may find."""
        oldest = reachable_part(lambda: self._store.find(Query(limit=1, labels=self._search.query.labels[:1])))
        least = _number(oldest[0].id) if oldest else _LAST + 1
        return max(least, _number(self._search.query.after) + 1) if self._search.query.after else least

    def _result(self, found: Sequence[Job], following: bytes | None) -> SearchResult:
        return SearchResult(found, following, self._examined, self._away)

    def _shown_cursor(self, cursor: int) -> int:
        """Where a search that was ended goes on: before `cursor`, which may be a job that the reader may not see."""
        if not self._search.query.queues:
            return cursor
        # Its time alone, unless a reader would then get a job twice, or stay where it is.
        last = _number(self._found[-1].id) if self._found else self._before
        shown = -(-cursor // _MS) * _MS
        return shown if shown < last else min(last, cursor)

    def _shorten(self, start: int, end: int, most: int) -> int:
        """The start, or a later one, so that about `most` jobs or fewer are between it and `end`."""
        for count in (STRETCH, most):
            while (id := self._behind(start, count)) is not None and _number(id) < end:
                start = _number(id)
        return start

    def _behind(self, start: int, count: int) -> bytes | None:
        return reachable_part(lambda: self._store.id_behind(_id(start), count, first_label(self._search.query)))

    def _read(self, start: int, end: int) -> list[Job]:
        """All that match with ids after `start` up to `end`, the oldest first."""
        found: list[Job] = []
        while True:
            page = self._find(replace(self._search.query, after=_id(start), until=_id(end), limit=PAGE))
            self._examined += len(page)
            found += [job for job in page if is_found(job, self._search)]
            if len(page) < PAGE:
                return found
            start = _number(page[-1].id)

    def _find(self, query: Query) -> list[Job]:
        page, away = partial_result(lambda: find_with_keys(self._store, query, self._search.other_keys))
        self._away = self._away or away
        return page


def _number(id: bytes) -> int:
    return int.from_bytes(id, "big")


def _id(number: int) -> bytes:
    return min(max(number, 0), _LAST).to_bytes(16, "big")
