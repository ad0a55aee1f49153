"""The deadlines of running attempts."""

import heapq
import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from tarry.store.shared.backoff import TurnGuard
from tarry.tasks.running import Running

log = logging.getLogger("tarry.worker")

MOST_ENDED = 256
"""So many attempts may stay in the heap after their end; or as many as there are others, if that is more."""
# Long enough that a pump which does not wait for its store comes first.
LATE = 0.1
"""Seconds after which `DeadlineThread` does what the pump has not done."""


class Deadlines:
    """A heap of deadlines, by time.monotonic(). Thread-safe."""

    def __init__(self) -> None:
        self.on_sooner: Callable[[], object] = _ignore
        """Called when `next` has become an earlier moment."""
        # One heap for all: a timer for each job would cost more than the job.
        self._heap: list[tuple[float, int, Running]] = []
        # Between the moment and the attempt: attempts of the same moment cannot be compared.
        self._order = itertools.count()
        self._lock = threading.Lock()
        self._most = MOST_ENDED
        """At this length those that have ended are removed from the heap."""

    def watch(self, batch: Sequence[Running], now: float) -> None:
        """Adds the attempts of the batch that have a timeout."""
        for running in batch:
            if running.timeout is not None:
                self._add(now + running.timeout, running)

    def take_overdue(self, now: float, alive: Callable[[Running], bool]) -> Iterator[Running]:
        """Removes the attempts that are past their timeout. Those that are not alive are skipped."""
        if len(self._heap) > self._most:
            self._remove_ended(alive)
        while (running := self._due(now)) is not None:
            timeout = running.timeout or 0.0
            if not alive(running):
                continue
            if running.started and running.started + timeout <= now:
                yield running
            else:
                # It waited for a slot: its time runs from when it began.
                self._add((running.started or now) + timeout, running)

    def next_due(self) -> float | None:
        """When the next deadline is."""
        with self._lock:
            return self._heap[0][0] if self._heap else None

    def _remove_ended(self, alive: Callable[[Running], bool]) -> None:
        # Until their timeout they would take memory, and time of each garbage collection: of short jobs many thousands.
        with self._lock:
            self._heap = [entry for entry in self._heap if alive(entry[2])]
            heapq.heapify(self._heap)
            self._most = 2 * len(self._heap) + MOST_ENDED

    def _due(self, now: float) -> Running | None:
        with self._lock:
            return heapq.heappop(self._heap)[2] if self._heap and self._heap[0][0] <= now else None

    def _add(self, moment: float, running: Running) -> None:
        with self._lock:
            heapq.heappush(self._heap, (moment, next(self._order), running))
            sooner = self._heap[0][2] is running
        if sooner:
            self.on_sooner()


LONGEST_PAUSE = 3600.0
"""Seconds: a lock cannot be waited for as long as a job may have for its timeout."""


class DeadlineThread:
    """A thread that interrupts attempts while the pump is late. The first deadline starts the thread.

    interrupt_overdue: interrupts all attempts whose time is over at a moment.
    """

    def __init__(self, deadlines: Deadlines, interrupt_overdue: Callable[[float], None]) -> None:
        # The pump is late while it waits for its store, and a timeout must hold all the same.
        self._deadlines, self._interrupt_overdue = deadlines, interrupt_overdue
        self._thread: threading.Thread | None = None
        self._news = threading.Event()
        self._stopped = False
        deadlines.on_sooner = self._notify

    def stop(self) -> None:
        """Ends the thread."""
        self._stopped = True
        self._news.set()
        if self._thread is not None:
            self._thread.join()

    def _notify(self) -> None:
        if self._thread is None and not self._stopped:
            self._thread = threading.Thread(target=self._watch, name="tarry-deadlines", daemon=True)
            self._thread.start()
        self._news.set()

    def _watch(self) -> None:
        guard = TurnGuard(log, "watching timeouts", self._news.wait)
        while not self._stopped:
            with guard:
                moment = self._deadlines.next_due()
                pause = None if moment is None else min(max(0.0, moment + LATE - time.monotonic()), LONGEST_PAUSE)
                if not self._news.wait(pause):
                    self._interrupt_overdue(time.monotonic())
                # Cleared before the next look at the heap, so that a deadline that comes after the look sets it again.
                self._news.clear()


def _ignore() -> None: ...
