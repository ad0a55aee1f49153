"""Writes acts to the store's log in the background: an act neither waits for that nor fails with it."""

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from itertools import islice
from typing import Protocol

from tarry.client.audit.log import DONE, PAGE, Act, ActLog, identified
from tarry.client.clock import Clock
from tarry.errors import TarryError
from tarry.store.rules.base import Store
from tarry.store.shared.backoff import Backoff

log = logging.getLogger("tarry.audit")

MOST_WAITING = 1000
"""Acts that wait for the store; beyond that the oldest of whoever has most of them is left out, and is only in the log
`tarry.audit`."""
MOST_REFUSED = 60
"""Acts of one caller that were refused or failed, in a minute of this process; others are only in the log
`tarry.audit`."""
CLOSE_WITHIN = 2.0
"""Seconds that the end of the process waits for the last acts."""


class ActClient(Protocol):
    """What it needs of the client of a store."""

    @property
    def store(self) -> Store: ...
    @property
    def clock(self) -> Clock: ...


class ActWriter:
    """Acts on their way to the store. client: called in its thread only, since it may open the store."""

    def __init__(self, client: Callable[[], ActClient]) -> None:
        self._client = client
        self._waiting: deque[Act] = deque()
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._backoff = Backoff(log, "acts come to the log of acts again")
        self._minute, self._refused = 0, Counter[str]()
        self.left_out = 0
        """Acts that never came to the store."""

    def record(self, act: Act) -> None:
        """Has the act written soon. Never blocks for long, never raises."""
        with self._lock:
            if self._is_closed or self._is_one_too_many(act):
                self.left_out += 1
                return
            if len(self._waiting) >= MOST_WAITING:
                self._leave_one_out()
            # With its id, so that it is there once, however often it is tried.
            self._waiting.append(identified(act))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="tarry-audit", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def _is_one_too_many(self, act: Act) -> bool:
        """Whether the act was refused, as too many others of this minute."""
        if act.outcome == DONE:
            return False
        minute = int(time.monotonic() // 60)
        if minute != self._minute:
            self._minute, self._refused = minute, Counter()
        self._refused[act.who] += 1
        return self._refused[act.who] > MOST_REFUSED

    def _leave_one_out(self) -> None:
        """Takes out the oldest act of the caller that has most of those that wait."""
        (who, _), *_ = Counter(act.who for act in self._waiting).most_common(1)
        self._waiting.remove(next(act for act in self._waiting if act.who == who))
        self.left_out += 1

    def flush(self, timeout: float = CLOSE_WITHIN) -> bool:
        """Waits until all acts are written, up to so many seconds; returns whether they are."""
        with self._lock:
            return self._changed.wait_for(lambda: not self._waiting, timeout)

    def close(self) -> None:
        """Ends the thread, once all is written or after two seconds. May be called twice."""
        with self._lock:
            self._is_closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(CLOSE_WITHIN)
        with self._lock:
            left = self.left_out + len(self._waiting)
            self.left_out, self._waiting = 0, deque()
        if left:
            why = "it was not available, or too many were refused at once"
            log.warning("%d acts are not in the log of acts of the store: %s", left, why)

    def _run(self) -> None:
        while True:
            with self._lock:
                self._changed.wait_for(lambda: self._waiting or self._is_closed)
                # A page at most: if the answer is lost, the newest two pages tell whether they are there.
                acts = list(islice(self._waiting, PAGE))
            if not acts or (not self._write(acts) and not self._pause()):
                return

    def _write(self, acts: list[Act]) -> bool:
        try:
            client = self._client()
            ActLog(client.store).append(acts, client.clock.now())
        except Exception as error:
            # One line for an outage, however long it is.
            if self._backoff.fail(time.monotonic()):
                known = isinstance(error, TarryError)
                log.warning("acts come to the log of acts later: %s", error, exc_info=None if known else error)
            return False
        self._backoff.succeed()
        with self._lock:
            written = {id(act) for act in acts}
            self._waiting = deque(act for act in self._waiting if id(act) not in written)
            self._changed.notify_all()
        return True

    def _pause(self) -> bool:
        """Waits before the next try; False if there is to be none."""
        with self._lock:
            self._changed.wait_for(lambda: self._is_closed, self._backoff.left(time.monotonic()))
            return not self._is_closed
