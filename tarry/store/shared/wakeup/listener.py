"""The thread that receives news for a process: one connection that is subscribed to channels. It connects again when
the connection breaks."""

import contextlib
import logging
import select
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Collection

from tarry.errors import TarryError
from tarry.store.rules.sleeper import SelfPipe
from tarry.store.shared.backoff import Backoff, TurnGuard
from tarry.store.shared.wakeup.hub import WakeupHub

log = logging.getLogger("tarry.store")

# A connection that breaks at once, again and again, must not be tried without a growing pause.
LASTS = 2.0
"""Seconds after which a connection counts as good: if it breaks, the next is tried soon."""


class WakeupListener(ABC):
    """Subscribes to all channels that were ever wanted; its news wake sleepers of the hub.

    timeout: seconds that a subscriber waits at most for the subscription, and `close` for the thread.
    """

    lost_by: tuple[type[Exception], ...] = (TarryError,)
    """The errors that end a connection."""

    def __init__(self, name: str, hub: WakeupHub, timeout: float) -> None:
        self.hub, self.timeout = hub, timeout
        self.lock, self.changed = hub.lock, hub.changed
        self.wanted: set[str] = set()
        self.heard: set[str] = set()
        """The channels whose news arrive; no news on them is missed."""
        self.is_closed = False
        self._is_lost = False
        """There is no connection, and the last try to connect failed."""
        self._heard_since: float | None = None
        self._pipe = SelfPipe()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @abstractmethod
    def listen(self) -> None:
        """Connects and serves the hub until the listener is closed; raises one of `lost_by` if the connection breaks.

        Calls `confirm` for channels whose news arrive, and checks `wanted` and `is_closed` when `poll` was woken.
        """

    def subscribe_to(self, channels: Collection[str]) -> None:
        """Returns once news on the channels arrive, or when at present they cannot."""
        # Without the lock: nearly always the channels are subscribed already.
        if self.heard.issuperset(channels):
            return
        with self.lock:
            self.wanted.update(channels)
            self.start()
            self.wake_thread()
            self.changed.wait_for(
                lambda: self.heard.issuperset(channels) or self._is_lost or self.is_closed, self.timeout
            )

    def start(self) -> None:
        """Starts the thread if it does not run; `lock` must be held."""
        if self._thread.ident is None and not self.is_closed:
            self._thread.start()

    def confirm(self, channels: Collection[str]) -> None:
        """News on these channels arrive from now on."""
        with self.lock:
            self.heard.update(channels)
            self._heard_since = self._heard_since or time.monotonic()
            if self._is_lost:
                self._is_lost = False
                # A sleeper that began to listen meanwhile may have missed news.
                self.hub.wake_all()
            self.changed.notify_all()

    def poll(self, fileno: int, seconds: float | None = None) -> tuple[bool, bool]:
        """Waits until the connection is readable or the thread was woken, or for that long: (readable, woken)."""
        poll = select.poll()
        # While the thread waits for the server, only a pipe can wake it.
        poll.register(self._pipe.fileno(), select.POLLIN)
        poll.register(fileno, select.POLLIN)
        ready = {fd for fd, _ in poll.poll(None if seconds is None else seconds * 1000)}
        return fileno in ready, bool(self._pipe.clear())

    def deadline(self) -> float:
        """The moment of time.monotonic() by which an action that begins now must end."""
        return time.monotonic() + self.timeout

    def wake_thread(self) -> None:
        """Makes the thread check `wanted` and `is_closed`."""
        self._pipe.wake()

    def close(self) -> None:
        """Returns once the thread has ended."""
        with self.lock:
            self.is_closed = True
            self.wake_thread()
            self.changed.notify_all()
        # A thread cannot wait for its own end.
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join(self.timeout + 1)
        self._pipe.close()

    def _run(self) -> None:
        # The pause comes below, for all errors.
        backoff, faults = Backoff(), TurnGuard(log, "receiving news of the store", lambda seconds: None)
        while not self.is_closed:
            with faults, contextlib.suppress(*self.lost_by):
                self.listen()
            now = time.monotonic()
            if self._lose(now) > LASTS:
                backoff.succeed()
            backoff.fail(now)
            with self.lock:
                # Only `close` ends this wait: a subscriber must not make the thread try again without a pause.
                self.changed.wait_for(lambda: self.is_closed, backoff.left(now))

    def _lose(self, now: float) -> float:
        """Notes that the connection is gone. Returns for how many seconds it received news."""
        with self.lock:
            lasted = 0.0 if self._heard_since is None else now - self._heard_since
            self.heard, self._heard_since = set(), None
            if not self._is_lost and not self.is_closed:
                # Only after the first failure: from then on sleepers look by themselves.
                self.hub.wake_all()
            self._is_lost = True
            self.changed.notify_all()
        return lasted
