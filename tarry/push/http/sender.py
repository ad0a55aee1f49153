"""Sends one request and reads one answer, or says why there is none.

Each client is pinned to the address that the guard has checked. A request counts as maybe delivered unless it is known
that nothing was sent.

A request is sent again on another connection only if nobody can have processed it. A request that is cancelled while it
connects is not sent.
"""

import asyncio
import logging
import time
from collections.abc import Sequence
from datetime import timedelta

from msgspec import Struct
from pyreqwest.client import Client
from pyreqwest.exceptions import PyreqwestError
from pyreqwest.response import Response

from tarry.push.http import resolver
from tarry.push.http.body_gate import BodyGate
from tarry.push.http.errors import broken_body_error, no_answer_error
from tarry.push.http.failure import Failure, FailureKind, RequestFailed
from tarry.push.http.guard import AddressGuard, ForbiddenAddress
from tarry.push.http.pool import ClientKey, ClientPool, client_builder
from tarry.push.http.response import MOST_BODY, Headers, HttpResponse
from tarry.push.http.target import RequestTarget, check_headers, parse_target

log = logging.getLogger("tarry.push")

METHODS = ("POST", "GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS")
MOST_HEAD = 64 * 1024
"""Bytes of header names and values in an answer."""
MOST_ADDRESSES = 3
"""Addresses of one host that are tried one after another."""

# Nothing was sent, and another address of the same host may work.
_TRY_NEXT_ADDRESS = (FailureKind.REFUSED, FailureKind.UNREACHABLE, FailureKind.CONNECT_TIMEOUT)
_SAFE_NAMES = """
    accept content-type idempotency-key tarry-attempt tarry-due user-agent
    webhook-id webhook-signature webhook-timestamp
"""
# Headers that a redirect may send to another origin. All others may hold secrets.
_SAFE_HEADERS = frozenset(_SAFE_NAMES.split())
_VERSIONS = {"HTTP/1.0": "1.0", "HTTP/1.1": "1.1", "HTTP/2.0": "2"}
# Answers are not decompressed here.
_ALWAYS = (("accept-encoding", "identity"),)


class HttpRequest(Struct, frozen=True):
    """One request."""

    method: str
    url: str
    headers: Headers = ()
    body: bytes = b""

    def __repr__(self) -> str:
        return f"<Request {self.method}, {len(self.body)} bytes>"  # all else may be secret


class SendLimits(Struct, frozen=True):
    """Timeouts in seconds, and how many redirects."""

    total: float = 30.0
    """From the start to the end of the answer, redirects included."""
    connect: float = 5.0
    """For TCP and TLS of each connection; at most nine tenths of `total`."""
    redirects: int = 0
    """How many are followed. 307 and 308 keep method and body; 303 becomes a GET; 301 and 302 are followed only for GET
    and HEAD, since other methods would lose the body. A redirect that is not followed is the answer."""


class SendCancelled(asyncio.CancelledError):
    """Cancelled. sent: some of the request was sent."""

    def __init__(self, sent: bool) -> None:
        super().__init__()
        self.sent = sent


class Sender:
    """The sender of one event loop. Create it after a fork."""

    def __init__(
        self, guard: AddressGuard, trust: bytes = b"", agent: str = "tarry", lookup: resolver.Lookup | None = None
    ):
        """trust: certificates (PEM) that are trusted besides the system's. agent: the User-Agent. lookup: replaces the
        system's name lookup."""
        self._guard = guard
        self._resolver = resolver.Resolver(guard, lookup or resolver.system_lookup)
        self._clients = ClientPool(client_builder(trust, agent))

    async def send(self, request: HttpRequest, limits: SendLimits) -> HttpResponse | Failure:
        """Sends one request. Raises only SendCancelled, if it is cancelled.

        A cancelled request is not sent if it is still connecting. If it was sent, the HTTP library drops the answer.
        """
        state = _SendState(limits)
        try:
            return await self._follow(request, state)
        except ForbiddenAddress as error:
            return state.failure(FailureKind.FORBIDDEN, str(error))
        except RequestFailed as failed:
            return state.failure(failed.kind, str(failed), failed.sent)
        except asyncio.CancelledError:
            raise SendCancelled(state.sent) from None
        except Exception as error:  # unexpected: whether it was sent follows from the state
            log.exception("a delivery to %s broke", state.address or "nowhere yet")
            return state.failure(FailureKind.LOCAL, f"it broke here ({type(error).__name__}); see the log", state.sent)

    async def close(self) -> None:
        """Fails open requests and closes all connections. Nothing is sent afterwards."""
        self._resolver.close()
        await self._clients.close()

    async def _follow(self, request: HttpRequest, state: "_SendState") -> HttpResponse:
        hop = _first_hop(request)
        for _ in range(state.limits.redirects):
            answer = await self._try_addresses(hop, state)
            following = _next_hop(hop, answer, state)
            if following is None:
                return answer
            hop = following
        answer = await self._try_addresses(hop, state)
        if state.limits.redirects and _next_hop(hop, answer, state) is not None:
            raise RequestFailed(FailureKind.REDIRECT, f"{state.limits.redirects} redirects lead to yet another")
        return answer

    async def _try_addresses(self, hop: "_Hop", state: "_SendState") -> HttpResponse:
        """Exchanges with the first address of the host that can be reached."""
        to = hop.to
        if to.literal:
            self._guard.check(to.host, to.host, to.port)
            return await self._exchange(hop, to.host, state)
        addresses = (await self._resolver.resolve(to.host, to.port, state.left()))[:MOST_ADDRESSES]
        for address in addresses[:-1]:
            try:
                return await self._exchange(hop, address, state)
            except RequestFailed as failed:
                if failed.kind not in _TRY_NEXT_ADDRESS:
                    raise
                self._resolver.mark_unreachable(to.host, address)
        return await self._try_last_address(hop, addresses[-1], state)

    async def _try_last_address(self, hop: "_Hop", address: str, state: "_SendState") -> HttpResponse:
        try:
            return await self._exchange(hop, address, state)
        except RequestFailed as failed:
            if failed.kind in _TRY_NEXT_ADDRESS:
                self._resolver.mark_unreachable(hop.to.host, address)
            raise

    async def _exchange(self, hop: "_Hop", address: str, state: "_SendState") -> HttpResponse:
        to = hop.to
        key = ClientKey(to.host, address, to.port, to.scheme == "https", state.connect_timeout)
        state.address = key.where
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


async def _exchange_once(client: Client, hop: "_Hop", state: "_SendState") -> HttpResponse:
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


def _answer(response: Response, body: bytes, state: "_SendState", connect: float) -> HttpResponse:
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


class _Hop(Struct, frozen=True):
    """One request in a chain of redirects."""

    method: str
    to: RequestTarget
    headers: Headers
    body: bytes


class _SendState:
    """The state of one `send`, over all redirects."""

    def __init__(self, limits: SendLimits) -> None:
        self.limits = limits
        self.began = time.monotonic()
        self.connect_timeout = min(limits.connect, 0.9 * limits.total)
        self.address = self.url = ""
        self.status, self.connect = 0, 0.0
        self.sent = False
        """Some of it may have been sent. Read only after a cancel; else the answer or the failure says."""
        self.received = False
        """A server that redirected had the request, and may have processed it."""

    def left(self) -> float:
        """Seconds until the total timeout; RequestFailed if it has passed."""
        left = self.began + self.limits.total - time.monotonic()
        if left <= 0:
            raise RequestFailed(
                FailureKind.TIMEOUT, f"the {self.limits.total:.3g} s were over before anything was sent"
            )
        return left

    def elapsed(self) -> float:
        return time.monotonic() - self.began

    def describe(self, to: RequestTarget) -> str:
        return self.address if to.literal else f"{to.host} at {self.address}"

    def failure(self, why: FailureKind, reason: str, sent: bool = False) -> Failure:
        sent = sent or self.received
        return Failure(why, reason, sent, self.elapsed(), self.address, self.status, self.connect)


def _first_hop(request: HttpRequest) -> _Hop:
    if request.method not in METHODS:
        raise RequestFailed(FailureKind.REQUEST, f"the method {request.method[:20]!r} is none of {', '.join(METHODS)}")
    try:
        headers = check_headers(request.headers) + _ALWAYS
        return _Hop(request.method, parse_target(request.url), headers, request.body)
    except ValueError as error:
        raise RequestFailed(FailureKind.REQUEST, str(error)) from None


def _next_hop(hop: _Hop, answer: HttpResponse, state: _SendState) -> _Hop | None:
    """The request that a redirect asks for; None: the answer is the last."""
    location = next((value for name, value in answer.headers if name == "location"), None)
    if answer.status not in (301, 302, 303, 307, 308) or location is None:
        return None
    method = hop.method
    if answer.status == 303 and method != "HEAD":
        method = "GET"
    if answer.status in (301, 302) and method not in ("GET", "HEAD"):
        return None
    state.received = True
    try:
        to = hop.to.join(location)
    except ValueError as error:
        raise RequestFailed(FailureKind.REDIRECT, f"{state.describe(hop.to)} redirects to nowhere: {error}") from None
    if hop.to.scheme == "https" and to.scheme != "https":
        raise RequestFailed(FailureKind.REDIRECT, f"{state.describe(hop.to)} redirects out of HTTPS, to {to.origin}")
    # Without the query, which may be secret.
    state.url = to.origin + to.url.path
    return _Hop(method, to, _redirect_headers(hop, to, method), b"" if method != hop.method else hop.body)


def _redirect_headers(hop: _Hop, to: RequestTarget, method: str) -> Headers:
    headers = hop.headers
    if to.origin != hop.to.origin:
        headers = tuple(pair for pair in headers if pair[0] in _SAFE_HEADERS) + _ALWAYS
    if method != hop.method:
        # The body is gone, and these are about it.
        headers = tuple(pair for pair in headers if pair[0] not in ("content-type", "webhook-signature"))
    return headers
