"""Bells over LISTEN and NOTIFY: one connection of a process listens for all who sleep in it, once the first does.

There is a channel for each kind of news, so that a server does not wake who wants to hear nothing of it. Not too many
of a kind are sent by a process; what rings in between is sent a little later, so the last is never lost. The first
after a pause is sent by the transaction that it tells of, the others afterwards, without waiting for the disk: commits
that notify are made one at a time in the whole server.

Where a pooler is between there is no session that could listen. Then who sleeps is woken every 5 to 250 ms, the longer
nothing happens the more seldom, and looks.
"""

import threading
from collections.abc import Iterable

from tarry.store.ids import uuid7
from tarry.store.postgres.connection import Connections
from tarry.store.postgres.listening import Listener, Ticker
from tarry.store.postgres.ringing import RECALL, RESULTS, STEPS, WORK, Ringer, channel
from tarry.store.shared.bell import FOLLOW, FULL, RESULT, Bell, one_of_each


def _wants(topic: str) -> str:
    """The kinds of news that somebody armed for the topic wants to hear."""
    if topic == FULL:
        return RECALL
    if topic == RESULT:
        return RESULTS
    return RESULTS + STEPS if topic == FOLLOW else WORK + RECALL


class PostgresBells:
    """The bells of one store in one process."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._token = uuid7().hex()
        self._lock = threading.Lock()
        self._armed: dict[Bell, str] = {}
        self._waker: Listener | Ticker | None = None
        self._closed = False
        self._ringer = Ringer(connections, self._token) if connections.place.notify else None

    def bell(self) -> Bell:
        """One of one's own."""
        return _PostgresBell(self)

    def within(self, kind: str) -> tuple[str | None, str]:
        """Channel and token, if the transaction that makes the news is to send it, which is soonest; or nothing."""
        may = self._ringer is not None and self._ringer.rested(kind)
        return (channel(self._connections.place.schema, kind) if may else None, self._token)

    def ring(self, kinds: str, sent: bool = False) -> None:
        """Wakes who sleeps for these kinds of news, here at once, elsewhere soon. sent: there, it has been told."""
        self.heard(kinds)
        self.stir()
        if self._ringer is not None and not sent:
            self._ringer.ring(kinds)

    def heard(self, kinds: Iterable[str]) -> None:
        """Such news came: wakes one of each kind of worker, or all who wait for a result or follow."""
        if not self._armed:
            return
        with self._lock:
            for kind in kinds:
                for bell in self._concerned(kind):
                    del self._armed[bell]  # it is awake now: the next ring is for another
                    bell.poke()

    def _concerned(self, kind: str) -> list[Bell]:
        armed = [(bell, topic) for bell, topic in self._armed.items() if kind in _wants(topic)]
        if kind == WORK:
            return [armed[place][0] for place in one_of_each((n, topic) for n, (_, topic) in enumerate(armed))]
        return [bell for bell, _ in armed]

    def sleepers(self) -> bool:
        """Whether anybody sleeps."""
        return bool(self._armed)

    def wake_all(self) -> None:
        """Nobody knows what was missed: everybody looks."""
        with self._lock:
            for bell in self._armed:
                bell.poke()

    def arm(self, bell: Bell, topic: str) -> None:
        """From now on it hears what the topic is about; the first of a process waits until somebody listens."""
        with self._lock:
            self._armed[bell] = topic
            if self._waker is None and not self._closed:
                self._waker = self._made_waker()
            waker = self._waker
        if waker is not None:
            waker.want(_wants(topic))

    def _made_waker(self) -> Listener | Ticker:
        if self._connections.place.notify:
            return Listener(self, self._connections, self._token)
        return Ticker(self)

    def disarm(self, bell: Bell) -> None:
        """It hears nothing any more."""
        with self._lock:
            self._armed.pop(bell, None)

    def stir(self) -> None:
        """Something happened here: who polls does so more often for a while."""
        if isinstance(self._waker, Ticker):
            self._waker.stir()

    def close(self) -> None:
        """Its threads end."""
        with self._lock:
            waker, self._waker, self._closed = self._waker, None, True
        if self._ringer is not None:
            self._ringer.close()
        if waker is not None:
            waker.close()


class _PostgresBell(Bell):
    def __init__(self, bells: PostgresBells) -> None:
        super().__init__()
        self._bells = bells

    def arm(self, topic: str) -> None:
        self._bells.arm(self, topic)

    def disarm(self) -> None:
        self._bells.disarm(self)
