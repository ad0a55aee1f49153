"""Accepts connections at one socket that several processes may share, as many as its process has room for."""

import logging
import math
import select
import ssl
import time
from collections.abc import Callable
from socket import AF_INET, AF_INET6, socket

from tarry.server.connection_limits import Connections
from tarry.tasks.lazy_asyncio import asyncio

log = logging.getLogger("tarry.server")

MOST_AT_ONCE = 100
"""Connections that are accepted before the event loop does anything else."""
NO_FILE_PAUSE = 0.5
"""Seconds without accepting when the kernel has no descriptor left."""
LOOK_EVERY = 0.1
"""Seconds between two looks of a full process whether other processes accept what waits."""

OTHERS_ACCEPT_WITHIN = 1.0
"""Seconds in which a process that has room accepts a connection that waits. If none does, all are full."""
GROWS_WITHIN = 15.0
"""Seconds for which a connection waits for processes that are still to come, as while their number follows the load."""

LeftToOthers = Callable[[float], bool]
"""Whether a connection that has waited for so many seconds, since this process is full, is left to other processes.
False: it is accepted, and told that there are too many."""


def nothing_to_others(waited: float) -> bool:
    """For a process that shares its sockets with no other."""
    return False


def leave_to_others(
    processes: int, count_ready: Callable[[], int], clock: Callable[[], float] = time.monotonic
) -> LeftToOthers:
    """For one of several processes. processes: the most that there may be. count_ready: how many accept now."""
    if processes == 1:
        return nothing_to_others
    seen_fewer = -math.inf

    def is_left(waited: float) -> bool:
        nonlocal seen_fewer
        if waited < OTHERS_ACCEPT_WITHIN:
            return True
        now = clock()
        if count_ready() < processes:
            seen_fewer = now
        # The last one that came has to accept what has waited for it.
        return waited < GROWS_WITHIN and now - seen_fewer < OTHERS_ACCEPT_WITHIN

    return is_left


class SocketListener:
    """Accepts at one socket while `connections` have room. An event loop's own server accepts whatever the number, and
    with TLS it would have any number of handshakes under way: its protocols hear of a connection only after that.

    Its methods are for the event loop's thread.
    """

    def __init__(
        self,
        listener: socket,
        make_protocol: Callable[[], asyncio.BaseProtocol],
        connections: Connections,
        left_to_others: LeftToOthers = nothing_to_others,
    ) -> None:
        """make_protocol: its protocol admits the connection to `connections`, or refuses it."""
        self._listener, self._make_protocol, self._connections = listener, make_protocol, connections
        self._left_to_others = left_to_others
        self._context: ssl.SSLContext | None = None
        self._handshakes, self._timeout = connections, 0.0
        self._is_closed = False
        self._next_look: asyncio.TimerHandle | None = None
        """Of a full process, which leaves what waits to others; None: it accepts."""
        self._queued_since = 0.0
        """Since when connections have waited at each look; 0: none waited at the last."""
        self._under_way: set[asyncio.Task[None]] = set()

    def use_tls(self, context: ssl.SSLContext, handshakes: Connections, timeout: float) -> None:
        """Before `start`. handshakes: counts and bounds them. timeout: seconds that one may take."""
        self._context, self._handshakes, self._timeout = context, handshakes, timeout

    def start(self, backlog: int) -> None:
        """Accepts from now on. backlog: how many connections may wait in the kernel."""
        self._listener.setblocking(False)
        self._listener.listen(backlog)
        self._connections.on_room(self._accept_again)
        self._watch()

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

    def _watch(self) -> None:
        if not self._is_closed:
            asyncio.get_running_loop().add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        for _ in range(MOST_AT_ONCE):
            if not self._connections.has_room and self._left_to_others(0.0):
                self._pause()
                return
            if not self._accept_one():
                return

    def _accept_one(self) -> bool:
        """False: no connection waits, or none can be had."""
        try:
            connected, peer = self._listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return False
        except OSError as error:
            loop = asyncio.get_running_loop()
            log.warning("no connection is accepted for %g s: %s", NO_FILE_PAUSE, error)
            loop.remove_reader(self._listener)
            # While it is paused, its next look comes anyway.
            loop.call_later(NO_FILE_PAUSE, self._watch_unless_paused)
            return False
        self._begin(connected, str(peer[0]) if connected.family in (AF_INET, AF_INET6) else "")
        return True

    def _watch_unless_paused(self) -> None:
        if self._next_look is None:
            self._watch()

    def _pause(self) -> None:
        """Leaves what waits in the kernel to other processes that accept at this socket."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._listener)
        self._queued_since = loop.time()
        self._next_look = loop.call_later(LOOK_EVERY, self._look)

    def _look(self) -> None:
        """Refuses what waits if no other process has accepted it for too long."""
        if self._is_closed:
            return
        loop = asyncio.get_running_loop()
        self._next_look = loop.call_later(LOOK_EVERY, self._look)
        if not _has_waiting(self._listener):
            self._queued_since = 0.0
        elif not self._queued_since:
            self._queued_since = loop.time()
        elif not self._left_to_others(loop.time() - self._queued_since):
            self._refuse_waiting()

    def _refuse_waiting(self) -> None:
        for _ in range(MOST_AT_ONCE):
            if not self._accept_one():
                return

    def _accept_again(self) -> None:
        if self._next_look is not None and self._connections.has_room:
            self._next_look.cancel()
            self._next_look = None
            self._watch()

    def _begin(self, connected: socket, address: str) -> None:
        is_tls = self._context is not None
        if is_tls and not self._handshakes.admit(address):
            connected.close()
            return
        self._connections.coming += 1
        task = asyncio.get_running_loop().create_task(self._greet(connected, address))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _greet(self, connected: socket, address: str) -> None:
        """Does the handshake, if there is one, after which the connection is the protocol's."""
        connected.setblocking(False)
        loop = asyncio.get_running_loop()
        context, timeout = self._context, None if self._context is None else self._timeout
        try:
            await loop.connect_accepted_socket(
                self._make_protocol, connected, ssl=context, ssl_handshake_timeout=timeout
            )
        except (OSError, asyncio.TimeoutError) as error:
            # It is the client's affair: scanners, and clients without TLS, would fill the log.
            log.debug("no connection with %s: %s", address, error)
        finally:
            if self._context is not None:
                self._handshakes.leave(address)
            self._connections.arrived()


def _has_waiting(listener: socket) -> bool:
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    return bool(poll.poll(0))
