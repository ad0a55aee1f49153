"""The connections of the beanstalk door, and its listener."""

import logging
import socket
import time
from collections.abc import Sequence
from typing import cast

from tarry.errors import Busy, Draining, StoreError
from tarry.server.beanstalk.client_session import Session
from tarry.server.beanstalk.command_parser import MAX_JOB_SIZE
from tarry.server.beanstalk.shared import BeanstalkDoor, Service
from tarry.server.connection_limits import Connections, peer_address, watch_peer
from tarry.server.identity.access import DoorAccess
from tarry.server.open_connections.activity import ENDS_WITHIN, Activity, next_number
from tarry.server.socket_listener import LeftToOthers, SocketListener, nothing_to_others
from tarry.tasks.lazy_asyncio import asyncio

log = logging.getLogger("tarry.server")

READ_AHEAD = 64 * 1024
"""Bytes that a client may send ahead of the command that is being done, besides a body."""
WRITE_AHEAD = 256 * 1024
"""Bytes of answers that a client may leave unread before no more commands of its are done."""
MAINTAINED_EVERY = 5.0
MOST_CONNECTIONS = 1024
CLOSES_WITHIN = 5.0
"""Seconds for the last answers when the door closes."""


class BeanstalkConnection(asyncio.Protocol):
    """One client. It may be idle for as long as it likes, if its host is there."""

    def __init__(self, listener: "BeanstalkListener") -> None:
        self._listener, self._door = listener, listener.door
        self._transport: asyncio.Transport | None = None
        self._session: Session | None = None
        self.address = ""
        self._is_reading = True
        self.number, self.since, self.received, self.sent = next_number(), time.time(), 0, 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio's: a client came."""
        # uvloop's transports have its methods, but are none of its subclasses.
        self._transport = stream = cast("asyncio.Transport", transport)
        self.address = peer_address(stream)
        if not self._listener.connections.admit(self.address):
            # The protocol has no word for it: a closed door.
            stream.abort()
            return
        self._listener.opened(self)
        watch_peer(stream)
        stream.set_write_buffer_limits(WRITE_AHEAD)
        self._session = Session(self._door, self._write, stream.close, self.address)
        if self._listener.is_draining:
            # It was accepted just before: without this it would take jobs until it is cut off amid one.
            self._session.drain()

    def data_received(self, data: bytes) -> None:
        """asyncio's: bytes came."""
        if self._session is None or self._transport is None:
            return
        self.received += len(data)
        self._session.feed(data)
        if self._is_reading and self._session.buffered > self._most_buffered:
            self._is_reading = False
            self._transport.pause_reading()

    def eof_received(self) -> bool:
        """asyncio's: the client sends nothing more."""
        if self._session is not None:
            self._session.half_close()
        # True: the connection stays open for the answers, and the session closes it.
        return self._session is not None

    def pause_writing(self) -> None:
        """asyncio's: too many answers wait."""
        if self._session is not None:
            self._session.hold_up(True)

    def resume_writing(self) -> None:
        """asyncio's: the client has read."""
        if self._session is not None:
            self._session.hold_up(False)

    def connection_lost(self, error: Exception | None) -> None:
        """asyncio's: the connection is gone."""
        if self._session is not None:
            self._session.end()
            self._listener.connections.leave(self.address)
            self._listener.closed(self)
        self._session = None

    def drain(self) -> None:
        """Ends the connection as soon as its client has nothing reserved."""
        if self._session is not None:
            self._session.drain()

    def close(self) -> None:
        """Ends the connection once the answers that were given are sent."""
        if self._transport is not None:
            self._transport.close()

    @property
    def caller_name(self) -> str:
        """See `OpenConnection`."""
        session = self._session
        return "" if session is None else session.caller_name

    def activity(self) -> Activity:
        """See `OpenConnection`."""
        session = self._session
        return Activity("idle") if session is None else session.activity()

    def end(self, asked_by: object = None) -> None:
        """See `OpenConnection`: its client has no requests that ask for this."""
        if self._session is not None and self._transport is not None:
            # At once: a client that reads nothing would keep its jobs for as long as the transport waits for it.
            self._session.end()
            self._transport.close()
            self._door.loop.call_later(ENDS_WITHIN, self._transport.abort)

    @property
    def _most_buffered(self) -> int:
        return READ_AHEAD + self._door.max_job_size

    def _write(self, answer: bytes) -> None:
        if self._transport is None or self._session is None:
            return
        self.sent += len(answer)
        self._transport.write(answer)
        if not self._is_reading and self._session.buffered <= self._most_buffered:
            self._is_reading = True
            self._transport.resume_reading()


class BeanstalkListener:
    """All connections of the door in this process."""

    def __init__(self, door: BeanstalkDoor, connections: Connections) -> None:
        self.door, self.connections = door, connections
        self._listeners: list[SocketListener] = []
        self._open: set[BeanstalkConnection] = set()
        self._maintenance: asyncio.Task[None] | None = None
        self.is_draining = False
        """Whether connections end as soon as their clients have nothing reserved."""

    async def start(self, sockets: Sequence[socket.socket], backlog: int, left_to_others: LeftToOthers) -> None:
        """Accepts at these sockets."""
        await self._maintain()
        self._maintenance = self.door.loop.create_task(self._maintain_all())
        for listening in sockets:
            listener = SocketListener(listening, lambda: BeanstalkConnection(self), self.connections, left_to_others)
            listener.start(backlog)
            self._listeners.append(listener)

    def stop_listening(self) -> None:
        """Takes no more connections; those that there are go on."""
        for listener in self._listeners:
            listener.close()

    async def drain(self, seconds: float) -> None:
        """Takes no more connections, and ends each once its client has nothing reserved; all of them after so long."""
        self.stop_listening()
        self.is_draining = True
        for connection in list(self._open):
            connection.drain()
        await asyncio.gather(*(listener.finish(seconds) for listener in self._listeners))
        await self._wait_until_gone(seconds)
        await self.close()

    async def close(self) -> None:
        """Ends the connections: what they had reserved is given back. Returns when they are gone."""
        self.stop_listening()
        self.door.is_draining = True
        if self._maintenance is not None:
            self._maintenance.cancel()
        for connection in list(self._open):
            connection.close()
        await self._wait_until_gone(CLOSES_WITHIN)

    def opened(self, connection: BeanstalkConnection) -> None:
        """A client came."""
        self._open.add(connection)

    def closed(self, connection: BeanstalkConnection) -> None:
        """A client is gone."""
        self._open.discard(connection)

    def listed(self) -> list[BeanstalkConnection]:
        """Those that are open. In any thread."""
        return list(self._open)

    async def _wait_until_gone(self, seconds: float) -> None:
        end = self.door.loop.time() + seconds
        while self._open and self.door.loop.time() < end:
            await asyncio.sleep(0.01)

    async def _maintain_all(self) -> None:
        while True:
            await asyncio.sleep(MAINTAINED_EVERY)
            await self._maintain()

    async def _maintain(self) -> None:
        """Asks the store for its time and for numbers, and resumes the tubes of processes that are gone."""
        try:
            await self.door.maintain()
        except (StoreError, Busy, Draining) as error:
            # Puts are told to come again until the store is back.
            log.warning("beanstalk: %s", error)
        except Exception:
            # Without this task, puts would be refused once the numbers of the process run out.
            log.exception("beanstalk: its upkeep failed")


async def start_beanstalk(
    service: Service,
    sockets: Sequence[socket.socket],
    *,
    connections: Connections | None = None,
    max_job_size: int = MAX_JOB_SIZE,
    backlog: int = MOST_CONNECTIONS,
    left_to_others: LeftToOthers = nothing_to_others,
    access: DoorAccess | None = None,
) -> BeanstalkListener:
    """Serves the protocol on sockets that listen already; StoreError.

    max_job_size: bytes of a job's body. backlog, left_to_others: of `SocketListener`. access: knows the tokens that
    clients have to send; None: they need none.
    """
    await service.start()
    door = BeanstalkDoor(service, asyncio.get_running_loop(), max_job_size=max_job_size, access=access)
    listener = BeanstalkListener(door, connections or Connections(MOST_CONNECTIONS))
    await listener.start(sockets, backlog, left_to_others)
    return listener
