"""Finds the newest jobs that match. Stores read in the order of ids, the oldest first: so this looks at stretches of
time, from the newest one back."""

import time
from collections.abc import Callable
from typing import NamedTuple

from msgspec.structs import replace

from tarry.model.job import Job
from tarry.store.base import Query, Store
from tarry.store.job_search import STRETCH
from tarry.store.shared.partial_result import reachable_part

PAGE = 500
"""Jobs that are read at once."""
LONGEST = 0.5
"""Seconds after which it asks the store no further."""
_SECOND, _LAST = 1000 << 80, (1 << 128) - 1
"""In ids, which begin with 48 bits of milliseconds."""
_WIDER = 8


class NewestJobs(NamedTuple):
    """The newest first. before: the id before which the next page begins; None: there is none."""

    jobs: list[Job]
    before: bytes | None


def newest_jobs(
    store: Store, query: Query, before: bytes = b"", clock: Callable[[], float] = time.monotonic
) -> NewestJobs:
    """The newest jobs that match, as many as the query's limit. before: only ids less than this; empty: all.

    It may find too few, and yet have a next page: to look at all would have taken too long. StoreError.
    """
    oldest = reachable_part(lambda: store.find(Query(limit=1)))
    first = _number(oldest[0].id) if oldest else _LAST + 1
    end = _number(before) - 1 if before else _LAST
    now = time.time_ns() // 1_000_000 << 80
    found, width, most, began = list[Job](), _SECOND, PAGE, clock()
    while end >= first and len(found) <= query.limit:
        start = _shorten(store, max(min(end, now) - width, first - 1), end, most)
        found += reversed(_read(store, query, start, end))
        # Few match: so the next stretch is longer, and has more jobs.
        end, width, most = start, width * _WIDER, min(most * _WIDER, STRETCH)
        if clock() - began > LONGEST and end >= first and len(found) <= query.limit:
            return NewestJobs(found, _id(end + 1))
    if len(found) <= query.limit:
        return NewestJobs(found, None)
    return NewestJobs(found[: query.limit], found[query.limit - 1].id)


def _shorten(store: Store, start: int, end: int, most: int) -> int:
    """The start, or a later one, so that about `most` jobs or fewer are between it and `end`."""
    for count in (STRETCH, most):
        while (id := _behind(store, start, count)) is not None and _number(id) < end:
            start = _number(id)
    return start


def _behind(store: Store, start: int, count: int) -> bytes | None:
    return reachable_part(lambda: store.id_behind(_id(start), count))


def _read(store: Store, query: Query, start: int, end: int) -> list[Job]:
    """All that match with ids after `start` up to `end`, the oldest first."""
    found: list[Job] = []
    while True:
        page = _find(store, replace(query, after=_id(start), until=_id(end), limit=PAGE))
        found += page
        if len(page) < PAGE:
            return found
        start = _number(page[-1].id)


def _find(store: Store, query: Query) -> list[Job]:
    return reachable_part(lambda: store.find(query))


def _number(id: bytes) -> int:
    return int.from_bytes(id, "big")


def _id(number: int) -> bytes:
    return max(number, 0).to_bytes(16, "big")
