"""How the slots of one worker are shared out among its endpoints, so that a quick one finds one however many hang.

What was sent cannot be taken back, so this is decided before. Slow is who has not answered yet, or whose last answer or
oldest unanswered request took longer than `SLOW`: all slow ones together have half of the slots, and beyond that one
each. The last eighth is for those that are quick, and of these each leaves as many free as it takes.
"""

import threading
import time
from collections.abc import Callable, Collection
from typing import NoReturn

from tarry.model.verdict import Snooze

SLOW = 1.0
"""Seconds."""
SOON, LATER = 0.25, 1.0
"""Seconds until one that found no room asks again; later if its endpoint is known to be slow."""


class SlotsFull(Snooze):
    """There is no room for it now."""


class SlotLease:
    """One request that is under way."""

    __slots__ = ("began", "endpoint")

    def __init__(self, endpoint: "_EndpointSlots", began: float) -> None:
        self.endpoint, self.began = endpoint, began


class _EndpointSlots:
    __slots__ = ("is_quick", "leases", "refused")

    def __init__(self) -> None:
        self.leases: dict[SlotLease, None] = {}
        """The oldest first."""
        self.is_quick = self.refused = False

    def is_slow(self, now: float) -> bool:
        """Its oldest request is not answered for too long."""
        return bool(self.leases) and now - next(iter(self.leases)).began > SLOW


class Slots:
    """Safe from threads."""

    def __init__(self, count: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.alone = False
        """There is nobody else to leave room for."""
        self._count, self._clock = count, clock
        self._endpoints: dict[str, _EndpointSlots] = {}
        self._all = self._slow = 0
        """Under way in all, and at slow ones."""
        self._lock = threading.Lock()

    def acquire(self, name: str) -> SlotLease:
        """A slot for a request to that endpoint, to be given back; Full."""
        with self._lock:
            now = self._clock()
            one = self._endpoints.get(name)
            if one is None:
                one = self._endpoints[name] = _EndpointSlots()
            if one.is_quick and one.is_slow(now):
                self._set_quick(one, quick=False)
            if not self.alone and not self._may_start(one):
                self._refuse(one, now)
            visit = SlotLease(one, now)
            one.leases[visit] = None
            self._all += 1
            self._slow += not one.is_quick
            return visit

    def release(self, visit: SlotLease) -> None:
        """It has been answered, or has failed."""
        one = visit.endpoint
        with self._lock:
            now = self._clock()
            del one.leases[visit]
            self._all -= 1
            self._slow -= not one.is_quick
            quick = now - visit.began <= SLOW and not one.is_slow(now)
            if quick != one.is_quick:
                self._set_quick(one, quick)

    def pop_crowded(self, known: Collection[str]) -> dict[str, int]:
        """The slow ones that found no room since this was asked last, and how many they have. known: all there are."""
        with self._lock:
            for name in [name for name, one in self._endpoints.items() if not one.leases and name not in known]:
                del self._endpoints[name]
            found = {name: max(1, len(one.leases)) for name, one in self._endpoints.items() if one.refused}
            for name in found:
                self._endpoints[name].refused = False
            return found

    def _may_start(self, one: _EndpointSlots) -> bool:
        free, mine = self._count - self._all, len(one.leases)
        if one.is_quick:
            return mine < free or free > self._count // 8
        return free > self._count // 8 and (not mine or self._slow < self._count // 2)

    def _refuse(self, one: _EndpointSlots, now: float) -> NoReturn:
        if one.is_quick or not one.is_slow(now):
            raise SlotsFull(SOON)
        one.refused = True
        raise SlotsFull(LATER)

    def _set_quick(self, one: _EndpointSlots, quick: bool) -> None:
        one.is_quick = quick
        self._slow += -len(one.leases) if quick else len(one.leases)
