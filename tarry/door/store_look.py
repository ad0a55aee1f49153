"""What a server shows of a store: read at most every few seconds, however many ask; and whether the store answers."""

import logging
import threading
import time
from collections.abc import Callable, Container, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from msgspec import Struct

from tarry.errors import PartlyUnavailable, StoreError, StoreUnavailable, TarryError
from tarry.model.limit import Level, Limit
from tarry.store.base import Store, Tally
from tarry.store.history.reading import (
    Figures,
    HistoryView,
    Period,
    ended_of_each,
    figures_of_each,
    read_cells,
    view_of,
)
from tarry.store.history.sums import TOTALS, Place
from tarry.store.hosts import Host, list_hosts
from tarry.store.shared.partial_result import reachable_part
from tarry.tasks.lazy_asyncio import asyncio

log = logging.getLogger("tarry.door")
KEPT_FOR = 5.0
"""Seconds for which a look serves all who ask."""

_LONG, _REST = 0.25, 4
"""Seconds that a look takes at least to be kept for longer, and how many times as long as it took."""
OLDEST = 600.0
"""Seconds for which a page may show a look at a large store, while a new one is being made."""
_MOST_VIEWS = 32
"""Figures that are kept of what was read of a history."""
PROBE_TIMEOUT = 1.0
"""Seconds in which the store of a server that is ready has to answer."""


def _in_thread(call: Callable[[], None]) -> None:
    threading.Thread(target=call, name="tarry-look", daemon=True).start()


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


def read_totals(store: Store) -> Mapping[Place, bytes]:
    """What was ever counted, by queue and task (`sums.decode`); nothing while a part of the store is away, since a sum
    without it would look as if counters went down. StoreError."""
    try:
        return store.history.read(TOTALS, 0, 1)
    except PartlyUnavailable:
        return {}


Fact = TypeVar("Fact")


class CachedRead(Generic[Fact]):
    """The last of what was read of a store. ask: reads it. start: begins a call beside the caller's own thread. `read`
    may block."""

    def __init__(
        self,
        ask: Callable[[], Fact],
        clock: Callable[[], float] = time.monotonic,
        start: Callable[[Callable[[], None]], None] = _in_thread,
    ) -> None:
        self._ask, self._clock, self._start = ask, clock, start
        self._lock = threading.Lock()
        self._look: Fact | None = None
        self._read_at = self._took = 0.0
        self._failures: tuple[int, StoreError | None] = (0, None)
        """How many reads failed, and the error of the last one."""

    def read(self, kept_for: float = KEPT_FOR, oldest: float = 0.0) -> Fact:
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

    def _read(self) -> Fact:
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


class CachedLook(CachedRead[StoreLook]):
    """The last look at a store."""

    def __init__(
        self,
        store: Callable[[], Store],
        clock: Callable[[], float] = time.monotonic,
        start: Callable[[Callable[[], None]], None] = _in_thread,
    ) -> None:
        super().__init__(lambda: StoreLook.of(store()), clock, start)


class HistorySpan(Struct, frozen=True):
    """The last so many points of a history. resolution: `sums.LENGTH`. step: seconds of a point."""

    resolution: int
    count: int
    step: int


class ReadHistory:
    """What was read of a history, and the figures that pages made of it."""

    def __init__(self, period: Period, cells: Mapping[Place, bytes]) -> None:
        self.period, self._cells = period, cells
        self._views: dict[tuple[str | None, str | None, str], HistoryView] = {}

    def view(self, caller: str, allows: Callable[[str], bool], queue: str | None, task: str | None) -> HistoryView:
        """The figures of that queue, or of all; of that task, or of all. caller: the name of who may see those of the
        queues that `allows` allows."""
        asked = (queue, task, caller)
        found = self._views.get(asked)
        if found is None:
            found = view_of(
                self._cells,
                self.period,
                partial(is_wanted, queue, task, allows),
                None if task is not None else lambda of: is_sample_of(queue, of, allows),
                has_tasks=False,
            )
            # An open page asks again sooner than the history is read again.
            if len(self._views) < _MOST_VIEWS:
                self._views[asked] = found
        return found

    def figures_of_each(self, allows: Callable[[str], bool]) -> Mapping[str, Figures]:
        """The figures of each task."""
        return figures_of_each(self._cells, lambda queue, _: allows(queue), lambda place: place.task)

    def figures_of_queues(self, allows: Callable[[str], bool], starts: Container[int]) -> Mapping[str, Figures]:
        """The figures of each queue at the points that begin then."""
        cells = {place: cell for place, cell in self._cells.items() if place.start in starts}
        return figures_of_each(cells, lambda queue, _: allows(queue), lambda place: place.queue)

    def ended_of_each(self, allows: Callable[[str], bool]) -> Mapping[str, list[int]]:
        """How many attempts of each task ended, at each point."""
        return ended_of_each(self._cells, self.period, lambda queue, _: allows(queue))


def is_wanted(queue: str | None, task: str | None, allows: Callable[[str], bool], in_queue: str, of_task: str) -> bool:
    """Whether what was counted of `in_queue` and `of_task` is of that queue and task, and may be seen; None: any."""
    return queue in (None, in_queue) and task in (None, of_task) and allows(in_queue)


def is_sample_of(queue: str | None, of: str, allows: Callable[[str], bool]) -> bool:
    """Whether a sample is of that queue; None: of all that the caller may see. of: whose sample it is; an
    empty name: that of all queues."""
    return allows(of or "*") if queue is None else of == queue and allows(of)


class HistoryLook:
    """The history as pages show it: each span is read at most every few seconds, however many ask."""

    def __init__(self, store: Callable[[], Store]) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._reads: dict[HistorySpan, CachedRead[ReadHistory]] = {}
        self._totals = CachedRead(lambda: read_totals(self._store()))

    def totals(self, oldest: float = 0.0) -> Mapping[Place, bytes]:
        """What `read_totals` has read; StoreError. oldest: as for `CachedRead.read`."""
        return self._totals.read(oldest=oldest)

    def read(self, span: HistorySpan) -> ReadHistory:
        """What was counted in that span; StoreError. span: one of a few."""
        with self._lock:
            reads = self._reads.setdefault(span, CachedRead(lambda: self._read(span)))
        return reads.read(oldest=OLDEST)

    def _read(self, span: HistorySpan) -> ReadHistory:
        store = self._store()
        period = Period.last(span.resolution, span.count, store.time(), span.step)
        return ReadHistory(period, reachable_part(lambda: read_cells(store.history, period)))


class LookStore:
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
                raise StoreUnavailable("this server is ending: ask again")
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
