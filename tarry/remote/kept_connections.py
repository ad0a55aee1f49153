"""Requests to one server, over connections that are kept open. Python's own HTTP client; safe from threads."""

import contextlib
import http.client
import io
import os
import socket
import ssl
import time
from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from tarry.errors import ConfigError, StoreAway, StoreUnavailable
from tarry.remote.problems import ServerAnswer
from tarry.store.shared.masking import mask_password

MOST_IDLE = 16
"""Connections that are kept for the next request; others are closed after theirs."""
MOST_BYTES = 64 * 2**20
"""Of one answer."""
# The server closed the connection while it was idle, and has not seen the request: it may be sent again.
_CLOSED_WHILE_IDLE = (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError)


class ServerConnections:
    """Connections to the server at `url`, such as `https://jobs.example:7800`, perhaps with a path.

    timeout: seconds until a request is sent, and until its whole answer is there. tls: for https; None: the system's
    authorities. ConfigError for another URL.
    """

    def __init__(self, url: str, headers: Mapping[str, str], timeout: float, tls: ssl.SSLContext | None = None) -> None:
        self._host, self._port, self._path = _read_url(url)
        parts = urlsplit(url)
        self.url = url.rstrip("/")
        self._tls = (tls or ssl.create_default_context()) if parts.scheme == "https" else None
        self._headers, self._timeout = dict(headers), timeout
        self._idle: deque[http.client.HTTPConnection] = deque()
        self._pid = os.getpid()

    def request(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None,
        longer: float = 0.0,
    ) -> ServerAnswer:  # fmt: skip
        """Sends one request. StoreAway: it was not sent; StoreUnavailable: it may have taken effect.

        longer: seconds that the server may take besides the timeout.
        """
        connection = self._take()
        try:
            if connection is not None:
                try:
                    return self._send(connection, method, path, body, headers, longer)
                except _CLOSED_WHILE_IDLE:
                    connection.close()
            return self._send(self._open(), method, path, body, headers, longer)
        except (OSError, http.client.HTTPException) as error:
            raise StoreUnavailable(f"{self.url}: {error or type(error).__name__}: no whole answer came") from error

    def close(self) -> None:
        """Closes the connections that are idle. The next request opens a new one."""
        if self._pid == os.getpid():
            idle, self._idle = self._idle, deque()
            _close_all(idle)

    def _take(self) -> http.client.HTTPConnection | None:
        if self._pid != os.getpid():
            # In a forked child: the connections are the parent's, and two processes would mix up their answers.
            self._idle, self._pid = deque(), os.getpid()
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _open(self) -> http.client.HTTPConnection:
        connection: http.client.HTTPConnection
        if self._tls is None:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=self._timeout)
        else:
            connection = http.client.HTTPSConnection(self._host, self._port, timeout=self._timeout, context=self._tls)
        try:
            connection.connect()
        except OSError as error:
            connection.close()
            raise StoreAway(f"{self.url}: {error}: is a server running there?") from error
        return connection

    def _send(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: bytes | None,
        headers: Mapping[str, str] | None, longer: float,
    ) -> ServerAnswer:  # fmt: skip
        idle = self._idle
        try:
            if connection.sock is not None:
                connection.sock.settimeout(self._timeout + longer)
            connection.request(method, self._path + path, body, {**self._headers, **(headers or {})})
            until = time.monotonic() + self._timeout + longer
            # Any callable will do; the stubs know only classes.
            connection.response_class = partial(_timed_response, until)  # type: ignore[assignment]
            response = connection.getresponse()
            content = response.read(MOST_BYTES + 1)
            if len(content) > MOST_BYTES:
                raise http.client.HTTPException(f"the answer has more than {MOST_BYTES:,} bytes")
        except BaseException:
            # Also after an interrupt: what is left of an answer would be taken for the next one.
            connection.close()
            raise
        if response.will_close or len(idle) >= MOST_IDLE:
            connection.close()
        else:
            idle.append(connection)
        if idle is not self._idle:
            # Closed meanwhile: nobody would take it from there.
            _close_all(idle)
        return ServerAnswer(response.status, content)


class _TimedReads(io.RawIOBase):
    """What a socket receives until some time, by the monotonic clock. A server that sends byte after byte would else
    never let go: the timeout of a socket is for each of them."""

    def __init__(self, connected: socket.socket, until: float) -> None:
        self._socket, self._until = connected, until
        self._raw = connected.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        self._socket.settimeout(left)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _TimedSocket:
    """A socket as an answer reads it."""

    def __init__(self, connected: socket.socket, until: float) -> None:
        self._socket, self._until = connected, until

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_TimedReads(self._socket, self._until))


def _timed_response(until: float, connected: socket.socket, **more: Any) -> http.client.HTTPResponse:
    timed: Any = _TimedSocket(connected, until)
    return http.client.HTTPResponse(timed, **more)


def _close_all(idle: deque[http.client.HTTPConnection]) -> None:
    while True:
        try:
            idle.pop().close()
        except IndexError:
            return


def _read_url(url: str) -> tuple[str, int | None, str]:
    """Host, port and path; ConfigError, without a password."""
    with contextlib.suppress(ValueError):
        parts = urlsplit(url)
        is_plain = "@" not in url and not parts.query and not parts.fragment
        if parts.scheme in ("http", "https") and parts.hostname and is_plain:
            return parts.hostname, parts.port, parts.path.rstrip("/")
    raise ConfigError(
        f"url={mask_password(url)!r}: http://host:port or https://host:port, without a name and a query; a token is"
        " given as token="
    )
