"""Tells other processes of news: those of this host by its board, the others by NOTIFY; soon, but not too often.

A process tells of each reason a limited number of times. What is beyond the limit is told a little later, so the last
one is not lost. If nobody sleeps on this host, the first NOTIFY after a pause is sent by the transaction that it
tells of, and the others afterwards. If somebody does, NOTIFY is sent a moment after the sleeper was woken.
"""

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable

from tarry.errors import TarryError
from tarry.model.wake import WakeReason
from tarry.store.postgres.link.pool import PostgresPool
from tarry.store.shared.backoff import TurnGuard

log = logging.getLogger("tarry.store")

# Commits that notify are made one at a time in the whole server: too many of them slow down all others.
EVERY = dict.fromkeys(WakeReason, 0.05) | {WakeReason.WORK: 0.01}
"""Seconds from one NOTIFY for a reason to the next, in the long run. News of waiting work matters most."""
AT_ONCE = 5
"""So many may come together after a pause."""
# NOTIFY wakes a session of the server and a thread for each process that listens. While these run, who was woken on
# this host would wait for the processor.
REMOTE_AFTER = 0.005
"""Seconds that NOTIFY waits after somebody on this host was woken."""
# A notice is a hint, so it need not wait for the disk, and the next one may commit sooner.
_SEND = "SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, $2)"


def channel(schema: str, reason: WakeReason) -> str:
    """The channel for this reason to wake."""
    return f"{schema}_{reason}"


class NotifySender:
    """Sends NOTIFY; a thread sends those that have to wait. token: what to send. wake_here: wakes sleepers of this
    host; False if there are none."""

    def __init__(
        self, connections: PostgresPool, token: Callable[[], str], wake_here: Callable[[WakeReason], bool]
    ) -> None:
        self._connections, self._token, self._wake_here = connections, token, wake_here
        self._closed = False
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        # Entered as it is, not through the condition: see WakeupHub.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._next = dict.fromkeys(EVERY, 0.0)
        """For each reason, when the next would come if all were evenly spaced."""
        self._late: set[WakeReason] = set()
        self._remote: set[WakeReason] = set()
        """What was told on this host, and is still to be told elsewhere, at `_remote_at`."""
        self._remote_at = 0.0
        self._thread: threading.Thread | None = None

    def _begin_in_child(self) -> None:
        if self._pid != os.getpid():
            # The thread runs only in the parent, and the lock may have been held when it forked.
            self._begin()

    def try_reserve(self, reason: WakeReason) -> bool:
        """Whether none was sent for a while; then one is counted as sent now."""
        self._begin_in_child()
        # Stricter than `send`: in a burst the transactions with jobs should not queue up for their commits.
        with self._lock:
            return reason not in self._late and self._next[reason] <= time.monotonic() and self._try_count(reason)

    def send(self, reasons: Collection[WakeReason]) -> None:
        """Tells all other processes of these reasons: now, or as soon as they may be told again."""
        self._begin_in_child()
        with self._lock:
            at_once = [reason for reason in reasons if reason not in self._late and self._try_count(reason)]
            late = set(reasons).difference(at_once, self._late)
            if late and not self._closed:
                self._late |= late
                self._start()
                self._changed.notify()
        self._send(at_once)

    def _try_count(self, reason: WakeReason) -> bool:
        """Whether one may be sent now; then it is counted."""
        if self._wait(reason) > 0:
            return False
        self._next[reason] = max(self._next[reason], time.monotonic()) + EVERY[reason]
        return True

    def _wait(self, reason: WakeReason) -> float:
        return self._next[reason] - (AT_ONCE - 1) * EVERY[reason] - time.monotonic()

    def _send(self, reasons: Iterable[WakeReason]) -> None:
        for reason in reasons:
            if self._wake_here(reason):
                self._notify_later(reason)
            else:
                self._notify(reason)

    def _notify(self, reason: WakeReason) -> None:
        values = channel(self._connections.url.schema, reason), self._token()
        # A lost hint does no harm: sleepers look by themselves, also when they are connected again.
        with contextlib.suppress(TarryError):
            self._connections.call(lambda connection: connection.run(_SEND, values))

    def _notify_later(self, reason: WakeReason) -> None:
        with self._lock:
            self._remote_at = self._remote_at if self._remote else time.monotonic() + REMOTE_AFTER
            self._remote.add(reason)
            self._start()
            self._changed.notify()

    def _start(self) -> None:
        if self._thread is None:
            thread = threading.Thread(target=self._send_late, name="tarry-notify", daemon=True)
            # No error may leave this: it comes after a commit. Without room for a thread the next news try again.
            with contextlib.suppress(RuntimeError):
                thread.start()
                self._thread = thread

    def _send_late(self) -> None:
        guard, goes_on = TurnGuard(log, "sending news to other processes"), True
        while goes_on:
            with guard:
                goes_on = self._send_next()

    def _send_next(self) -> bool:
        """Waits for news that have to be sent, and sends those that are due; False once there will be no more."""
        with self._lock:
            while not self._late and not self._remote and not self._closed:
                self._changed.wait()
            if not self._late and not self._remote:
                return False
            late, remote = self._take_due()
            if not late and not remote:
                pauses = [self._wait(reason) for reason in self._late]
                pauses += [self._remote_at - time.monotonic()] if self._remote else []
                self._changed.wait(min(pauses))
        # Without the lock: a slow server must not hold up threads that have news.
        self._send(late)
        for reason in remote:
            self._notify(reason)
        return True

    def _take_due(self) -> tuple[set[WakeReason], set[WakeReason]]:
        """Takes what is to be told now: of the late reasons, and to other hosts alone. When closed, that is all."""
        late = {reason for reason in self._late if self._try_count(reason) or self._closed}
        remote = self._remote if self._closed or time.monotonic() >= self._remote_at else set()
        self._late -= late
        self._remote = self._remote - remote
        return late, remote

    def close(self) -> None:
        """Sends at once what still has to be sent, and ends the thread."""
        with self._lock:
            self._closed, thread = True, self._thread
            self._changed.notify()
        if thread is not None:
            thread.join(timeout=2 * self._connections.url.timeout)
