"""The connections of the HTTP door: uvicorn's protocol, with bounds on all that a client may do."""

import logging
import re
from collections import deque
from collections.abc import Mapping
from email.utils import formatdate
from typing import Any

import httptools
import msgspec
from msgspec import Struct
from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE
from uvicorn.server import ServerState

from tarry.errors import Busy
from tarry.operate.problem import RequestError
from tarry.server.connection_limits import Connections, has_addresses, peer_address, watch_peer
from tarry.server.http.joined_writes import JoinedWrites
from tarry.server.http.listed_connection import ListedConnection
from tarry.server.http.problem import MEDIA_TYPE, problem_of
from tarry.server.open_connections.activity import ENDS_WITHIN
from tarry.tasks.lazy_asyncio import asyncio

MOST_HEAD, MOST_HEADERS = 64 * 1024, 100
"""Bytes and lines of the head of a request."""
PROGRESS = 64 * 1024
"""Bytes of a body that have to come within the time in which a head has to."""
HEAD_GRACE = 1.0
"""Seconds that a head has before its connection may be ended, to make room for another."""
SWEEP = 1.0
"""Seconds between two looks for connections whose time is over."""
MOST_REFUSED, REFUSED_FOR = 1000, 1.0
"""Refused connections that are kept, for so many seconds, until their clients have read why: what a client had sent
and nobody read would make the kernel take back the answer."""
LINGER = 3.0
"""Seconds for which an idle connection is kept while the server ends: its client may just be sending a request, and is
then told to use another connection for the next."""
PUTS = b"/v1/jobs"
_PUT_LINE = b"POST /v1/jobs HTTP/1.1\r\n"
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d{1,9})[ \t]*\r\n", re.IGNORECASE)
_CLOSES = re.compile(rb"\r\nconnection:[^\r\n]*close", re.IGNORECASE)
_BUSY = Busy("this server has as many puts as it can store: try again")
_NEVER = float("inf")

log = logging.getLogger("tarry.server")


class HttpLimits(Struct, frozen=True):
    """Seconds that a client may take."""

    read_timeout: float = 15.0
    """For the head of a request, and for each 64 KB of its body."""
    keep_alive: float = 60.0
    """Between two requests."""


class HttpConnections:
    """All HTTP connections of a process, on one event loop."""

    def __init__(self, application: Any, connections: Connections, limits: HttpLimits, most_puts: int = 256) -> None:
        """most_puts: how many whole ones may be under way; any more are told at once that the server is busy."""
        self.connections, self.limits, self.most_puts = connections, limits, most_puts
        self.puts = self.shed = 0
        """Puts that have come whole and are not answered, and those that were told that the server is busy, before
        anything else was done for them."""
        self.busy_answer, self.last_busy_answer = _response(_BUSY, "keep-alive"), _response(_BUSY)
        self.config = Config(
            application,
            http=HttpConnection,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            server_header=False,
            # Behind a proxy the address is the proxy's: whoever sends a header must not choose another.
            proxy_headers=False,
            timeout_keep_alive=round(limits.keep_alive) or 1,
        )
        self.config.load()
        self.state = ServerState()
        self.is_draining = False
        self.invalid = self.late = 0
        """Requests that were no HTTP or too large, and those that did not come in time."""
        self.unfinished: dict[HttpConnection, float] = {}
        """When the head began of those whose head has not come whole, in the loop's time; the oldest first."""
        connections.make_room = self._drop_slowest
        self.refused_open = 0
        """Connections that were refused, and are not closed yet."""
        self._sweeper: asyncio.TimerHandle | None = None

    @property
    def requests(self) -> int:
        """How many were answered since the process began."""
        return self.state.total_requests

    @property
    def in_flight(self) -> int:
        """How many are being answered."""
        return len(self.state.tasks)

    def make_connection(self) -> "HttpConnection":
        """The protocol of a new connection."""
        return HttpConnection(self)

    def start(self) -> None:
        """Begins to end connections whose time is over."""
        self._sweep()

    def drain(self) -> None:
        """From now on each answer says that its connection ends."""
        self.is_draining = True
        for connection in self._all():
            connection.drain()

    async def wait_until_gone(self, seconds: float) -> int:
        """Waits until all connections are gone; returns how many were still there after so long, and ends these."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while self.state.connections and loop.time() < end:
            await asyncio.sleep(0.02)
        left = self._all()
        for connection in left:
            connection.abort()
        if self._sweeper is not None:
            self._sweeper.cancel()
        return sum(connection.is_busy for connection in left)

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        self._sweeper = loop.call_later(SWEEP, self._sweep)
        # RFC 9110 wants it in each answer.
        self.state.default_headers = [(b"date", formatdate(usegmt=True).encode())]
        now = loop.time()
        for connection in self._all():
            connection.check_time(now)

    def _drop_slowest(self, address: str) -> bool:
        # Or clients that never end their heads would keep out all others, for as long as each may take.
        slowest = next((one for one in self.unfinished if address in ("", one.address)), None)
        # Or many that come at once would push out each other, before their heads are even read.
        if slowest is None or asyncio.get_running_loop().time() - self.unfinished[slowest] < HEAD_GRACE:
            return False
        slowest.give_way()
        return True

    def listed(self) -> "list[HttpConnection]":
        """Those that are open. In any thread."""
        return [one for one in self._all() if one.is_admitted]

    def _all(self) -> "list[HttpConnection]":
        return [one for one in list(self.state.connections) if isinstance(one, HttpConnection)]


class HttpConnection(ListedConnection):
    """One client."""

    def __init__(self, door: HttpConnections) -> None:
        super().__init__(door.config, door.state)
        self._door = door
        # Its warnings about wrong requests could fill a disk: such requests are counted instead.
        self.logger = log
        self._is_admitted = self._is_refused = False
        self._is_shed, self._is_between, self._is_last = False, True, False
        self._is_put = False
        self._head = self._progress = 0
        self._deadline = _NEVER
        self._are_puts: deque[bool] = deque()
        """Whether each request that is not answered is a put, and whole."""

    @property
    def is_admitted(self) -> bool:
        """Whether it counts among the open ones."""
        return self._is_admitted

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """asyncio's: a client came."""
        transport = JoinedWrites(transport, self.loop)
        address = peer_address(transport)
        if not self._door.connections.admit(address):
            self.transport = transport
            self._refuse(Busy("this server has as many connections as it takes: try again"))
            return
        self._is_admitted, self.address = True, address
        watch_peer(transport)
        super().connection_made(transport)
        if self.client is None and has_addresses(transport):
            # It reset the connection: its request must not count as one by a unix socket, which a proxy may have.
            transport.abort()
        self._door.unfinished[self] = self.loop.time()
        self._deadline = self.loop.time() + self._door.limits.read_timeout
        if self._door.is_draining:
            self.drain()

    def connection_lost(self, exc: Exception | None) -> None:
        """asyncio's: the connection is gone."""
        self._leave()
        self._door.refused_open -= self._is_refused
        self._door.puts -= sum(self._are_puts)
        self._are_puts.clear()
        super().connection_lost(exc)

    def give_way(self) -> None:
        """The head of its request has not come whole, and another client wants its place."""
        self._leave()
        self._door.late += 1
        self._refuse(RequestError("the request did not arrive in time, and others wait", None, 408))

    def _leave(self) -> None:
        self._door.unfinished.pop(self, None)
        if self._is_admitted:
            self._is_admitted = False
            self._door.connections.leave(self.address)

    def data_received(self, data: bytes) -> None:
        """asyncio's: bytes came."""
        if self._is_refused or self.parser is None or self.transport.is_closing():
            return
        self.received += len(data)
        if self._door.puts >= self._door.most_puts and self._is_between and not self.is_busy and _is_one_put(data):
            self._end_shed()
            return
        begins_head = self.is_in_head or self._is_between
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # No other protocol is spoken here: the request is answered as if it had not asked.
            return
        except httptools.HttpParserError as error:
            self._head += len(data) * begins_head
            self._refuse_head(error)
            return
        # Not what follows the rest of a body: that may be long without being a head.
        self._head += len(data) * begins_head
        if self.is_in_head and (self._head > MOST_HEAD or len(self.headers) > MOST_HEADERS):
            self._refuse_head(None)

    def _refuse_head(self, error: httptools.HttpParserError | None) -> None:
        self._door.invalid += 1
        # What a callback raised.
        cause = None if error is None else error.__context__
        if isinstance(cause, RequestError):
            self._refuse(cause)
        # A URL that is too long is none to the parser.
        elif self._head > MOST_HEAD or len(self.headers) > MOST_HEADERS:
            said = f"the head takes more than {MOST_HEAD} bytes or {MOST_HEADERS} lines"
            self._refuse(RequestError(said, "headers", 431))
        else:
            self._refuse(RequestError("this is no HTTP/1.1"))

    def on_message_begin(self) -> None:
        """httptools': a request begins."""
        super().on_message_begin()
        self._unset_keepalive_if_required()
        self.is_in_head, self._is_between, self._head = True, False, 0
        self._door.unfinished.setdefault(self, self.loop.time())
        self._deadline = self.loop.time() + self._door.limits.read_timeout

    def on_headers_complete(self) -> None:
        """httptools': the head is whole."""
        door = self._door
        # As RFC 9112 asks: with two of them a proxy may have looked at the other one.
        hosts = sum(name == b"host" for name, _ in self.headers)
        if hosts > 1 or (hosts == 0 and self.parser.get_http_version() != "1.0"):
            raise RequestError(f"the head has {hosts} lines with Host: send one", "Host")
        self.is_in_head, self._progress = False, 0
        door.unfinished.pop(self, None)
        is_put = self.url == PUTS and self.parser.get_method() == b"POST"
        if is_put and door.puts >= door.most_puts and not self.is_busy and not self.expect_100_continue:
            self._is_shed = True
            self._is_last = self.parser.get_http_version() == "1.0" or not self.parser.should_keep_alive()
            return
        self._is_put = is_put
        self._are_puts.append(False)
        super().on_headers_complete()
        if door.is_draining:
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        """httptools': a part of the body came."""
        if not self._is_shed:
            super().on_body(body)
        self._progress += len(body)
        if self._progress >= PROGRESS:
            self._progress = 0
            self._deadline = self.loop.time() + self._door.limits.read_timeout

    def on_message_complete(self) -> None:
        """httptools': the request is whole."""
        self._is_between = True
        if self._is_shed:
            self._end_shed()
            return
        # Not from its head on: clients that send no bodies would keep all others from putting. It may be answered now.
        if self._is_put and self._are_puts:
            self._are_puts[-1] = True
            self._door.puts += 1
        super().on_message_complete()
        self._deadline = _NEVER

    def on_response_complete(self) -> None:
        """uvicorn's: the request is answered."""
        # Of a client that is gone there is nothing left: it had sent more requests, of which this was the first.
        self._door.puts -= self._are_puts.popleft() if self._are_puts else 0
        super().on_response_complete()
        # Besides uvicorn's own timer, which any byte stops, also one that begins no request.
        if self._deadline is _NEVER and not self.pipeline:
            self._deadline = self.loop.time() + self._door.limits.keep_alive + SWEEP

    def _end_shed(self) -> None:
        # Without a task, a scope or a decoded body: what is refused must cost little, or refusing would take the time
        # of what is held.
        self._is_shed = False
        self._door.shed += 1
        if self._is_last or self._door.is_draining:
            # Its client reads to the end of the connection, or is to come again through another process.
            self.transport.write(self._door.last_busy_answer)
            self.transport.close()
            return
        self.transport.write(self._door.busy_answer)
        self._deadline = self.loop.time() + self._door.limits.keep_alive

    def drain(self) -> None:
        """The answer to the next request, or to the one under way, is the last on this connection."""
        if self.is_busy:
            self.cycle.keep_alive = False
        else:
            self._deadline = min(self._deadline, self.loop.time() + LINGER)

    def abort(self) -> None:
        """Ends the connection now."""
        self.transport.abort()

    def end(self, asked_by: object = None) -> None:
        """See `OpenConnection`."""
        if asked_by is not None and asked_by is self.noted:
            self.drain()
            return
        self.act_as_if_gone()
        self.transport.close()
        # A client that reads nothing would keep it open for ever.
        self.loop.call_later(ENDS_WITHIN, self.transport.abort)

    def check_time(self, now: float) -> None:
        """Ends the connection if its client took too long."""
        if now < self._deadline or self._is_refused or self.transport.is_closing():
            return
        if self.flow.read_paused:
            # It is we who do not read.
            self._deadline = now + self._door.limits.read_timeout
        elif self.is_busy or self.is_in_head:
            self._door.late += 1
            self._refuse(RequestError("the request did not arrive in time", None, 408))
        else:
            self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """uvicorn's: the request cannot be understood."""
        self._refuse(RequestError(msg))

    def _refuse(self, error: Exception) -> None:
        # Within an answer that has begun, another would be taken for a part of it.
        if self.is_busy and self.cycle.response_started:
            self.transport.close()
            return
        self.transport.write(_response(error))
        self.act_as_if_gone()
        # They must not take the descriptors of those that are served.
        most = min(MOST_REFUSED, self._door.connections.most)
        if self._door.refused_open >= most or not self.transport.can_write_eof():
            self.transport.close()
            return
        self._is_refused, self._deadline = True, _NEVER
        self._door.refused_open += 1
        self.transport.write_eof()
        self.loop.call_later(REFUSED_FOR, self.transport.close)


def _is_one_put(data: bytes) -> bool:
    """Whether this is one whole put, and nothing besides. False: it may be one all the same."""
    if not data.startswith(_PUT_LINE):
        return False
    head = data.find(b"\r\n\r\n")
    if head < 0 or _CLOSES.search(data, 0, head):
        return False
    length = _LENGTH.search(data, 0, head + 2)
    return length is not None and len(data) == head + 4 + int(length[1])


def _response(error: Exception, connection: str = "close") -> bytes:
    problem = problem_of(error)
    body = msgspec.json.encode(problem)
    headers: Mapping[str, object] = {"content-type": MEDIA_TYPE, "content-length": len(body), "connection": connection}
    if problem.retry_after is not None:
        headers = {**headers, "retry-after": max(1, round(problem.retry_after))}
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return STATUS_LINE[problem.status] + lines.encode() + b"\r\n" + body
