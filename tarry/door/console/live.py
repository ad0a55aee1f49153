"""Tells open pages that something has changed, so that they ask again."""

import time
from collections.abc import AsyncIterator, Sequence
from hashlib import blake2b

import msgspec

from tarry.door.event_streams import TICK, StreamEvent
from tarry.door.service import DoorService
from tarry.door.store_look import StoreLook
from tarry.errors import Busy, Draining, StoreError
from tarry.tasks.lazy_asyncio import asyncio

LASTS = 600.0
"""Seconds after which a page opens the stream anew: so a session that has ended is noticed."""
EVERY = 2.0
"""Seconds between two looks at the store, of all streams of a process together."""


class LookChanges:
    """An event for each look at the store that differs from the one before. While the store is away there is none; the
    first one after that makes the pages ask again."""

    def __init__(self, service: DoorService) -> None:
        self._service = service
        self._seen = b""

    async def batches(self) -> AsyncIterator[Sequence[StreamEvent]]:
        """See `EventSource`."""
        while True:
            began = time.monotonic()
            yield await self._look()
            # In steps, so that the stream sees soon when it is to end.
            while time.monotonic() - began < EVERY:
                await asyncio.sleep(min(TICK, EVERY))
                yield ()

    async def _look(self) -> Sequence[StreamEvent]:
        try:
            look = await self._service.run(self._service.look.read, EVERY)
        except (StoreError, Busy, Draining):
            is_new, self._seen = self._seen != b"away", b"away"
        else:
            digest = _digest(look)
            is_new, self._seen = self._seen not in (b"", digest), digest
        return (StreamEvent("look", {}),) if is_new else ()


def _digest(look: StoreLook) -> bytes:
    """Of what pages show; without what changes all the time."""
    pools = [(host.instance, host.state, host.pools) for host in look.hosts]
    return blake2b(msgspec.json.encode((look.counts, look.paused, pools)), digest_size=16).digest()
