"""What is shown of a store: read at most every few seconds, however many ask."""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

from msgspec import Struct

from tarry.errors import PartlyUnavailable, StoreError, StoreUnavailable
from tarry.model.limit import Level, Limit
from tarry.store.queries.hosts import Host, list_hosts
from tarry.store.rules.base import Store, Tally
from tarry.store.rules.history.sums import TOTALS, Place
from tarry.store.rules.partial_result import reachable_part

log = logging.getLogger("tarry.metrics")

KEPT_FOR = 5.0
"""Seconds for which a look serves all who ask."""

_LONG, _REST = 0.25, 4
"""Seconds that a look takes at least to be kept for longer, and how many times as long as it took."""


def _in_thread(call: Callable[[], None]) -> None:
    threading.Thread(target=call, name="tarry-look", daemon=True).start()


class StoreOverview(Struct, frozen=True):
    """The figures of a store at one moment; of several stores, of those that can be reached."""

    counts: Sequence[Tally]
    paused: Mapping[str, bool]
    """Of each queue with ready jobs, and of each that is or was paused."""
    limits: Mapping[str, tuple[Limit, Level]]
    hosts: Sequence[Host]
    now: int
    """By the store's clock; microseconds."""

    @classmethod
    def of(cls, store: Store) -> "StoreOverview":
        """The figures now; StoreError. May read all jobs."""
        return cls(
            reachable_part(store.counts),
            reachable_part(store.queues),
            reachable_part(store.limits),
            list_hosts(store),
            store.time(),
        )


def read_totals(store: Store, of: int = TOTALS) -> Mapping[Place, bytes]:
    """What was ever counted, by queue and task (`sums.decode`), or, of ERRORS, groups of errors; nothing while a part
    of the store is away, since a sum without it would look as if counters went down. StoreError."""
    try:
        return store.history.read(of, 0, 1)
    except PartlyUnavailable:
        return {}


T = TypeVar("T")


class CachedRead(Generic[T]):
    """The last of what was read of a store. ask: reads it. start: begins a call beside the caller's own thread. `read`
    may block."""

    def __init__(
        self,
        ask: Callable[[], T],
        clock: Callable[[], float] = time.monotonic,
        start: Callable[[Callable[[], None]], None] = _in_thread,
    ) -> None:
        self._ask, self._clock, self._start = ask, clock, start
        self._lock = threading.Lock()
        self._look: T | None = None
        self._read_at = self._took = 0.0
        self._failures: tuple[int, StoreError | None] = (0, None)
        """How many reads failed, and the error of the last one."""

    def read(self, kept_for: float = KEPT_FOR, oldest: float = 0.0) -> T:
        """What is at most so many seconds old, or older if a read takes long; StoreError. oldest: so old it may be then
        at least, for whoever rather has it now."""
        look, (before, _) = self._look, self._failures
        if look is not None and self._may_serve(oldest):
            # While a large store counts its jobs nobody waits for that.
            if self._is_old(kept_for):
                self._start(self._refresh)
            return look
        with self._lock:
            after, error = self._failures
            if error is not None and after > before:
                # The store was away for the one before: each would wait for it as long again, one after the other.
                raise error.with_traceback(None)
            # Those that came meanwhile do not read the store as well.
            if self._look is None or self._is_old(kept_for):
                self._look = self._read()
            return self._look

    def _refresh(self) -> None:
        """Reads it anew, unless that is being done. While the store is away, the last look serves as long as it may;
        then whoever asks gets the error."""
        if self._lock.acquire(blocking=False):
            try:
                self._look = self._read()
            except StoreError as error:
                log.debug("the store cannot be read: %s", error)
            finally:
                self._lock.release()

    def _read(self) -> T:
        began = self._clock()
        try:
            look = self._ask()
        except StoreError as error:
            self._failures = (self._failures[0] + 1, error)
            raise
        self._read_at = self._clock()
        self._took = self._read_at - began
        return look

    def _is_old(self, kept_for: float) -> bool:
        return self._clock() - self._read_at >= self._kept_for(kept_for)

    def _may_serve(self, oldest: float) -> bool:
        """Whether the last look is good enough while the next one is being made."""
        return self._took > _LONG and self._clock() - self._read_at < max(oldest, 2 * _REST * self._took)

    def _kept_for(self, seconds: float) -> float:
        # So looks take a fifth of a store's time at most.
        return max(seconds, _REST * self._took) if self._took > _LONG else seconds


class CachedOverview(CachedRead[StoreOverview]):
    """The last look at a store."""

    def __init__(
        self,
        store: Callable[[], Store],
        clock: Callable[[], float] = time.monotonic,
        start: Callable[[Callable[[], None]], None] = _in_thread,
    ) -> None:
        super().__init__(lambda: StoreOverview.of(store()), clock, start)


class OverviewStore:
    """The store for those who look at much of it, over connections of its own: what they read for long holds up no put,
    claim or lookup of this process. connect: opens it, and says whether it is to be closed."""

    def __init__(self, connect: Callable[[], tuple[Store, bool]]) -> None:
        self._connect = connect
        self._lock = threading.Lock()
        self._opened: tuple[Store, bool] | None = None
        self._is_closed = False

    def __call__(self) -> Store:
        """The store; the first call opens it. StoreError."""
        with self._lock:
            if self._is_closed:
                raise StoreUnavailable("this process is ending: ask again")
            if self._opened is None:
                self._opened = self._connect()
            return self._opened[0]

    def close(self) -> None:
        """Closes what was opened; from now on there is no store."""
        with self._lock:
            self._is_closed = True
            store, is_own = self._opened or (None, False)
        if store is not None and is_own:
            store.close()
