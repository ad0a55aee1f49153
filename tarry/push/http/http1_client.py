"""Sends requests without TLS: what is written and when is known here, and so whether anything was sent.

Connections that wait for their next request. Each is for one origin at one address, whatever DNS says later.
"""

import asyncio
import time
from collections import OrderedDict
from functools import lru_cache

from tarry.push.http.failure import (
    FailureKind,
    RequestFailed,
    connect_failure,
    late_failure,
    sent_failure,
    unconnected_failure,
    unsent_failure,
)
from tarry.push.http.http1_connection import Http1Connection, system_error
from tarry.push.http.http1_parser import AnswerError, AnswerParser
from tarry.push.http.http_attempt import Hop, SendState
from tarry.push.http.response import MOST_BODY, HttpResponse

MOST_IDLE = 512
"""Idle connections that are kept; beyond these the one that has been idle for longest is closed."""
IDLE = 30.0
"""Seconds for which an idle connection is kept."""

Http1Key = tuple[str, str, int]
"""Host, address and port."""


class Http1Pool:
    """The connections of one event loop. Who has taken or opened one gives it back."""

    def __init__(self, most_idle: int = MOST_IDLE, idle: float = IDLE) -> None:
        self._most_idle, self._idle_limit = most_idle, idle
        self._idle: dict[Http1Key, list[Http1Connection]] = {}
        """The one that was used last is the last."""
        self._since: OrderedDict[Http1Connection, tuple[Http1Key, float]] = OrderedDict()
        """The idle ones and when they became it, in this order."""
        self._busy: set[Http1Connection] = set()
        self._opening: set[asyncio.Timeout] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def __len__(self) -> int:
        """How many are idle."""
        return len(self._since)

    def take(self, key: Http1Key) -> Http1Connection | None:
        """An idle connection, if there is one."""
        self._check_closed()
        idle = self._idle.get(key)
        while idle:
            # The last one, so that the first ones are closed if there are more than needed.
            connection = idle.pop()
            del self._since[connection]
            if connection.is_open:
                self._busy.add(connection)
                return connection
        return None

    async def open(self, key: Http1Key, limit: float) -> Http1Connection:
        """A new connection. TimeoutError after `limit` seconds; OSError; RequestFailed: the pool is closed."""
        timeout = asyncio.timeout(limit)
        self._opening.add(timeout)
        try:
            async with timeout:
                _, connection = await asyncio.get_running_loop().create_connection(Http1Connection, *key[1:])
        except TimeoutError:
            self._check_closed()
            raise
        finally:
            self._opening.discard(timeout)
        self._busy.add(connection)
        return connection

    def give_back(self, key: Http1Key, connection: Http1Connection) -> None:
        """Keeps it for the next request, if it is open."""
        self._busy.discard(connection)
        if self._closed:
            connection.close()
        if not connection.is_open:
            return
        loop = asyncio.get_running_loop()
        self._idle.setdefault(key, []).append(connection)
        self._since[connection] = (key, loop.time())
        if len(self._since) > self._most_idle:
            self._close_oldest()
        if self._timer is None:
            self._timer = loop.call_later(self._idle_limit, self._tick)

    async def close(self) -> None:
        """Closes all connections. Requests under way fail."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for timeout in self._opening:
            if not timeout.expired():
                timeout.reschedule(0)
        for connection in [*self._busy, *self._since]:
            connection.close()
        # Their sockets are closed by the loop's next round.
        await asyncio.sleep(0)

    def _check_closed(self) -> None:
        if self._closed:
            raise RequestFailed(FailureKind.LOCAL, "the sender is closed")

    def _close_oldest(self) -> None:
        connection, (key, _) = self._since.popitem(last=False)
        self._idle[key].remove(connection)
        connection.close()

    def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        before = loop.time() - self._idle_limit
        while self._since and next(iter(self._since.values()))[1] <= before:
            self._close_oldest()
        self._idle = {key: idle for key, idle in self._idle.items() if idle}
        self._timer = loop.call_later(self._idle_limit / 4, self._tick) if self._since else None


# Where a request without a body has to say so (RFC 9110, 8.6).
_ALWAYS_WITH_LENGTH = ("POST", "PUT", "PATCH")


class Http1Client:
    """The client of one event loop."""

    def __init__(self, agent: str) -> None:
        self._agent, self._pool = agent, Http1Pool()

    async def exchange(self, hop: Hop, address: str, state: SendState) -> HttpResponse:
        """One request and its answer. RequestFailed."""
        key = (hop.to.host, address, hop.to.port)
        began = time.monotonic()
        connection = self._pool.take(key) or await self._open(key, hop, state)
        try:
            await self._request(connection, hop, state, began)
        finally:
            self._pool.give_back(key, connection)
        return _response(connection.answer, state)

    async def close(self) -> None:
        """Fails requests under way and closes all connections."""
        await self._pool.close()

    async def _open(self, key: Http1Key, hop: Hop, state: SendState) -> Http1Connection:
        left, name = state.left(), state.describe(hop.to)
        try:
            return await self._pool.open(key, min(state.connect_timeout, left))
        except TimeoutError:
            # Redirects before this one may have taken most of the time.
            short = left < state.connect_timeout
            raise (unsent_failure(name, left) if short else unconnected_failure(name)) from None
        except OSError as error:
            raise connect_failure(name, system_error(error)) from None

    async def _request(self, connection: Http1Connection, hop: Hop, state: SendState, began: float) -> None:
        answer, left, data = connection.answer, state.left(), encode_head(hop, self._agent) + hop.body
        state.sent, state.connect = True, time.monotonic() - began
        try:
            await connection.request(data, hop.method, left)
        except TimeoutError:
            raise late_failure(state.describe(hop.to), left, answer.status) from None
        except AnswerError as error:
            raise sent_failure(error.kind, state.describe(hop.to), str(error), answer.status) from None
        finally:
            state.status = answer.status


def encode_head(hop: Hop, agent: str) -> bytes:
    """The head of a request. All of it was checked by `target`: there are no line ends in it."""
    to = hop.to
    lines = [f"{hop.method} {to.path} HTTP/1.1\r\nHost: {to.authority}"]
    lines += [f"{_title(name)}: {value}" for name, value in hop.headers]
    names = [name for name, _ in hop.headers]
    if "user-agent" not in names:
        lines.append(f"User-Agent: {agent}")
    if "accept" not in names:
        lines.append("Accept: */*")
    if hop.body or hop.method in _ALWAYS_WITH_LENGTH:
        lines.append(f"Content-Length: {len(hop.body)}")
    lines.append("\r\n")
    return "\r\n".join(lines).encode("ascii")


@lru_cache(1024)
def _title(name: str) -> str:
    # Some old servers know no other spelling.
    return "-".join([word.capitalize() for word in name.split("-")])


def _response(answer: AnswerParser, state: SendState) -> HttpResponse:
    body = answer.body()
    return HttpResponse(
        answer.status,
        answer.headers(),
        body[:MOST_BODY],
        len(body) > MOST_BODY,
        state.elapsed(),
        state.connect,
        state.address,
        answer.version,
        state.url,
    )
