"""From where on a process looks for ready and for due jobs; `postgres.functions` has why, and why nothing is missed."""

import random
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any

from tarry.store.base import BANDS, Want
from tarry.store.postgres import rows as pack

FROM_THE_BEGINNING = 15.0
"""Seconds after which a process looks from the beginning all the same: should what took too long to store not be
marked, because who stored it died, it is found then."""
BOTTOM = -(2**62)
_Both = tuple[int, int]
"""The floor of those on time, and that of the late ones."""
_BOTH = BOTTOM, BOTTOM


class Floors:
    """Those of one store in one process; each lasts for a while, then it is looked for anew."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ready: dict[tuple[str, int], _Both] = {}
        self._scheduled = BOTTOM
        self._again = 0.0

    def of(self, wants: Sequence[Want]) -> list[Any]:
        """Queues, bands, counts and both floors of these wants, and the floor of what is scheduled: arguments of
        `exchange_v1`."""
        with self._lock:
            now = time.monotonic()
            if now >= self._again:
                self._again = now + FROM_THE_BEGINNING * random.uniform(0.9, 1.1)
                self._ready = dict.fromkeys(self._ready, _BOTH)
                self._scheduled = BOTTOM
            floors = [self._ready.get((want.queue, want.band), _BOTH) for want in wants]
            scheduled = self._scheduled
        return [
            pack.texts([want.queue for want in wants]),
            pack.small_ints([want.band for want in wants]),
            pack.ints([want.count for want in wants]),
            *_packed(floors),
            scheduled,
        ]

    def saw(self, wants: Sequence[Want], floors: Iterable[_Both], scheduled: int) -> None:
        """What the database answered."""
        with self._lock:
            self._scheduled = scheduled
            for want, both in zip(wants, floors, strict=True):
                self._ready[want.queue, want.band] = both

    def scheduled(self) -> int:
        """The floor of what is scheduled."""
        return self._scheduled

    def know(self, queues: Iterable[str]) -> None:
        """These queues exist; each band of them has floors from now on."""
        with self._lock:
            for queue in queues:
                for band in BANDS:
                    self._ready.setdefault((queue, band), _BOTH)

    def known(self) -> list[Any]:
        """Queues, bands and both floors of all that is known: arguments of `queues_v1`."""
        with self._lock:
            lines = [(queue, band, both) for (queue, band), both in self._ready.items() if queue]
        return [
            pack.texts([queue for queue, _, _ in lines]),
            pack.small_ints([band for _, band, _ in lines]),
            *_packed([both for _, _, both in lines]),
        ]


def _packed(floors: Sequence[_Both]) -> list[Any]:
    return [pack.big_ints([on_time for on_time, _ in floors]), pack.big_ints([late for _, late in floors])]
