"""Shares the slots of one worker out among its endpoints, so that a quick endpoint finds one however many hang.

This is decided before a request is sent, since a sent request cannot be taken back. An endpoint is slow if it has not
answered yet, or if its last answer or its oldest open request took longer than `SLOW`. All slow endpoints together get
half of the slots, and beyond that one each. The last eighth is for quick endpoints; each of them leaves as many slots
free as it takes.
"""

import threading
import time
from collections.abc import Callable, Collection
from typing import NoReturn

from tarry.model.verdict import Snooze

SLOW = 1.0
"""Seconds."""
SOON, LATER = 0.25, 1.0
"""Seconds until a job that found no slot asks again; the longer one if its endpoint is slow."""


class SlotsFull(Snooze):
    """No slot is free for this endpoint now."""


class SlotLease:
    """The slot of one open request."""

    __slots__ = ("began", "endpoint")

    def __init__(self, endpoint: "_EndpointSlots", began: float) -> None:
        self.endpoint, self.began = endpoint, began


class _EndpointSlots:
    __slots__ = ("is_quick", "leases", "refused")

    def __init__(self) -> None:
        self.leases: dict[SlotLease, None] = {}
        """Of the open requests, the oldest first."""
        # Slow until its first answer: a new endpoint may be one that hangs.
        self.is_quick = self.refused = False

    def is_slow(self, now: float) -> bool:
        """Whether its oldest request has waited too long for an answer."""
        return bool(self.leases) and now - next(iter(self.leases)).began > SLOW


class Slots:
    """The slots of one worker. Thread-safe."""

    def __init__(self, count: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.alone = False
        """There are no other deliveries to leave slots for."""
        self._count, self._clock = count, clock
        self._endpoints: dict[str, _EndpointSlots] = {}
        self._all = self._slow = 0
        """Open requests: all of them, and those at slow endpoints."""
        self._lock = threading.Lock()

    def acquire(self, name: str) -> SlotLease:
        """Takes a slot for a request to that endpoint; `release` it. SlotsFull."""
        with self._lock:
            now = self._clock()
            one = self._endpoints.get(name)
            if one is None:
                one = self._endpoints[name] = _EndpointSlots()
            # Only this shows requests that hang: there is no answer that could mark it as slow.
            if one.is_quick and one.is_slow(now):
                self._set_quick(one, quick=False)
            if not self.alone and not self._may_start(one):
                self._refuse(one, now)
            lease = SlotLease(one, now)
            one.leases[lease] = None
            self._all += 1
            self._slow += not one.is_quick
            return lease

    def release(self, lease: SlotLease) -> None:
        """Frees the slot of a request that was answered or failed."""
        one = lease.endpoint
        with self._lock:
            now = self._clock()
            del one.leases[lease]
            self._all -= 1
            self._slow -= not one.is_quick
            quick = now - lease.began <= SLOW and not one.is_slow(now)
            if quick != one.is_quick:
                self._set_quick(one, quick)

    def pop_crowded(self, known: Collection[str]) -> dict[str, int]:
        """Slow endpoints that were refused since the last call, with their open requests. known: all endpoints."""
        with self._lock:
            for name in [name for name, one in self._endpoints.items() if not one.leases and name not in known]:
                del self._endpoints[name]
            # At least 1, since 0 would mean that none was refused.
            found = {name: max(1, len(one.leases)) for name, one in self._endpoints.items() if one.refused}
            for name in found:
                self._endpoints[name].refused = False
            return found

    def _may_start(self, one: _EndpointSlots) -> bool:
        free, mine = self._count - self._all, len(one.leases)
        if one.is_quick:
            # In the last eighth it leaves as many slots free as it takes, for the other quick endpoints.
            return mine < free or free > self._count // 8
        # One slot even beyond the half: otherwise it could not show that it is quick again.
        return free > self._count // 8 and (not mine or self._slow < self._count // 2)

    def _refuse(self, one: _EndpointSlots, now: float) -> NoReturn:
        if one.is_quick or not one.is_slow(now):
            raise SlotsFull(SOON)
        # The report lowers its limit in the store, so that fewer of its jobs are claimed in vain.
        one.refused = True
        raise SlotsFull(LATER)

    def _set_quick(self, one: _EndpointSlots, quick: bool) -> None:
        one.is_quick = quick
        self._slow += -len(one.leases) if quick else len(one.leases)
