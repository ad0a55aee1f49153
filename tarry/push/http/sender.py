"""Sends one request and reads one answer, or says why there is none.

The address that is connected to is the one that the guard has seen: each client is pinned to it. Whatever is not known
to have stayed here counts as maybe delivered.

Sent once more, on another connection, is only what nobody can have acted on: what was given to a kept connection that
proved closed before the body was asked for (the HTTP library does that by itself), and what an HTTP/2 server promises
not to have begun (REFUSED_STREAM). Whoever is cancelled while it connects sends nothing any more.
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
from tarry.push.http.answer import MOST_BODY, Answer, Headers
from tarry.push.http.body_gate import Gate
from tarry.push.http.errors import broken, unanswered
from tarry.push.http.failure import Failed, Failure, Why
from tarry.push.http.guard import Forbidden, Guard
from tarry.push.http.pool import Clients, Place, builder
from tarry.push.http.target import Target, checked, target

log = logging.getLogger("tarry.push")

METHODS = ("POST", "GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS")
MOST_HEAD = 64 * 1024
"""Bytes of names and values in an answer's head."""
MOST_ADDRESSES = 3
"""Of one host, tried one after another while nobody could be reached."""

_ELSEWHERE = (Why.REFUSED, Why.UNREACHABLE, Why.CONNECT_TIMEOUT)
"""Nothing was sent, and another address of the same host may do better."""
_CARRIED = """
    accept content-type idempotency-key tarry-attempt tarry-due user-agent
    webhook-id webhook-signature webhook-timestamp
"""
_ANYWHERE = frozenset(_CARRIED.split())
"""Headers that a redirect takes along to another origin. All others may be secrets of the first."""
_VERSIONS = {"HTTP/1.0": "1.0", "HTTP/1.1": "1.1", "HTTP/2.0": "2"}
_ALWAYS = (("accept-encoding", "identity"),)


class Request(Struct, frozen=True):
    """What is sent."""

    method: str
    url: str
    headers: Headers = ()
    body: bytes = b""

    def __repr__(self) -> str:
        return f"<Request {self.method}, {len(self.body)} bytes>"  # all else may be secret


class Limits(Struct, frozen=True):
    """How long, and how far. Seconds."""

    total: float = 30.0
    """From the first step to the end of the answer, redirects included."""
    connect: float = 5.0
    """For TCP and TLS, of each connection; never more than nine tenths of `total`."""
    redirects: int = 0
    """How many are followed. 307 and 308 keep method and body; 303 becomes a GET; 301 and 302 are followed only if the
    method is GET or HEAD, since others would lose the body. What is not followed is the answer."""


class Stopped(asyncio.CancelledError):
    """Cancelled; `sent`: some of the request has gone out."""

    def __init__(self, sent: bool) -> None:
        super().__init__()
        self.sent = sent


class Sender:
    """Belongs to one event loop, and to one process: make it after a fork."""

    def __init__(self, guard: Guard, trust: bytes = b"", agent: str = "tarry", lookup: resolver.Lookup | None = None):
        """trust: certificates (PEM) that are trusted besides the system's. agent: the User-Agent. lookup: in place of
        the system's own way from names to addresses."""
        self._guard = guard
        self._resolver = resolver.Resolver(guard, lookup or resolver.system)
        self._clients = Clients(builder(trust, agent))

    async def send(self, request: Request, limits: Limits) -> Answer | Failure:
        """Raises only when it is cancelled: Stopped. Then nothing more is sent if it still connects; what has gone out
        already is left to the HTTP library, which drops it with the answer or when its time is over, and tells nobody.
        """
        trip = _Trip(limits)
        try:
            return await self._follow(request, trip)
        except Forbidden as error:
            return trip.failure(Why.FORBIDDEN, str(error))
        except Failed as failed:
            return trip.failure(failed.why, str(failed), failed.sent)
        except asyncio.CancelledError:
            raise Stopped(trip.out) from None
        except Exception as error:  # of a kind that nobody has thought of: what it means for what was sent is not known
            log.exception("a delivery to %s broke", trip.address or "nowhere yet")
            return trip.failure(Why.LOCAL, f"it broke here ({type(error).__name__}); see the log", trip.out)

    async def close(self) -> None:
        """Who waits for an answer is told that none comes, and no connection is kept. Afterwards nothing is sent."""
        self._resolver.close()
        await self._clients.close()

    async def _follow(self, request: Request, trip: "_Trip") -> Answer:
        hop = _first(request)
        for _ in range(trip.limits.redirects):
            answer = await self._reach(hop, trip)
            following = _next(hop, answer, trip)
            if following is None:
                return answer
            hop = following
        answer = await self._reach(hop, trip)
        if trip.limits.redirects and _next(hop, answer, trip) is not None:
            raise Failed(Why.REDIRECT, f"{trip.limits.redirects} redirects lead to yet another")
        return answer

    async def _reach(self, hop: "_Hop", trip: "_Trip") -> Answer:
        """At the first of its addresses where somebody listens."""
        to = hop.to
        if to.literal:
            self._guard.check(to.host, to.host, to.port)
            return await self._exchange(hop, to.host, trip)
        addresses = (await self._resolver.find(to.host, to.port, trip.left()))[:MOST_ADDRESSES]
        for address in addresses[:-1]:
            try:
                return await self._exchange(hop, address, trip)
            except Failed as failed:
                if failed.why not in _ELSEWHERE:
                    raise
                self._resolver.lost(to.host, address)
        return await self._last(hop, addresses[-1], trip)

    async def _last(self, hop: "_Hop", address: str, trip: "_Trip") -> Answer:
        try:
            return await self._exchange(hop, address, trip)
        except Failed as failed:
            if failed.why in _ELSEWHERE:
                self._resolver.lost(hop.to.host, address)
            raise

    async def _exchange(self, hop: "_Hop", address: str, trip: "_Trip") -> Answer:
        to = hop.to
        place = Place(to.host, address, to.port, to.scheme == "https", trip.patience)
        trip.address = place.where
        with self._clients.held(place) as held:
            client = held.client or await self._clients.ready(held, trip.left())
            try:
                return await _exchanged(client, hop, trip)
            except Failed as failed:
                if failed.why is not Why.CLOSED or failed.sent:
                    raise
            return await _exchanged(client, hop, trip)


async def _exchanged(client: Client, hop: "_Hop", trip: "_Trip") -> Answer:
    left, status, began = trip.left(), 0, time.monotonic()
    building = client.request(hop.method, hop.to.url).headers(hop.headers).streamed_read_buffer_limit(0)
    gate = Gate(hop.body) if hop.body else None
    if gate is not None:
        building = building.header("content-length", str(len(hop.body))).body_stream(gate.read())
    elif hop.method not in ("GET", "HEAD"):
        building = building.body_bytes(b"")
    try:
        async with building.timeout(timedelta(seconds=left)).build_streamed() as response:
            status = response.status
            body = await response.body_reader.read(MOST_BODY + 1) or b""
            return _answer(response, bytes(body), trip, _connected(gate, began))
    except PyreqwestError as error:
        if status:
            raise broken(error, status, trip.name(hop.to)) from None
        raise unanswered(error, left, trip.name(hop.to), gate is None or gate.passed > 0) from None
    finally:
        if gate is not None:
            gate.shut()
        trip.status, trip.connect = status, _connected(gate, began)
        trip.out = trip.out or gate is None or gate.passed > 0


def _connected(gate: Gate | None, began: float) -> float:
    """Seconds; 0: not known, or not at all."""
    return gate.passed - began if gate is not None and gate.passed else 0.0


def _answer(response: Response, body: bytes, trip: "_Trip", connect: float) -> Answer:
    return Answer(
        response.status,
        _headers(response),
        body[:MOST_BODY],
        len(body) > MOST_BODY,
        trip.elapsed(),
        connect,
        trip.address,
        _VERSIONS.get(response.version, response.version),
        trip.url,
    )


def _headers(response: Response) -> Headers:
    try:
        headers = tuple(response.headers.items())
    except ValueError:  # one of them is not ASCII, and the library has no way to its bytes
        names = dict.fromkeys(response.headers.keys())
        headers = tuple((name, value) for name in names for value in _values(response, name))
    if sum(len(name) + len(value) for name, value in headers) > MOST_HEAD:
        raise Failed(Why.HEAD_TOO_LARGE, f"the head of the answer has more than {MOST_HEAD // 1024} KiB", sent=True)
    return headers


def _values(response: Response, name: str) -> Sequence[str]:
    try:
        return response.get_header_all(name)
    except ValueError:
        return ["(not ASCII)"]


class _Hop(Struct, frozen=True):
    """One request of a trip."""

    method: str
    to: Target
    headers: Headers
    body: bytes


class _Trip:
    """What is known of a request on its way."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.began = time.monotonic()
        self.patience = min(limits.connect, 0.9 * limits.total)
        self.address = self.url = ""
        self.status, self.connect = 0, 0.0
        self.out = False
        """Some of it may have gone out. Only if it is cancelled, else the answer or the failure says."""
        self.taken = False
        """Somebody on the way has had it, and may have acted on it."""

    def left(self) -> float:
        """Seconds. Failed: none."""
        left = self.began + self.limits.total - time.monotonic()
        if left <= 0:
            raise Failed(Why.TIMEOUT, f"the {self.limits.total:.3g} s were over before anything was sent")
        return left

    def elapsed(self) -> float:
        return time.monotonic() - self.began

    def name(self, to: Target) -> str:
        return self.address if to.literal else f"{to.host} at {self.address}"

    def failure(self, why: Why, reason: str, sent: bool = False) -> Failure:
        sent = sent or self.taken
        return Failure(why, reason, sent, self.elapsed(), self.address, self.status, self.connect)


def _first(request: Request) -> _Hop:
    if request.method not in METHODS:
        raise Failed(Why.REQUEST, f"the method {request.method[:20]!r} is none of {', '.join(METHODS)}")
    try:
        headers = checked(request.headers) + _ALWAYS
        return _Hop(request.method, target(request.url), headers, request.body)
    except ValueError as error:
        raise Failed(Why.REQUEST, str(error)) from None


def _next(hop: _Hop, answer: Answer, trip: _Trip) -> _Hop | None:
    """Where the answer sends us; None: it is the last."""
    location = next((value for name, value in answer.headers if name == "location"), None)
    if answer.status not in (301, 302, 303, 307, 308) or location is None:
        return None
    method = hop.method
    if answer.status == 303 and method != "HEAD":
        method = "GET"
    if answer.status in (301, 302) and method not in ("GET", "HEAD"):
        return None
    trip.taken = True
    try:
        to = hop.to.joined(location)
    except ValueError as error:
        raise Failed(Why.REDIRECT, f"{trip.name(hop.to)} redirects to nowhere: {error}") from None
    if hop.to.scheme == "https" and to.scheme != "https":
        raise Failed(Why.REDIRECT, f"{trip.name(hop.to)} redirects out of HTTPS, to {to.origin}")
    trip.url = to.origin + to.url.path
    return _Hop(method, to, _carried(hop, to, method), b"" if method != hop.method else hop.body)


def _carried(hop: _Hop, to: Target, method: str) -> Headers:
    headers = hop.headers
    if to.origin != hop.to.origin:
        headers = tuple(pair for pair in headers if pair[0] in _ANYWHERE) + _ALWAYS
    if method != hop.method:
        headers = tuple(pair for pair in headers if pair[0] not in ("content-type", "webhook-signature"))
    return headers
