"""A small HTTP server for /metrics, with bounds: for processes without the doors and their extra."""

import contextlib
import gzip
import logging
import os
import re
import selectors
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus

from tarry.model.values.listen_address import is_own_host
from tarry.store.shared.backoff import TurnGuard

log = logging.getLogger("tarry.metrics")

PathHandler = Callable[[str], tuple[bytes, str]]
"""The text for a reader, and its media type. Takes the header Accept; may be called in several threads."""

MOST_AT_ONCE = 8
"""Connections that are served at a time. Any more are told to come again."""
HEAD_WITHIN, SENT_WITHIN = 5.0, 10.0
"""Seconds in which a request has to arrive, and its answer has to be taken."""
MOST_HEAD = 8192
"""Bytes of a request."""
_ENDS_WITHIN = 2.0
_COMPRESSED_FROM = 1024
_FOREIGN_HOST = b"This name is not known here: name it in [metrics] host_names, or use the address.\n"
_PLAIN = "text/plain; charset=utf-8"
_REQUEST = re.compile(rb"([A-Z]{1,16}) (\S{1,2048}) HTTP/1\.[01]\r\n")


class MetricsListener:
    """Serves `/metrics` at sockets that listen already, in threads of its own.

    hosts: names by which it is called, besides addresses and localhost; a request for another one is refused.
    """

    def __init__(self, answer: PathHandler, sockets: Sequence[socket.socket], hosts: Sequence[str] = ()) -> None:
        self._answer, self._sockets, self._hosts = answer, sockets, hosts
        self._room = threading.BoundedSemaphore(MOST_AT_ONCE)
        self._closing, self._wake = os.pipe()
        self._thread = threading.Thread(target=self._accept, name="tarry-metrics", daemon=True)

    def start(self) -> None:
        """Accepts from now on."""
        self._thread.start()

    def close(self) -> None:
        """Accepts no more, and waits for a short time until what is asked is answered. The sockets stay open."""
        os.write(self._wake, b".")
        self._thread.join(_ENDS_WITHIN)
        ends = time.monotonic() + _ENDS_WITHIN
        for _ in range(MOST_AT_ONCE):
            self._room.acquire(timeout=max(0.0, ends - time.monotonic()))

    def _accept(self) -> None:
        with selectors.DefaultSelector() as ready:
            ready.register(self._closing, selectors.EVENT_READ)
            for listener in self._sockets:
                ready.register(listener, selectors.EVENT_READ)
            guard, is_open = TurnGuard(log, "accepting connections for /metrics"), True
            while is_open:
                with guard:
                    found = [key.fileobj for key, _ in ready.select()]
                    is_open = self._closing not in found
                    for one in found if is_open else ():
                        assert isinstance(one, socket.socket)
                        self._take(one)

    def _take(self, listener: socket.socket) -> None:
        try:
            connection, _ = listener.accept()
        except BlockingIOError:
            # Another process was faster: while a keeper is replaced, both accept.
            return
        except OSError as error:
            log.warning("a connection for /metrics cannot be accepted: %s", error)
            # Out of descriptors, perhaps: without a pause this loop would use a whole core.
            time.sleep(0.1)
            return
        if not self._room.acquire(blocking=False):
            _refuse(connection)
            return
        try:
            threading.Thread(target=self._serve, args=(connection,), name="tarry-scrape", daemon=True).start()
        except RuntimeError:
            # No thread can be had.
            self._room.release()
            _refuse(connection)

    def _serve(self, connection: socket.socket) -> None:
        # Closed last: whoever sees the end and asks again finds room.
        with connection:
            try:
                with contextlib.suppress(OSError):
                    self._answer_request(connection)
            except Exception:
                log.exception("/metrics failed")
            finally:
                self._room.release()

    def _answer_request(self, connection: socket.socket) -> None:
        head = _read_head(connection)
        # A unix socket is reached by no page, and has no name.
        reply = self._reply(head, (*self._hosts, "*") if connection.family == socket.AF_UNIX else self._hosts)
        connection.settimeout(SENT_WITHIN)
        connection.sendall(reply)
        _finish(connection)

    def _reply(self, head: bytes | None, hosts: Sequence[str]) -> bytes:
        request = _REQUEST.match(head or b"")
        if head is None or request is None:
            return _response(HTTPStatus.BAD_REQUEST)
        host = _header(head, b"host")
        if host and not is_own_host(host, hosts):
            return _response(HTTPStatus.MISDIRECTED_REQUEST, _FOREIGN_HOST)
        if request[1] not in (b"GET", b"HEAD"):
            return _response(HTTPStatus.METHOD_NOT_ALLOWED, headers={"Allow": "GET, HEAD"})
        if request[2].partition(b"?")[0] != b"/metrics":
            return _response(HTTPStatus.NOT_FOUND, b"The figures are at /metrics.\n")
        text, media_type = self._answer(_header(head, b"accept"))
        headers = {"Vary": "Accept, Accept-Encoding"}
        if len(text) >= _COMPRESSED_FROM and _takes_gzip(head):
            text, headers["Content-Encoding"] = gzip.compress(text, 1), "gzip"
        return _response(HTTPStatus.OK, text, media_type, headers, has_body=request[1] == b"GET")


def _read_head(connection: socket.socket) -> bytes | None:
    """The head of the request; None: it is too long, or the client has left. OSError: it did not arrive in time."""
    ends = time.monotonic() + HEAD_WITHIN
    head = b""
    while b"\r\n\r\n" not in head:
        # All of it, not each part: else a client that sends a byte at a time could stay for hours.
        connection.settimeout(max(0.01, ends - time.monotonic()))
        part = connection.recv(MOST_HEAD)
        head += part
        if not part or len(head) > MOST_HEAD:
            return None
    return head


def _header(head: bytes, name: bytes) -> str:
    """The value of a header; several are joined, as HTTP has it."""
    found = re.findall(rb"\r\n" + name + rb":[ \t]*([^\r\n]*)", head, re.IGNORECASE)
    return ", ".join(value.decode("latin-1").strip() for value in found)


def _takes_gzip(head: bytes) -> bool:
    return bool(re.search(r"\bgzip\b(?!\s*;\s*q=0(\.0*)?\s*(,|$))", _header(head, b"accept-encoding"), re.IGNORECASE))


def _response(
    status: HTTPStatus,
    body: bytes = b"",
    media_type: str = _PLAIN,
    headers: Mapping[str, str] | None = None,
    has_body: bool = True,
) -> bytes:
    text = body or f"{status.phrase}\n".encode()
    lines = {"Content-Type": media_type, "Content-Length": str(len(text)), "Connection": "close", **(headers or {})}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"HTTP/1.1 {status.value} {status.phrase}\r\n{head}\r\n".encode("latin-1") + (text if has_body else b"")


def _refuse(connection: socket.socket) -> None:
    with connection, contextlib.suppress(OSError):
        connection.setblocking(False)
        connection.send(_response(HTTPStatus.SERVICE_UNAVAILABLE, headers={"Retry-After": "1"}))
        _finish(connection)


def _finish(connection: socket.socket) -> None:
    """Ends the answer in good order."""
    connection.shutdown(socket.SHUT_WR)
    with contextlib.suppress(BlockingIOError):
        # With unread bytes the kernel would reset the connection, and the client might lose the answer.
        connection.recv(MOST_HEAD)
