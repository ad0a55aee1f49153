"""Wake-up over LISTEN and NOTIFY: from the first sleeper on, one connection listens for all sleepers of a process.

There is a channel for each reason to wake, so that the server wakes only those who need it. Behind a pooler there is no
session that could listen: then all sleepers are woken every 5 to 250 ms, less and less often while nothing happens, and
look for work themselves.
"""

import threading

import psycopg

from tarry.errors import TarryError
from tarry.model.wake import WakeReason
from tarry.store.ids import uuid7
from tarry.store.postgres.connection import PostgresConnection, connect
from tarry.store.postgres.notify import NotifySender, channel
from tarry.store.postgres.pool import PostgresPool
from tarry.store.shared.wakeup.hub import WakeupHub, WakeupTransport
from tarry.store.shared.wakeup.listener import WakeupListener
from tarry.store.shared.wakeup.sleeper import heard_reasons

POLL_FROM, POLL_TO = 0.005, 0.25
"""Seconds."""


class PostgresHub(WakeupHub):
    """The sleepers of one store in this process; also tells other processes."""

    def __init__(self, connections: PostgresPool) -> None:
        super().__init__(self._create_listener if connections.url.notify else PollingTransport)
        self._connections = connections
        # A process hears its own NOTIFY, too. By this token it knows them: its sleepers are woken already.
        self._token = uuid7().hex()
        self._sender = NotifySender(connections, self._token) if connections.url.notify else None

    def _create_listener(self, hub: WakeupHub) -> WakeupTransport:
        return NotifyListener(hub, self._connections, self._token)

    def reserve(self, reason: WakeReason) -> tuple[str | None, str]:
        """Channel and token; no channel if the transaction that makes the news must not send it itself."""
        may = self._sender is not None and self._sender.try_reserve(reason)
        return (channel(self._connections.url.schema, reason) if may else None, self._token)

    def notify(self, *reasons: WakeReason, is_sent: bool = False) -> None:
        """Wakes sleepers for these reasons: here at once, elsewhere soon. is_sent: the others are told already."""
        self.wake(*reasons)
        self.poll_often()
        if self._sender is not None and not is_sent:
            self._sender.send(reasons)

    def poll_often(self) -> None:
        """Makes a polling transport poll more often again."""
        # Something happened here, so more is likely to come.
        if isinstance(self.transport, PollingTransport):
            self.transport.poll_often()

    def close(self) -> None:
        if self._sender is not None:
            self._sender.close()
        super().close()


class NotifyListener(WakeupListener):
    """Subscribes by LISTEN. token: what this process sends with its own news."""

    lost_by = (psycopg.Error, TarryError)

    def __init__(self, hub: WakeupHub, connections: PostgresPool, token: str) -> None:
        super().__init__("tarry-wakeup", hub, connections.url.timeout)
        self._url, self._token = connections.url, token

    def subscribe(self, topic: str) -> None:
        self.subscribe_to(self._channels(topic))

    def is_receiving(self, topic: str) -> bool:
        return self.heard.issuperset(self._channels(topic))

    def _channels(self, topic: str) -> set[str]:
        return {channel(self._url.schema, reason) for reason in heard_reasons(topic)}

    def listen(self) -> None:
        link = connect(self._url)
        try:
            # The driver takes notices that come while a command runs; `_take` would not see them.
            link.add_notify_handler(lambda notice: self._receive(notice.channel, notice.payload))
            while not self.is_closed:
                if new := self.wanted - self.heard:
                    link.run("; ".join(f"LISTEN {name}" for name in sorted(new)))
                    self.confirm(new)
                self.poll(link.pgconn.socket)
                self._take(link)
        finally:
            link.discard()

    def _take(self, link: PostgresConnection) -> None:
        link.pgconn.consume_input()
        while (notice := link.pgconn.notifies()) is not None:
            self._receive(notice.relname.decode(errors="replace"), notice.extra.decode(errors="replace"))

    def _receive(self, name: str, token: str) -> None:
        if token != self._token:
            self.hub.wake(WakeReason(name[-1:]))


class PollingTransport:
    """Wakes all sleepers, less and less often."""

    def __init__(self, hub: WakeupHub) -> None:
        self._hub = hub
        self._pause = POLL_FROM
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="tarry-wakeup", daemon=True)
        self._thread.start()

    def subscribe(self, topic: str) -> None:
        """All are woken, whatever they listen to."""

    def is_receiving(self, topic: str) -> bool:
        """All are woken, whatever they listen to."""
        return True

    def poll_often(self) -> None:
        """Begins anew with short pauses."""
        self._pause = POLL_FROM

    def close(self) -> None:
        """Ends the thread: nobody is woken any more."""
        with self._hub.lock:
            self._closed = True
            self._hub.changed.notify_all()
        # A thread cannot wait for its own end.
        if self._thread is not threading.current_thread():
            self._thread.join(timeout=5)

    def _run(self) -> None:
        changed = self._hub.changed
        while not self._closed:
            with changed:
                # Without sleepers there is nothing to do, and no reason to wake the processor.
                changed.wait_for(lambda: self._closed or self._hub.has_sleepers())
                changed.wait_for(lambda: self._closed, self._pause)
            self._pause = min(POLL_TO, self._pause * 2)
            self._hub.wake_all()
