"""Where a process begins to look for ready and for due jobs. `functions/exchange.sql` says why nothing is missed."""

import logging
import random
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any

from tarry.errors import StoreError
from tarry.store.postgres import packing as pack
from tarry.store.postgres import sql
from tarry.store.postgres.constants import STORED_WITHIN
from tarry.store.postgres.link.pool import PostgresPool
from tarry.store.rules.base import BANDS, Want

log = logging.getLogger("tarry.store")
# A job that took too long to store may come before the scan start and not be set aside, because its client died. A look
# from the beginning finds it.
RESCAN_AFTER = 15.0
"""Seconds after which a process looks from the beginning."""
EARLIEST = -(2**62)
_Starts = tuple[int, int]
"""The scan starts of the jobs on time and of the late jobs; microseconds."""
_FROM_EARLIEST = EARLIEST, EARLIEST


class ScanStarts:
    """The scan starts of one store in one process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ready: dict[tuple[str, int], _Starts] = {}
        """The scan starts of ready jobs, by queue and band."""
        self._scheduled = EARLIEST
        self._rescan_at = 0.0

    def pack_wants(self, wants: Sequence[Want]) -> list[Any]:
        """Arguments of `exchange_v1`: queues, bands, counts and both starts of the wants, and the start of the
        scheduled jobs."""
        with self._lock:
            self._forget_old(time.monotonic())
            starts = [self._ready.get((want.queue, want.band), _FROM_EARLIEST) for want in wants]
            scheduled = self._scheduled
        return [
            pack.texts([want.queue for want in wants]),
            pack.small_ints([want.band for want in wants]),
            pack.ints([want.count for want in wants]),
            *_pack(starts),
            scheduled,
        ]

    def _forget_old(self, now: float) -> None:
        if now >= self._rescan_at:
            # Jittered, so that not all processes read old index entries at once.
            self._rescan_at = now + RESCAN_AFTER * random.uniform(0.9, 1.1)
            self._ready = dict.fromkeys(self._ready, _FROM_EARLIEST)
            self._scheduled = EARLIEST

    def update(self, wants: Sequence[Want], starts: Iterable[_Starts], scheduled: int) -> None:
        """Keeps the scan starts that `exchange_v1` answered."""
        with self._lock:
            self._scheduled = scheduled
            for want, both in zip(wants, starts, strict=True):
                self._ready[want.queue, want.band] = both

    def scheduled_start(self) -> int:
        """Where the scheduled jobs begin."""
        return self._scheduled

    def add_queues(self, queues: Iterable[str]) -> None:
        """Makes these queues known, each with all bands."""
        with self._lock:
            for queue in queues:
                for band in BANDS:
                    self._ready.setdefault((queue, band), _FROM_EARLIEST)

    def pack_known(self) -> list[Any]:
        """Arguments of `queues_v1`: queues, bands and both starts of all that is known."""
        with self._lock:
            lines = [(queue, band, both) for (queue, band), both in self._ready.items() if queue]
        return [
            pack.texts([queue for queue, _, _ in lines]),
            pack.small_ints([band for _, band, _ in lines]),
            *_pack([both for _, _, both in lines]),
        ]


def set_aside_if_slow(pool: PostgresPool, began: float, ids: Sequence[bytes]) -> None:
    """Sets jobs aside if they took long to store: they may come before the scan starts of others."""
    if time.monotonic() - began <= STORED_WITHIN / 1e6 * 0.9:
        return
    text = sql.for_schema(sql.SET_ASIDE, pool.url.schema)
    try:
        pool.call(lambda connection: connection.run(text, (pack.uuids(ids),)))
    except StoreError as error:
        # No error may leave this: the jobs are stored. Others find them once they look from the beginning.
        log.info("%s: jobs that took long to store may start %g s late: %s", pool.url.shown, RESCAN_AFTER, error)


def _pack(starts: Sequence[_Starts]) -> list[Any]:
    return [pack.big_ints([on_time for on_time, _ in starts]), pack.big_ints([late for _, late in starts])]
