"""Wake-up. The processes of one user on one host use a board, as for a SQLite file: it wakes one worker and not one of
each process, and no session of the server. Others use LISTEN and NOTIFY: from the first sleeper on, one connection
listens for all sleepers of a process.

There is a channel for each reason to wake, so that the server wakes only those who need it. Behind a pooler there is no
session that could listen: then all sleepers are woken every 5 to 250 ms, less and less often while nothing happens, and
look for work themselves.
"""

import logging
import threading
from collections.abc import Callable

import psycopg

from tarry.errors import TarryError
from tarry.model.wake import WakeReason
from tarry.store.postgres.link.connection import PostgresConnection, connect
from tarry.store.postgres.link.pool import PostgresPool
from tarry.store.postgres.link.url import PostgresUrl
from tarry.store.postgres.notify import NotifySender, channel
from tarry.store.rules.ids import uuid7
from tarry.store.rules.sleeper import Wakeup, heard_reasons
from tarry.store.shared.backoff import TurnGuard
from tarry.store.shared.wakeup.board import WakeupBoard
from tarry.store.shared.wakeup.board_directory import BoardDirectory
from tarry.store.shared.wakeup.hub import HubWakeup, WakeupHub, WakeupTransport
from tarry.store.shared.wakeup.listener import WakeupListener

log = logging.getLogger("tarry.store")

POLL_FROM, POLL_TO = 0.005, 0.25
"""Seconds."""


class PostgresWakeup(HubWakeup):
    """A sleeper of a hub that is on the board of its host, too."""

    def __init__(self, hub: WakeupHub, board: Wakeup) -> None:
        super().__init__(hub)
        self._board = board

    def listen(self, topic: str) -> None:
        self._board.listen(topic)
        super().listen(topic)

    def ignore(self) -> None:
        self._board.ignore()
        super().ignore()

    def filenos(self) -> list[int]:
        return [*super().filenos(), *self._board.filenos()]

    def clear(self) -> bytes:
        woken = self._board.clear()
        if woken:
            # It is awake: the next news must wake another sleeper, by the hub as by the board.
            super().ignore()
        return woken + super().clear()

    def close(self) -> None:
        super().close()
        self._board.close()


class HostBoard:
    """The board of this host for one schema."""

    def __init__(self, url: PostgresUrl) -> None:
        where = [str(url.connect.get(name)) for name in ("host", "hostaddr", "port", "service", "dbname", "user")]
        self._directory = BoardDirectory("\0".join(("postgresql", *where, url.schema)))
        self.path = self._directory.path
        self._board = WakeupBoard(self.path)
        # One that a signal handler of the same thread may enter again.
        self._waking = threading.RLock()
        self._name: str | None = None

    def wakeup(self) -> Wakeup | None:
        """A new sleeper on the board; None: there can be no board here."""
        if not self._directory.create() or self._directory.name(create=True) is None:
            return None
        self._directory.touch()
        return self._board.wakeup()

    def name(self) -> str | None:
        """The name by which others know the board; None: no process here has ever slept."""
        self._name = self._name or self._directory.name()
        return self._name

    def wake(self, *reasons: WakeReason) -> bool:
        """Wakes sleepers. False: nobody sleeps for these reasons."""
        with self._waking:
            return self._board.wake(*reasons)

    def has_sleepers(self, reason: WakeReason) -> bool:
        """Whether anybody on this host sleeps for this reason."""
        return self._board.has_sleepers(reason)

    def close(self) -> None:
        """Releases the board."""
        with self._waking:
            self._board.close()


class PostgresHub(WakeupHub):
    """The sleepers of one store in this process; also tells other processes."""

    def __init__(self, connections: PostgresPool) -> None:
        super().__init__(self._create_listener if connections.url.notify else PollingTransport)
        self._connections = connections
        self._board = HostBoard(connections.url)
        # A process hears its own NOTIFY, too. By this token it knows them: its sleepers are woken already.
        self._own_token = uuid7().hex()
        self._sender = NotifySender(connections, self._token, self._board.wake) if connections.url.notify else None

    def _create_listener(self, hub: WakeupHub) -> WakeupTransport:
        return NotifyListener(hub, self._connections, self._is_told)

    def _token(self) -> str:
        return self._board.name() or self._own_token

    def _is_told(self, token: str) -> bool:
        """Whether the sleepers here were woken by who sent this token."""
        return token in (self._own_token, self._board.name())

    def wakeup(self) -> Wakeup:
        on_board = self._board.wakeup() if self._connections.url.notify else None
        return super().wakeup() if on_board is None else PostgresWakeup(self, on_board)

    def reserve(self, reason: WakeReason) -> tuple[str | None, str]:
        """Channel and token; no channel if the transaction that makes the news must not send it itself."""
        if self._sender is None or self._board.has_sleepers(reason) or not self._sender.try_reserve(reason):
            return None, ""
        return channel(self._connections.url.schema, reason), self._token()

    def notify(self, *reasons: WakeReason, is_sent: bool = False) -> None:
        """Wakes sleepers for these reasons: here at once, elsewhere soon. is_sent: other hosts are told already."""
        self.wake(*reasons)
        self.poll_often()
        if is_sent:
            self._board.wake(*reasons)
        elif self._sender is not None:
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
        self._board.close()


class NotifyListener(WakeupListener):
    """Subscribes by LISTEN. is_told: whether news with this token were told here without the server."""

    lost_by = (psycopg.Error, TarryError)

    def __init__(self, hub: WakeupHub, connections: PostgresPool, is_told: Callable[[str], bool]) -> None:
        super().__init__("tarry-wakeup", hub, connections.url.timeout)
        self._url, self._is_told = connections.url, is_told

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
        if not self._is_told(token):
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
        changed, guard = self._hub.changed, TurnGuard(log, "waking those who sleep")
        while not self._closed:
            with guard:
                with changed:
                    # Without sleepers there is nothing to do, and no reason to wake the processor.
                    changed.wait_for(lambda: self._closed or self._hub.has_sleepers())
                    changed.wait_for(lambda: self._closed, self._pause)
                self._pause = min(POLL_TO, self._pause * 2)
                self._hub.wake_all()
