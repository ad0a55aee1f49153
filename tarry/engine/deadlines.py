"""The deadlines of running attempts: one heap for all, since a timer for each job would cost more than the job."""

import heapq
import itertools
from collections.abc import Callable, Iterator, Sequence

from tarry.engine.running import Running


class Deadlines:
    """Times by time.monotonic(). An attempt that ended is passed over when its time comes."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Running]] = []
        self._order = itertools.count()

    def watch(self, batch: Sequence[Running], now: float) -> None:
        """Those of the batch that have a timeout."""
        for running in batch:
            if running.task.timeout is not None:
                self._add(now + running.task.timeout, running)

    def overdue(self, now: float, alive: Callable[[Running], bool]) -> Iterator[Running]:
        """The attempts whose time is over. One that stood in line first has its time from when it began."""
        while self._heap and self._heap[0][0] <= now:
            _, _, running = heapq.heappop(self._heap)
            timeout = running.task.timeout or 0.0
            if not alive(running):
                continue
            if running.started and running.started + timeout <= now:
                yield running
            else:
                self._add((running.started or now) + timeout, running)

    def next(self) -> float | None:
        """When to look again."""
        return self._heap[0][0] if self._heap else None

    def _add(self, moment: float, running: Running) -> None:
        heapq.heappush(self._heap, (moment, next(self._order), running))
