"""Accepts connections with TLS: handshakes are bounded as connections are, in number and in time."""

import logging
import ssl
from collections.abc import Callable
from socket import AF_INET, AF_INET6, socket

from tarry.door.connections import Connections
from tarry.tasks.lazy_asyncio import asyncio

log = logging.getLogger("tarry.server")

MOST_AT_ONCE = 100
"""Connections that are accepted before the event loop does anything else."""
NO_FILE_PAUSE = 0.5
"""Seconds without accepting when the kernel has no descriptor left."""


class TlsListener:
    """Accepts at one socket. An event loop's own server would have any number of handshakes under way: its protocols
    hear of a connection only after its handshake.

    handshakes: counts and bounds them. timeout: seconds that one may take. Its methods are for the event loop's thread.
    """

    def __init__(
        self,
        listener: socket,
        make_protocol: Callable[[], asyncio.BaseProtocol],
        context: ssl.SSLContext,
        handshakes: Connections,
        timeout: float,
    ) -> None:
        self._listener, self._make_protocol, self._context = listener, make_protocol, context
        self._handshakes, self._timeout = handshakes, timeout
        self._is_closed = False
        self._under_way: set[asyncio.Task[None]] = set()

    def start(self, backlog: int) -> None:
        """Accepts from now on. backlog: how many connections may wait in the kernel."""
        self._listener.setblocking(False)
        self._listener.listen(backlog)
        self._resume()

    def close(self) -> None:
        """Accepts no more. Handshakes that are under way go on."""
        if not self._is_closed:
            self._is_closed = True
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()

    async def finish(self, seconds: float) -> None:
        """Returns once all handshakes have ended, or after so long. After `close`."""
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=seconds)

    def _resume(self) -> None:
        if not self._is_closed:
            asyncio.get_running_loop().add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        for _ in range(MOST_AT_ONCE):
            try:
                connected, peer = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                loop = asyncio.get_running_loop()
                log.warning("no connection is accepted for %g s: %s", NO_FILE_PAUSE, error)
                loop.remove_reader(self._listener)
                loop.call_later(NO_FILE_PAUSE, self._resume)
                return
            self._begin(connected, str(peer[0]) if connected.family in (AF_INET, AF_INET6) else "")

    def _begin(self, connected: socket, address: str) -> None:
        if not self._handshakes.admit(address):
            connected.close()
            return
        task = asyncio.get_running_loop().create_task(self._greet(connected, address))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _greet(self, connected: socket, address: str) -> None:
        """Does the handshake, after which the connection is the protocol's."""
        connected.setblocking(False)
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(
                self._make_protocol, connected, ssl=self._context, ssl_handshake_timeout=self._timeout
            )
        except (OSError, asyncio.TimeoutError) as error:
            # It is the client's affair: scanners, and clients without TLS, would fill the log.
            log.debug("no TLS with %s: %s", address, error)
        finally:
            self._handshakes.leave(address)
