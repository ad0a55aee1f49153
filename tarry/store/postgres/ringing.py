"""Sending rings through the database: soon, and yet not too many of them."""

import contextlib
import threading
import time
from collections.abc import Iterable

from tarry.errors import TarryError
from tarry.store.postgres.connection import Connections

WORK, RESULTS, STEPS, RECALL = "w", "r", "f", "c"
"""The kinds of news: something waits; something has finished; something is a step further; something is called back."""
EVERY = {WORK: 0.01, RESULTS: 0.05, STEPS: 0.05, RECALL: 0.05}
"""Seconds from one ring of a kind to the next, in the long run. That something waits matters most."""
AT_ONCE = 5
"""So many may come together after a pause."""
_SEND = "SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, $2)"


def channel(schema: str, kind: str) -> str:
    """Where such news is told."""
    return f"{schema}_{kind}"


class Ringer:
    """Sends rings, and has a thread for those that have to wait; so the last is never lost."""

    def __init__(self, connections: Connections, token: str) -> None:
        self._connections, self._token = connections, token
        self._changed = threading.Condition()
        self._next = dict.fromkeys(EVERY, 0.0)
        """When the next would be on time, had they come evenly spaced."""
        self._late: set[str] = set()
        self._thread: threading.Thread | None = None
        self._closed = False

    def rested(self, kind: str) -> bool:
        """Whether none was sent for a while; then one is counted as sent now."""
        with self._changed:
            return kind not in self._late and self._next[kind] <= time.monotonic() and self._taken(kind)

    def ring(self, kinds: str) -> None:
        """Tells all other processes that such news has come: now, or as soon as it may be told again."""
        with self._changed:
            at_once = [kind for kind in kinds if kind not in self._late and self._taken(kind)]
            late = set(kinds).difference(at_once, self._late)
            if late and not self._closed:
                self._late |= late
                self._begin()
                self._changed.notify()
        self._send(at_once)

    def _taken(self, kind: str) -> bool:
        """Whether one may be sent now; then it is counted."""
        if self._wait(kind) > 0:
            return False
        self._next[kind] = max(self._next[kind], time.monotonic()) + EVERY[kind]
        return True

    def _wait(self, kind: str) -> float:
        return self._next[kind] - (AT_ONCE - 1) * EVERY[kind] - time.monotonic()

    def _send(self, kinds: Iterable[str]) -> None:
        for kind in kinds:
            where = channel(self._connections.place.schema, kind)
            # A hint: who sleeps looks by himself, and does so when he is connected again.
            with contextlib.suppress(TarryError):
                self._connections.call(lambda link: link.run(_SEND, (where, self._token)))  # noqa: B023

    def _begin(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._ring_late, name="tarry-ringing", daemon=True)
            self._thread.start()

    def _ring_late(self) -> None:
        while True:
            with self._changed:
                while not self._late and not self._closed:
                    self._changed.wait()
                if not self._late:
                    return
                due = {kind for kind in self._late if self._taken(kind) or self._closed}
                self._late -= due
                if not due:
                    self._changed.wait(min(map(self._wait, self._late)))
            self._send(due)

    def close(self) -> None:
        """What still has to be sent is sent at once."""
        with self._changed:
            self._closed, thread = True, self._thread
            self._changed.notify()
        if thread is not None:
            thread.join(timeout=2 * self._connections.place.seconds)
