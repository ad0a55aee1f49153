"""The wake-up hub: the sleepers on a store in this process, and which of them news wakes. A store's transport brings
the news from other processes."""

import os
import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from tarry.model.wake import WakeReason
from tarry.store.rules.sleeper import Wakeup, choose_sleepers

# Longer each time, so that sleepers spare the store while the transport is away.
LOOK_FIRST, LOOK_LAST = 0.02, 0.25
"""Seconds after which a sleeper looks by itself while no news arrive: the first time, and at most."""


class WakeupTransport(Protocol):
    """Brings news from other processes to the hub. Its threads live from the first `subscribe` until `close`."""

    def subscribe(self, topic: str) -> None:
        """Subscribes to the topic. Returns once its news arrive, or when at present they cannot."""

    def is_receiving(self, topic: str) -> bool:
        """Whether all news for the topic arrive."""

    def close(self) -> None:
        """Ends the threads and their connections."""


class WakeupHub:
    """The sleepers of one store in one process. create_transport: called when the first sleeper listens."""

    def __init__(self, create_transport: "Callable[[WakeupHub], WakeupTransport] | None" = None) -> None:
        self._create_transport = create_transport
        self._closed = False
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        # Entered as it is, not through the condition: that does it in Python, and an exception from a signal's handler
        # amid that would leave it held.
        self.lock = threading.RLock()
        """Guards the sleepers and the state of the transport."""
        self.changed = threading.Condition(self.lock)
        """Notified when either changes."""
        self.listens = 0
        """How often somebody began to listen."""
        self.transport: WakeupTransport | None = None
        self._topics: dict[Wakeup, str] = {}

    def _is_inherited(self) -> bool:
        """Whether this is a forked child of the process that made the hub."""
        # Sleepers and threads are the parent's then, and a thread that does not exist here may hold the lock.
        return self._pid != os.getpid()

    def wakeup(self) -> Wakeup:
        """A new sleeper, which listens to nothing yet."""
        return HubWakeup(self)

    def listen(self, sleeper: Wakeup, topic: str) -> None:
        """From now on, the next news for the topic wakes the sleeper."""
        if self._is_inherited():
            self._begin()
        with self.lock:
            self._topics[sleeper] = topic
            self.listens += 1
            if self.transport is None and self._create_transport is not None and not self._closed:
                self.transport = self._create_transport(self)
            transport = self.transport
            self.changed.notify_all()
        # Without the lock: this may wait for the server.
        if transport is not None:
            transport.subscribe(topic)

    def ignore(self, sleeper: Wakeup) -> None:
        """Nothing wakes it any more."""
        if sleeper in self._topics and not self._is_inherited():
            with self.lock:
                # It may have been woken meanwhile.
                self._topics.pop(sleeper, None)

    def hears(self, sleeper: Wakeup) -> bool:
        """Whether news still wakes the sleeper."""
        return sleeper in self._topics

    def is_receiving(self, topic: str) -> bool:
        """Whether news for the topic arrive from other processes. True if the store has no transport."""
        transport = self.transport
        return transport is None or transport.is_receiving(topic)

    def has_sleepers(self, topic: str | None = None) -> bool:
        """Whether any sleeper listens; with a topic, whether one listens to it. `lock` must be held."""
        return bool(self._topics) if topic is None else topic in self._topics.values()

    def wake(self, *reasons: WakeReason) -> bool:
        """Wakes those who listen for one of the reasons. False: nobody does."""
        # Checked without the lock, since this is the usual case. A sleeper that begins to listen now looks once more.
        if not self._topics or self._is_inherited():
            return False
        with self.lock:
            sleepers = choose_sleepers(self._topics.items(), reasons)
            self._wake(sleepers)
        return bool(sleepers)

    def wake_one(self, topic: str) -> bool:
        """Wakes one that listens to the topic. False: nobody does."""
        with self.lock:
            sleepers = [sleeper for sleeper, heard in self._topics.items() if heard == topic][:1]
            self._wake(sleepers)
        return bool(sleepers)

    def wake_all(self) -> None:
        """Wakes all sleepers: some news may have been missed."""
        with self.lock:
            self._wake(list(self._topics))

    def _wake(self, sleepers: Sequence[Wakeup]) -> None:
        for sleeper in sleepers:
            # It is awake now: the next news of its kind must wake another sleeper.
            del self._topics[sleeper]
            sleeper.wake()

    def close(self) -> None:
        """Ends the transport. In a forked child it does nothing, since the transport is the parent's."""
        if self._is_inherited():
            return
        with self.lock:
            # No transport may be made from now on: nobody would close it.
            self._closed = True
            transport, self.transport = self.transport, None
            self.changed.notify_all()
        if transport is not None:
            transport.close()


class HubWakeup(Wakeup):
    """One sleeper of a hub."""

    def __init__(self, hub: WakeupHub) -> None:
        super().__init__()
        self._hub = hub
        self._topic = ""
        self._look = LOOK_FIRST

    def listen(self, topic: str) -> None:
        self._topic = topic
        self._hub.listen(self, topic)

    def ignore(self) -> None:
        self._hub.ignore(self)

    def is_listening(self) -> bool:
        return self._hub.hears(self)

    def is_receiving(self) -> bool:
        return self._hub.is_receiving(self._topic)

    def sleep(self, seconds: float, also: Sequence[int] = ()) -> bytes:
        return super().sleep(self.limit_sleep(seconds), also)

    def limit_sleep(self, seconds: float) -> float:
        """How long to sleep, of so many seconds at most."""
        if self.is_receiving():
            self._look = LOOK_FIRST
            return seconds
        # While no news arrive, a sleeper must look by itself, or it would miss everything.
        self._look = min(self._look * 1.5, LOOK_LAST)
        return min(seconds, self._look)
