"""What a server shows of a store: read at most every few seconds, however many ask; and whether the store answers."""

import threading
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from msgspec import Struct

from tarry.errors import StoreError, TarryError
from tarry.keeper.hosts import Host, list_hosts
from tarry.model.limit import Level, Limit
from tarry.store.base import Store, Tally
from tarry.store.shared.partial_result import reachable_part
from tarry.tasks.lazy_asyncio import asyncio

KEPT_FOR = 5.0
"""Seconds for which a look serves all who ask."""

_LONG, _REST = 0.25, 4
"""Seconds that a look takes at least to be kept for longer, and how many times as long as it took."""
PROBE_TIMEOUT = 1.0
"""Seconds in which the store of a server that is ready has to answer."""


class StoreLook(Struct, frozen=True):
    """The figures of a store at one moment; of several stores, of those that can be reached."""

    counts: Sequence[Tally]
    paused: Mapping[str, bool]
    """Of each queue with ready jobs, and of each that is or was paused."""
    limits: Mapping[str, tuple[Limit, Level]]
    hosts: Sequence[Host]
    now: int
    """By the store's clock; microseconds."""

    @classmethod
    def of(cls, store: Store) -> "StoreLook":
        """The figures now; StoreError. May read all jobs."""
        return cls(
            reachable_part(store.counts),
            reachable_part(store.queues),
            reachable_part(store.limits),
            list_hosts(store),
            store.time(),
        )


class CachedLook:
    """The last look at a store. `read` may block."""

    def __init__(self, store: Callable[[], Store], clock: Callable[[], float] = time.monotonic) -> None:
        self._store, self._clock = store, clock
        self._lock = threading.Lock()
        self._look: StoreLook | None = None
        self._read_at = self._took = 0.0
        self._failures: tuple[int, StoreError | None] = (0, None)
        """How many looks failed, and the error of the last one."""

    def read(self, kept_for: float = KEPT_FOR) -> StoreLook:
        """A look that is at most so many seconds old, or older if a look takes long; StoreError."""
        look, (before, _) = self._look, self._failures
        # Those that come meanwhile do not read the store as well. Nor do they wait for a look that takes long: while a
        # large store counts its jobs, they would take all threads.
        if not self._lock.acquire(blocking=look is None or not self._may_serve()):
            assert look is not None
            return look
        try:
            after, error = self._failures
            if error is not None and after > before:
                # The store was away for the one before: each would wait for it as long again, one after the other.
                raise error.with_traceback(None)
            if self._look is None or self._clock() - self._read_at >= self._kept_for(kept_for):
                self._look = self._read()
            return self._look
        finally:
            self._lock.release()

    def _read(self) -> StoreLook:
        began = self._clock()
        try:
            look = StoreLook.of(self._store())
        except StoreError as error:
            self._failures = (self._failures[0] + 1, error)
            raise
        self._read_at = self._clock()
        self._took = self._read_at - began
        return look

    def _may_serve(self) -> bool:
        """Whether the last look is good enough while the next one is being made."""
        return self._took > _LONG and self._clock() - self._read_at < 2 * _REST * self._took

    def _kept_for(self, seconds: float) -> float:
        # So looks take a fifth of a store's time at most.
        return max(seconds, _REST * self._took) if self._took > _LONG else seconds


class StoreProbe:
    """Whether the store answers. Belongs to one event loop. ask: asks it something small."""

    def __init__(self, ask: Callable[[], Coroutine[Any, Any, object]]) -> None:
        self._ask = ask
        self._asking: asyncio.Task[object] | None = None

    async def trouble(self) -> str:
        """Why the store does not answer; empty: it does. Names no place, since anybody may ask."""
        # One question at a time: a store that hangs must not take all threads.
        if self._asking is None or self._asking.done():
            self._asking = asyncio.ensure_future(self._ask())
        try:
            # Shielded: whoever asks next waits for the same answer.
            await asyncio.wait_for(asyncio.shield(self._asking), PROBE_TIMEOUT)
        except TimeoutError:
            return f"the store has not answered within {PROBE_TIMEOUT:g} s"
        except TarryError as error:
            return f"the store cannot be asked now: {type(error).__name__}"
        return ""
