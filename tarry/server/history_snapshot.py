"""What a server shows of a store's history, and whether the store answers."""

import threading
from collections.abc import Callable, Container, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from tarry.errors import TarryError
from tarry.metrics.store_overview import CachedRead, read_totals
from tarry.operate.history import is_sample_of, is_wanted
from tarry.store.queries.deploys import Deploy, read_deploys
from tarry.store.queries.history_reading import (
    Figures,
    HistoryView,
    Period,
    ended_of_each,
    figures_of_each,
    read_cells,
    view_of,
)
from tarry.store.rules.base import Store
from tarry.store.rules.history.sums import LENGTH, Place
from tarry.store.rules.partial_result import reachable_part
from tarry.tasks.lazy_asyncio import asyncio

OLDEST = 600.0
"""Seconds for which a page may show a look at a large store, while a new one is being made."""
_MOST_VIEWS = 32
"""Figures that are kept of what was read of a history."""
PROBE_TIMEOUT = 1.0
"""Seconds in which the store of a server that is ready has to answer."""


class HistorySpan(Struct, frozen=True):
    """The last so many points of a history. resolution: `sums.LENGTH`. step: seconds of a point."""

    resolution: int
    count: int
    step: int


class ReadHistory:
    """What was read of a history, and the figures that pages made of it."""

    def __init__(self, period: Period, cells: Mapping[Place, bytes]) -> None:
        self.period, self._cells = period, cells
        self._views: dict[tuple[str | None, str | None, str, int], HistoryView] = {}

    def view(
        self, caller: str, allows: Callable[[str], bool], queue: str | None, task: str | None, since: int = 0
    ) -> HistoryView:
        """The figures of that queue, or of all; of that task, or of all. caller: the name of who may see those of the
        queues that `allows` allows. since: where the time begins, in seconds since the epoch; 0: with the first
        point."""
        asked = (queue, task, caller, since)
        found = self._views.get(asked)
        if found is None:
            cells, period = self._since(since) if since else (self._cells, self.period)
            found = view_of(
                cells,
                period,
                partial(is_wanted, queue, task, allows),
                None if task is not None else lambda of: is_sample_of(queue, of, allows),
                has_tasks=False,
            )
            # An open page asks again sooner than the history is read again.
            if len(self._views) < _MOST_VIEWS:
                self._views[asked] = found
        return found

    def _since(self, second: int) -> tuple[Mapping[Place, bytes], Period]:
        """What was counted from the minute, hour or day of that second on."""
        length = LENGTH[self.period.resolution]
        start = max(self.period.start, second // length * length)
        return {place: cell for place, cell in self._cells.items() if place.start >= start}, replace(
            self.period, start=start
        )

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


class HistorySnapshot:
    """The history as pages show it: each span is read at most every few seconds, however many ask."""

    def __init__(self, store: Callable[[], Store]) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._reads: dict[HistorySpan, CachedRead[ReadHistory]] = {}
        self._totals = CachedRead(lambda: read_totals(self._store()))
        self._deploys = CachedRead(lambda: read_deploys(self._store()))

    def totals(self, oldest: float = 0.0) -> Mapping[Place, bytes]:
        """What `read_totals` has read; StoreError. oldest: as for `CachedRead.read`."""
        return self._totals.read(oldest=oldest)

    def deploys(self) -> Sequence[Deploy]:
        """All marks of deploys, the newest first; StoreError."""
        return self._deploys.read(oldest=OLDEST)

    def read(self, span: HistorySpan) -> ReadHistory:
        """What was counted in that span; StoreError. span: one of a few."""
        with self._lock:
            reads = self._reads.setdefault(span, CachedRead(lambda: self._read(span)))
        return reads.read(oldest=OLDEST)

    def _read(self, span: HistorySpan) -> ReadHistory:
        store = self._store()
        period = Period.last(span.resolution, span.count, store.time(), span.step)
        return ReadHistory(period, reachable_part(lambda: read_cells(store.history, period)))


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
