"""Sends one request and reads one answer, or says why there is none.

Each connection is to an address that the guard has checked. A request counts as maybe delivered unless it is known
that nothing was sent.

A request is sent again on another connection only if nobody can have processed it. A request that is cancelled while it
connects is not sent.

Requests without TLS go by `http1`, which knows what was sent when; all others by pyreqwest.
"""

import asyncio
import logging

from msgspec import Struct

from tarry.push.http import resolver
from tarry.push.http.address_guard import AddressGuard, ForbiddenAddress
from tarry.push.http.failure import Failure, FailureKind, RequestFailed
from tarry.push.http.http1_client import Http1Client
from tarry.push.http.http_attempt import Hop, SendState
from tarry.push.http.response import Headers, HttpResponse
from tarry.push.http.target import RequestTarget, check_headers, parse_target
from tarry.push.http.tls_client import TlsClient

log = logging.getLogger("tarry.push")

METHODS = ("POST", "GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS")
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
        self._with_tls, self._without_tls = TlsClient(trust, agent), Http1Client(agent)

    async def send(self, request: HttpRequest, limits: SendLimits) -> HttpResponse | Failure:
        """Sends one request. Raises only SendCancelled, if it is cancelled.

        A cancelled request is not sent if it is still connecting. If it was sent, the HTTP library drops the answer.
        """
        state = SendState(limits.total, limits.connect)
        try:
            return await self._follow(request, limits.redirects, state)
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
        await self._without_tls.close()
        await self._with_tls.close()

    async def _follow(self, request: HttpRequest, redirects: int, state: SendState) -> HttpResponse:
        hop = _first_hop(request)
        for _ in range(redirects):
            answer = await self._try_addresses(hop, state)
            following = _next_hop(hop, answer, state)
            if following is None:
                return answer
            hop = following
        answer = await self._try_addresses(hop, state)
        if redirects and _next_hop(hop, answer, state) is not None:
            raise RequestFailed(FailureKind.REDIRECT, f"{redirects} redirects lead to yet another")
        return answer

    async def _try_addresses(self, hop: Hop, state: SendState) -> HttpResponse:
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

    async def _try_last_address(self, hop: Hop, address: str, state: SendState) -> HttpResponse:
        try:
            return await self._exchange(hop, address, state)
        except RequestFailed as failed:
            if failed.kind in _TRY_NEXT_ADDRESS:
                self._resolver.mark_unreachable(hop.to.host, address)
            raise

    async def _exchange(self, hop: Hop, address: str, state: SendState) -> HttpResponse:
        state.address = f"[{address}]:{hop.to.port}" if ":" in address else f"{address}:{hop.to.port}"
        client = self._with_tls if hop.to.scheme == "https" else self._without_tls
        return await client.exchange(hop, address, state)


def _first_hop(request: HttpRequest) -> Hop:
    if request.method not in METHODS:
        raise RequestFailed(FailureKind.REQUEST, f"the method {request.method[:20]!r} is none of {', '.join(METHODS)}")
    try:
        headers = check_headers(request.headers) + _ALWAYS
        return Hop(request.method, parse_target(request.url), headers, request.body)
    except ValueError as error:
        raise RequestFailed(FailureKind.REQUEST, str(error)) from None


def _next_hop(hop: Hop, answer: HttpResponse, state: SendState) -> Hop | None:
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
    return Hop(method, to, _redirect_headers(hop, to, method), b"" if method != hop.method else hop.body)


def _redirect_headers(hop: Hop, to: RequestTarget, method: str) -> Headers:
    headers = hop.headers
    if to.origin != hop.to.origin:
        headers = tuple(pair for pair in headers if pair[0] in _SAFE_HEADERS) + _ALWAYS
    if method != hop.method:
        # The body is gone, and these are about it.
        headers = tuple(pair for pair in headers if pair[0] not in ("content-type", "webhook-signature"))
    return headers
