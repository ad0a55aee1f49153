"""Sends requests with TLS, by HTTP/2 where the server offers it: the HTTP library does both.

The library does not say when it has sent a request. It reads the body from a gate when it is connected.
"""

import time
from collections.abc import Sequence
from datetime import timedelta

from pyreqwest.client import Client
from pyreqwest.exceptions import PyreqwestError
from pyreqwest.response import Response

from tarry.push.http.body_gate import BodyGate
from tarry.push.http.errors import broken_body_error, no_answer_error
from tarry.push.http.exchange import Hop, SendState
from tarry.push.http.failure import FailureKind, RequestFailed
from tarry.push.http.pool import ClientKey, ClientPool, client_builder
from tarry.push.http.response import MOST_BODY, MOST_HEAD, Headers, HttpResponse

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
