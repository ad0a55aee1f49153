"""Sends requests with TLS, by HTTP/2 where the server offers it: the HTTP library does both.

The library does not say when it has sent a request. It reads the body from a gate when it is connected.

The body of a request. The HTTP library reads it once it is connected.

So it is known when that was and whether anything can have been sent. A request that is cancelled before is not sent.

Translates the HTTP library's errors.

Its classes do not tell connecting from sending, so the chain of causes has to.

A pool of HTTP clients for TLS. Each is pinned to one origin at one address, whatever DNS says later.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Self

from msgspec import Struct
from pyreqwest.client import Client, ClientBuilder
from pyreqwest.exceptions import (
    ClientClosedError,
    DecodeError,
    DetailedPyreqwestError,
    PyreqwestError,
    RequestTimeoutError,
)
from pyreqwest.response import Response

from tarry.push.http.daemon_thread import run_in_thread
from tarry.push.http.failure import (
    FailureKind,
    RequestFailed,
    connect_failure,
    late_failure,
    sent_failure,
    unconnected_failure,
    unsent_failure,
)
from tarry.push.http.http_attempt import Hop, SendState
from tarry.push.http.response import MOST_BODY, MOST_HEAD, Headers, HttpResponse


class BodyGate:
    """The HTTP library's thread calls `read`, the event loop's thread the rest."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._closed = False
        self.sent_at = 0.0
        """When the body was handed over, by the monotonic clock; 0: it was not."""

    def read(self) -> Iterator[bytes]:
        """The body, in one piece."""
        # No lock is needed: each thread sets its own flag before it reads that of the other, so at least one sees the
        # other.
        self.sent_at = time.monotonic()
        if self._closed:
            self.sent_at = 0.0
            raise InterruptedError("it is not wanted any more")
        yield self._body

    def close(self) -> None:
        """From now on `read` refuses: a body that was not sent yet never is."""
        self._closed = True


_VERSIONS = {"HTTP/1.0": "1.0", "HTTP/1.1": "1.1", "HTTP/2.0": "2"}


class TlsClient:
    """The client of one event loop."""

    def __init__(self, trust: bytes, agent: str) -> None:
        """trust: certificates (PEM) that are trusted besides the system's."""
        self._clients = ClientPool(client_builder(trust, agent))

    async def exchange(self, hop: Hop, address: str, state: SendState) -> HttpResponse:
        """One request and its answer. RequestFailed."""
        key = ClientKey(hop.to.host, address, hop.to.port, state.connect_timeout)
        with self._clients.get(key) as pooled:
            client = pooled.client or await self._clients.wait_ready(pooled, state.left())
            try:
                return await _exchange_once(client, hop, state)
            except RequestFailed as failed:
                if failed.kind is not FailureKind.CLOSED or failed.sent:
                    raise
            # The server promised that it did not begin (HTTP/2: REFUSED_STREAM). If a kept connection was closed before
            # the body was read, the HTTP library has sent the request again itself.
            return await _exchange_once(client, hop, state)

    async def close(self) -> None:
        """Fails requests under way and closes all connections."""
        await self._clients.close()


async def _exchange_once(client: Client, hop: Hop, state: SendState) -> HttpResponse:
    left, status, began = state.left(), 0, time.monotonic()
    building = client.request(hop.method, hop.to.url).headers(hop.headers).streamed_read_buffer_limit(0)
    gate = BodyGate(hop.body) if hop.body else None
    if gate is not None:
        # Without a length the body would go out in chunks.
        building = building.header("content-length", str(len(hop.body))).body_stream(gate.read())
    elif hop.method not in ("GET", "HEAD"):
        building = building.body_bytes(b"")
    try:
        async with building.timeout(timedelta(seconds=left)).build_streamed() as response:
            status = response.status
            # One byte more shows whether there is more.
            body = await response.body_reader.read(MOST_BODY + 1) or b""
            return _answer(response, bytes(body), state, _connect_time(gate, began))
    except PyreqwestError as error:
        if status:
            raise broken_body_error(error, status, state.describe(hop.to)) from None
        raise no_answer_error(error, left, state.describe(hop.to), gate is None or gate.sent_at > 0) from None
    finally:
        if gate is not None:
            # Nobody reads the answer any more, so what is not sent yet must not be.
            gate.close()
        state.status, state.connect = status, _connect_time(gate, began)
        # Without a body there is no sign of sending: it may have been sent.
        state.sent = state.sent or gate is None or gate.sent_at > 0


def _connect_time(gate: BodyGate | None, began: float) -> float:
    """Seconds until connected; 0: not known, or not connected."""
    return gate.sent_at - began if gate is not None and gate.sent_at else 0.0


def _answer(response: Response, body: bytes, state: SendState, connect: float) -> HttpResponse:
    return HttpResponse(
        response.status,
        _headers(response),
        body[:MOST_BODY],
        len(body) > MOST_BODY,
        state.elapsed(),
        connect,
        state.address,
        _VERSIONS.get(response.version, response.version),
        state.url,
    )


def _headers(response: Response) -> Headers:
    try:
        headers = tuple(response.headers.items())
    except ValueError:  # one of them is not ASCII, and the library has no way to its bytes
        names = dict.fromkeys(response.headers.keys())
        headers = tuple((name, value) for name in names for value in _values(response, name))
    if sum(len(name) + len(value) for name, value in headers) > MOST_HEAD:
        raise RequestFailed(
            FailureKind.HEAD_TOO_LARGE, f"the head of the answer has more than {MOST_HEAD // 1024} KiB", sent=True
        )
    return headers


def _values(response: Response, name: str) -> Sequence[str]:
    try:
        return response.get_header_all(name)
    except ValueError:
        return ["(not ASCII)"]


_CONNECTING = "client error (Connect)"  # hyper's text for errors before the first byte of the request is written.
# HTTP/2: the server promises that it did nothing. The h2 library uses the second text for streams after the last one of
# a GOAWAY, and for no others: earlier streams end as broken pipes.
_NOT_BEGUN = ("refused stream before processing", "connection error received: ")
_LONGEST = 200
_TLS = ("certificate", "tls", "handshake", "alert")
_CERTIFICATE = "invalid peer certificate: "
_CERTIFICATE_ERRORS = {
    "UnknownIssuer": "its certificate is signed by nobody who is trusted here",
    "CaUsedAsEndEntity": "its certificate is self-signed, and trusted by nobody here",
    "certificate expired": "its certificate has expired",
    "not valid yet": "its certificate is not valid yet",
    "not valid for name": "its certificate is for another name",
}


def no_answer_error(error: PyreqwestError, limit: float, name: str, sent: bool) -> RequestFailed:
    """The error when no head came. limit: seconds that were left. name: of the server. sent: it may have been sent."""
    causes = _causes(error)
    # First, since nothing was sent, also if it was a timeout.
    if _CONNECTING in causes:
        return _connect_error(error, causes[-1], name)
    if isinstance(error, ClientClosedError):
        return RequestFailed(FailureKind.LOCAL, "the sender was closed while the request was under way", sent)
    if isinstance(error, RequestTimeoutError):
        return late_failure(name, limit, 0) if sent else unsent_failure(name, limit)
    if "too large" in causes[-1] or "too big" in causes[-1]:
        return sent_failure(FailureKind.HEAD_TOO_LARGE, name, "is too large")
    if isinstance(error, DecodeError):
        return sent_failure(FailureKind.MALFORMED, name, causes[-1])
    failed = sent_failure(FailureKind.CLOSED, name, causes[-1])
    failed.sent = sent and not any(words in causes[-1] for words in _NOT_BEGUN)
    return failed


def broken_body_error(error: PyreqwestError, status: int, name: str) -> RequestFailed:
    """The error when the head came and the body did not."""
    if isinstance(error, RequestTimeoutError):
        return late_failure(name, 0, status)
    return sent_failure(FailureKind.BROKEN, name, _causes(error)[-1], status)


def _connect_error(error: PyreqwestError, cause: str, name: str) -> RequestFailed:
    if isinstance(error, RequestTimeoutError):
        return unconnected_failure(name)
    if cause.startswith(_CERTIFICATE):
        text = cause.removeprefix(_CERTIFICATE)
        spoken = next(
            (said for word, said in _CERTIFICATE_ERRORS.items() if word in text), "its certificate is not good"
        )
        return RequestFailed(FailureKind.TLS, f"{name}: {spoken} ({text})")
    failed = connect_failure(name, cause)
    if failed.kind is FailureKind.UNREACHABLE and any(word in cause for word in _TLS):
        return RequestFailed(FailureKind.TLS, f"{name}: no TLS: {cause}")
    return failed


def _causes(error: PyreqwestError) -> list[str]:
    """The messages of the causes, outermost first. Never empty."""
    details = error.details if isinstance(error, DetailedPyreqwestError) else {"causes": None}
    causes = [_line(cause["message"]) for cause in details["causes"] or []]
    # Without the first one: it has the URL, which may be secret.
    return causes[1:] or [type(error).__name__]


def _line(text: str) -> str:
    return " ".join(text.split())[:_LONGEST]


# An HTTPS client takes 0.1 MB, and 7 ms to build, because of the certificates that it trusts.
MOST_IDLE = 512
"""Idle clients that are kept; beyond these the least recently used are closed."""
IDLE = 300.0
"""Seconds after which an idle client is closed."""
CONNECTION_IDLE = 30.0
"""Seconds for which an idle connection is kept."""
MOST_CONNECTIONS_IDLE = 128
"""Idle connections of one client."""
_CLOSING = 5.0  # Seconds.
_PING, _PONG = 15.0, 10.0  # HTTP/2: seconds between two pings, and the timeout of a ping.

Build = Callable[["ClientKey"], Client]


class ClientKey(Struct, frozen=True):
    """What identifies a client."""

    host: str
    address: str
    port: int
    connect: float
    """Seconds for TCP and TLS together."""


def client_builder(trust: bytes = b"", agent: str = "tarry") -> Build:
    """A function that builds clients. They trust the system's certificates and those of `trust` (PEM).

    Redirects, compression and proxies from the environment are off.
    """

    def build(key: ClientKey) -> Client:
        # A redirect or a proxy would lead to addresses that the guard has not checked. The sender follows redirects.
        made = ClientBuilder().user_agent(agent).no_proxy().follow_redirects(False).referer(False)
        made = made.gzip(False).brotli(False).zstd(False).deflate(False)
        made = made.https_only(True).http2(True).http2_keep_alive_interval(timedelta(seconds=_PING))
        made = made.http2_keep_alive_timeout(timedelta(seconds=_PONG)).min_tls_version("TLSv1.2")
        made = made.pool_idle_timeout(timedelta(seconds=CONNECTION_IDLE)).pool_max_idle_per_host(MOST_CONNECTIONS_IDLE)
        made = made.connect_timeout(timedelta(seconds=key.connect)).resolve(key.host, key.address, key.port)
        return (made.add_root_certificate_pem(trust) if trust else made).build()

    return build


class PooledClient:
    """A client with its request count. Each request holds it in a `with` block, and it is not closed before the end."""

    def __init__(self, owner: "ClientPool", key: ClientKey, making: "asyncio.Task[Client]") -> None:
        self._owner, self.key, self.building = owner, key, making
        self.client: Client | None = None
        self.users, self.last_used = 0, 0.0
        self.is_outdated = False
        """The origin has another address now."""

    def __enter__(self) -> Self:
        self._owner.add_user(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._owner.remove_user(self)


class ClientPool:
    """The clients of one event loop."""

    def __init__(self, build: Build, most_idle: int = MOST_IDLE, idle: float = IDLE) -> None:
        self._build, self._most_idle, self._idle = build, most_idle, idle
        self._all: OrderedDict[ClientKey, PooledClient] = OrderedDict()
        self._busy = 0
        """Clients that have a request."""
        self._closing: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def __len__(self) -> int:
        return len(self._all)

    def get(self, key: ClientKey) -> PooledClient:
        """The client for this key. Hold it in a `with` block, and await `wait_ready` before use."""
        pooled = self._all.get(key)
        if pooled is None:
            return self._create(key)
        self._all.move_to_end(key)
        return pooled

    def add_user(self, pooled: PooledClient) -> None:
        """Counts one more request."""
        self._busy += not pooled.users
        pooled.users += 1

    def remove_user(self, pooled: PooledClient) -> None:
        """Counts one request less."""
        pooled.users -= 1
        self._busy -= not pooled.users
        pooled.last_used = asyncio.get_running_loop().time()
        # A new client may have taken its place in the table.
        if pooled.is_outdated and not pooled.users and self._all.get(pooled.key) is pooled:
            self._drop(pooled.key)
        self._drop_idle()

    async def wait_ready(self, pooled: PooledClient, limit: float) -> Client:
        """Waits until the client is built. limit: seconds. RequestFailed if it cannot be built in time."""
        # `wait` leaves the building alone if this request is cancelled: other requests may wait for it.
        await asyncio.wait([pooled.building], timeout=limit)
        if not pooled.building.done() or pooled.building.cancelled():
            raise RequestFailed(FailureKind.LOCAL, "no client was made in time, or the sender is closed")
        if error := pooled.building.exception():
            raise RequestFailed(FailureKind.LOCAL, f"no client can be made: {str(error)[:200]}")
        pooled.client = pooled.building.result()
        return pooled.client

    async def close(self) -> None:
        """Closes all clients. Open requests fail."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for key in list(self._all):
            self._drop(key)
        if self._closing:
            await asyncio.wait(self._closing, timeout=_CLOSING)

    def _create(self, key: ClientKey) -> PooledClient:
        if self._closed:
            raise RequestFailed(FailureKind.LOCAL, "the sender is closed")
        loop = asyncio.get_running_loop()
        # In a thread, since the event loop cannot stand still for so long.
        pooled = PooledClient(self, key, loop.create_task(run_in_thread(lambda: self._build(key))))
        pooled.building.add_done_callback(lambda making: self._on_built(key, making))
        self._outdate(key)
        self._all[key] = pooled
        if self._timer is None:
            self._timer = loop.call_later(self._idle, self._tick)
        return pooled

    def _on_built(self, key: ClientKey, making: "asyncio.Task[Client]") -> None:
        pooled = self._all.get(key)
        # A client that failed is not kept: the next request builds another.
        if (making.cancelled() or making.exception()) and pooled is not None and pooled.building is making:
            del self._all[key]

    def _outdate(self, new: ClientKey) -> None:
        for key, pooled in list(self._all.items()):
            if (key.host, key.port) == (new.host, new.port) and key != new:
                # A client of the same address differs only in its timeout, and stays.
                pooled.is_outdated = pooled.is_outdated or key.address != new.address
                if pooled.is_outdated and not pooled.users:
                    self._drop(key)

    def _drop_idle(self) -> None:
        while len(self._all) - self._busy > self._most_idle:
            self._drop(next(key for key, pooled in self._all.items() if not pooled.users))

    def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        before = loop.time() - self._idle
        for key in [key for key, pooled in self._all.items() if not pooled.users and pooled.last_used < before]:
            self._drop(key)
        self._timer = loop.call_later(self._idle / 4, self._tick) if self._all else None

    def _drop(self, key: ClientKey) -> None:
        pooled = self._all.pop(key, None)
        if pooled is None:
            return
        if pooled.client is None:
            pooled.building.cancel()
        else:
            task = asyncio.get_running_loop().create_task(pooled.client.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
