"""Sends requests without TLS: what is written and when is known here, and so whether anything was sent."""

import time
from functools import lru_cache

from tarry.push.http.exchange import Hop, SendState
from tarry.push.http.failure import (
    connect_failure,
    late_failure,
    sent_failure,
    unconnected_failure,
    unsent_failure,
)
from tarry.push.http.http1.connection import Http1Connection, system_error
from tarry.push.http.http1.parser import AnswerError, AnswerParser
from tarry.push.http.http1.pool import Http1Key, Http1Pool
from tarry.push.http.response import MOST_BODY, HttpResponse

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
