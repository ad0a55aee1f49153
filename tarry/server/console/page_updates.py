"""Tells open pages that something has changed, so that they ask again; and how often all of them together may."""

import time
from collections.abc import AsyncIterator, Callable, Sequence
from hashlib import blake2b

import msgspec
from msgspec.structs import replace

from tarry.errors import Busy, Draining, StoreError
from tarry.metrics.store_overview import StoreOverview
from tarry.server.event_streams import TICK, StreamEvent
from tarry.server.service import DoorService
from tarry.tasks.lazy_asyncio import asyncio

LASTS = 600.0
"""Seconds after which a page opens the stream anew: so a session that has ended is noticed."""
EVERY = 2.0
"""Seconds between two looks at the store, of all streams of a process together."""
OLDEST = 5.0
"""Seconds after which a page asks again though the look is the same: a look does not show progress, for one."""
SHARE = 0.2
"""Of the time of one connection to the store, for pages that ask again by themselves."""
_MOST_SAVED = 2.0
"""Seconds of it that a quiet time leaves for later."""


class RefreshBudget:
    """How long the store may work for pages that ask again by themselves, however many are open. clock: monotonic
    seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._left, self._counted_at = _MOST_SAVED, clock()

    def spend(self, seconds: float) -> None:
        """A page took so long."""
        self._left = self._now_left() - seconds

    @property
    def is_left(self) -> bool:
        """Whether pages may ask again now."""
        return self._now_left() > 0

    def _now_left(self) -> float:
        now = self._clock()
        self._left = min(_MOST_SAVED, self._left + SHARE * (now - self._counted_at))
        self._counted_at = now
        return self._left


class LookChanges:
    """An event for each look at the store that differs from the one before, and one now and then. While the store is
    away there is none; the first one after that makes the pages ask again. clock: monotonic seconds. allows: whether
    the reader may see that queue, or `*`, all of them."""

    def __init__(
        self,
        service: DoorService,
        budget: RefreshBudget,
        clock: Callable[[], float] = time.monotonic,
        allows: Callable[[str], bool] = lambda queue: True,
    ) -> None:
        self._service, self._budget, self._clock, self._allows = service, budget, clock, allows
        self._seen, self._told_at = b"", clock()

    async def batches(self) -> AsyncIterator[Sequence[StreamEvent]]:
        """See `EventSource`."""
        while True:
            began = self._clock()
            yield await self.next_batch()
            # In steps, so that the stream sees soon when it is to end.
            while self._clock() - began < EVERY:
                await asyncio.sleep(min(TICK, EVERY))
                yield ()

    async def next_batch(self) -> Sequence[StreamEvent]:
        """One event or none."""
        now, digest = self._clock(), await self._read()
        is_new = self._seen not in (b"", digest) or now - self._told_at >= OLDEST
        # What is not told for want of budget is new the next time, too.
        if not self._seen or (is_new and self._budget.is_left):
            self._seen, self._told_at = digest, now
            return (StreamEvent("look", {}),) if is_new else ()
        return ()

    async def _read(self) -> bytes:
        try:
            return _digest(await self._service.run(self._service.look.read, EVERY), self._allows)
        except (StoreError, Busy, Draining):
            return b"away"


def _digest(look: StoreOverview, allows: Callable[[str], bool]) -> bytes:
    """Of what pages show this reader; without what changes all the time."""
    hosts = look.hosts if allows("*") else ()
    pools = [(host.instance, host.state, [replace(pool, memory=0) for pool in host.pools]) for host in hosts]
    counts = [one for one in look.counts if allows(one.queue)]
    paused = {name: is_paused for name, is_paused in look.paused.items() if allows(name)}
    return blake2b(msgspec.json.encode((counts, paused, pools)), digest_size=16).digest()
