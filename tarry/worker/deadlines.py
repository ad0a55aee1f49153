"""The deadlines of running attempts: one heap for all, since a timer for each job would cost more than the job."""

import heapq
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from tarry.tasks.running import Running

LATE = 0.1
"""Seconds after which somebody else does what the pump has not done."""


class Deadlines:
    """Times by time.monotonic(). An attempt that ended is passed over when its time comes. From any thread."""

    def __init__(self) -> None:
        self.sooner: Callable[[], object] = _nobody
        """Called when `next` has become an earlier moment."""
        self._heap: list[tuple[float, int, Running]] = []
        self._order = itertools.count()
        self._lock = threading.Lock()

    def watch(self, batch: Sequence[Running], now: float) -> None:
        """Those of the batch that have a timeout."""
        for running in batch:
            if running.timeout is not None:
                self._add(now + running.timeout, running)

    def overdue(self, now: float, alive: Callable[[Running], bool]) -> Iterator[Running]:
        """The attempts whose time is over. One that stood in line first has its time from when it began."""
        while (running := self._due(now)) is not None:
            timeout = running.timeout or 0.0
            if not alive(running):
                continue
            if running.started and running.started + timeout <= now:
                yield running
            else:
                self._add((running.started or now) + timeout, running)

    def next(self) -> float | None:
        """When to look again."""
        with self._lock:
            return self._heap[0][0] if self._heap else None

    def _due(self, now: float) -> Running | None:
        with self._lock:
            return heapq.heappop(self._heap)[2] if self._heap and self._heap[0][0] <= now else None

    def _add(self, moment: float, running: Running) -> None:
        with self._lock:
            heapq.heappush(self._heap, (moment, next(self._order), running))
            sooner = self._heap[0][2] is running
        if sooner:
            self.sooner()


class Guard:
    """A thread that looks where the pump is late, which may be waiting for its store. The first deadline starts it.

    break_in: on all whose time is over at a moment.
    """

    def __init__(self, deadlines: Deadlines, break_in: Callable[[float], None]) -> None:
        self._deadlines, self._break_in = deadlines, break_in
        self._thread: threading.Thread | None = None
        self._news = threading.Event()
        self._stopped = False
        deadlines.sooner = self._look_again

    def stop(self) -> None:
        """From now on nothing is done in time any more."""
        self._stopped = True
        self._news.set()
        if self._thread is not None:
            self._thread.join()

    def _look_again(self) -> None:
        if self._thread is None and not self._stopped:
            self._thread = threading.Thread(target=self._watch, name="tarry-deadlines", daemon=True)
            self._thread.start()
        self._news.set()

    def _watch(self) -> None:
        while not self._stopped:
            moment = self._deadlines.next()
            pause = None if moment is None else max(0.0, moment + LATE - time.monotonic())
            if not self._news.wait(pause):
                self._break_in(time.monotonic())
            self._news.clear()


def _nobody() -> None: ...
