"""A real HTTP server in a thread that answers by scripts, and records the requests.

HTTP/1 is written by hand, so that it can be wrong in every way; HTTP/2 (over TLS, to who offers it) is spoken by h2.

    with Server() as server:
        server.says("/slow", hang)
        ... send to server.url("/slow") ...
        assert server.seen[0].body == b"{}"
"""

import asyncio
import contextlib
import gzip
import socket
import ssl
import struct
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import DataReceived, Event, RequestReceived, StreamEnded, StreamReset
from msgspec import Struct

_END = b"\r\n\r\n"
_START_WITHIN = 15.0


class SeenRequest(Struct, frozen=True):
    """A received request."""

    method: str
    path: str
    version: str
    headers: tuple[tuple[str, str], ...]
    """Names in lower case."""
    body: bytes
    connection: int
    """The number of its connection, from 0."""

    def header(self, name: str) -> str | None:
        values = [value for key, value in self.headers if key == name]
        assert len(values) < 2, f"{name} came {len(values)} times"
        return values[0] if values else None


class Connection:
    """An HTTP/1 connection, to which a script writes its answer."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def write(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    def end(self) -> None:
        """Closes the connection once all data is sent."""
        self.writer.close()

    def reset(self) -> None:
        """Aborts the connection with RST."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def wait_closed(self) -> None:
        """Waits until the other side closes the connection."""
        with contextlib.suppress(ConnectionError):
            while await self.reader.read(65536):
                pass


Script = Callable[[Connection], Awaitable[None]]
"""Writes an answer. The connection is kept for the next request unless the script ends it."""


class Server:
    """Listens on a free port of 127.0.0.1, or of `address`, while its block runs."""

    def __init__(self, certificate: Path | None = None, h2: bool = False, address: str = "127.0.0.1") -> None:
        """certificate: a file with it and its key, for TLS. h2: it offers HTTP/2."""
        self._tls = _context(certificate, h2) if certificate else None
        self._address, self.port = address, 0
        self._scripts: dict[str, Script] = {}
        self._h2: dict[str, H2Script] = {}
        self.seen: list[SeenRequest] = []
        self.connections = self.ended = 0
        """Connections that were opened, and those of them that either side has closed."""
        self._writers: list[asyncio.StreamWriter] = []
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(_START_WITHIN), "the server did not start"
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(_START_WITHIN)
        self._loop.close()

    def says(self, path: str, script: Script) -> None:
        """Sets the script for HTTP/1 requests of this path. Other paths are answered with `ok`."""
        self._scripts[path] = script

    def says_h2(self, path: str, script: "H2Script") -> None:
        """Sets the script for HTTP/2 requests of this path."""
        self._h2[path] = script

    def url(self, path: str = "/", host: str = "") -> str:
        """host: a name that the test's own lookup knows; without it the address itself."""
        return f"{'https' if self._tls else 'http'}://{host or self._address}:{self.port}{path}"

    def paths(self) -> list[str]:
        return [seen.path for seen in self.seen]

    def hang_up(self) -> None:
        """Closes all connections."""
        for writer in self._writers:
            self._loop.call_soon_threadsafe(writer.transport.abort)

    async def _serve(self) -> None:
        serving = await asyncio.start_server(
            self._connected, self._address, 0, ssl=self._tls, backlog=4096, limit=1 << 20
        )
        self.port = serving.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        serving.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = self.connections
        self.connections += 1
        self._writers.append(writer)
        try:
            with contextlib.suppress(
                ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError, ssl.SSLError
            ):
                if (tls := writer.get_extra_info("ssl_object")) and tls.selected_alpn_protocol() == "h2":
                    await _Http2(self, reader, writer, number).run()
                else:
                    await self._http1(Connection(reader, writer), number)
        finally:
            self.ended += 1
            writer.transport.abort()

    async def _http1(self, line: Connection, number: int) -> None:
        while True:
            head = (await line.reader.readuntil(_END)).decode("latin-1")
            first, *rest = head.removesuffix("\r\n\r\n").split("\r\n")
            method, path, version = first.split(" ")
            headers = tuple((name.lower(), value) for name, _, value in (entry.partition(": ") for entry in rest))
            body = await line.reader.readexactly(int(dict(headers).get("content-length", "0")))
            self.seen.append(SeenRequest(method, path, version, headers, body, number))
            await self._scripts.get(path, ok)(line)
            if line.writer.is_closing():
                return

    def script_h2(self, path: str) -> "H2Script":
        return self._h2.get(path, H2Script())


def _context(certificate: Path, h2: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    context.set_alpn_protocols(["h2", "http/1.1"] if h2 else ["http/1.1"])
    return context


class H2Script(Struct, frozen=True):
    """An HTTP/2 answer."""

    status: int = 200
    body: bytes = b"ok"
    headers: tuple[tuple[str, str], ...] = ()
    hangs: bool = False
    refuses: bool = False
    """Refuses the first request with REFUSED_STREAM: it was not begun."""
    leaves: int = 0
    """On its first connection it answers so many requests, takes one more, and leaves: GOAWAY, which says how many it
    has begun; what comes after these is not looked at. Those that it has begun hang if it `hangs`."""


class _Http2:
    def __init__(self, server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        self._server, self._reader, self._writer, self._number = server, reader, writer, number
        self._h2 = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        self._open: dict[int, tuple[dict[str, str], bytes]] = {}
        self._refused = False
        self._begun: list[int] = []
        self._left = False

    async def run(self) -> None:
        self._h2.initiate_connection()
        while True:
            self._writer.write(self._h2.data_to_send())
            data = await self._reader.read(65536)
            if not data:
                return
            if self._left:
                continue
            for event in self._h2.receive_data(data):
                self._on(event)

    def _on(self, event: Event) -> None:
        if isinstance(event, RequestReceived):
            self._open[event.stream_id] = ({str(name): str(value) for name, value in event.headers}, b"")
        elif isinstance(event, DataReceived):
            head, body = self._open[event.stream_id]
            self._open[event.stream_id] = (head, body + event.data)
            self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, StreamEnded):
            self._answer(event.stream_id, *self._open.pop(event.stream_id))
        elif isinstance(event, StreamReset):
            self._open.pop(event.stream_id, None)

    def _answer(self, stream: int, head: Mapping[str, str], body: bytes) -> None:
        script = self._server.script_h2(head[":path"])
        if self._left:
            return
        if script.refuses and not self._refused:
            self._refused = True
            self._h2.reset_stream(stream, ErrorCodes.REFUSED_STREAM)
            return
        if script.leaves and not self._number:
            if len(self._begun) == script.leaves:
                self._h2.close_connection(last_stream_id=self._begun[-1])
                self._left = True
                return
            self._begun.append(stream)
        headers = tuple((name, value) for name, value in head.items() if not name.startswith(":"))
        self._server.seen.append(SeenRequest(head[":method"], head[":path"], "HTTP/2", headers, body, self._number))
        if not script.hangs or (script.leaves and self._number):
            self._h2.send_headers(stream, [(":status", str(script.status)), *script.headers])
            self._h2.send_data(stream, script.body[:16384], end_stream=True)


def answer(status: int, body: bytes = b"ok", headers: Iterable[tuple[str, str]] = ()) -> Script:
    """A well-formed answer."""
    lines = [
        f"HTTP/1.1 {status} Because",
        f"Content-Length: {len(body)}",
        *(f"{name}: {value}" for name, value in headers),
    ]
    return raw("\r\n".join(lines).encode("latin-1") + _END + body)


def raw(data: bytes, then: Callable[[Connection], object] | None = None) -> Script:
    """Writes these bytes. then: `Connection.end` or `Connection.reset`."""

    async def script(line: Connection) -> None:
        await line.write(data)
        if then is not None:
            then(line)

    return script


def parts(pieces: Iterable[bytes], pause: float) -> Script:
    """Writes the pieces with a pause in seconds between them."""

    async def script(line: Connection) -> None:
        for piece in pieces:
            await line.write(piece)
            await asyncio.sleep(pause)

    return script


def redirect(status: int, location: str) -> Script:
    return answer(status, b"", [("Location", location)])


def zipped(size: int) -> Script:
    """A body that is a gzip bomb: so many zeros, a thousandth of that on the wire."""
    return answer(200, gzip.compress(bytes(size)), [("Content-Encoding", "gzip"), ("Content-Type", "application/json")])


def then_hang(data: bytes) -> Script:
    """Writes these bytes, then hangs until the other side closes."""

    async def script(line: Connection) -> None:
        await line.write(data)
        await line.wait_closed()
        line.end()

    return script


def streamed(size: int, written: list[int]) -> Script:
    """Writes a body of so many bytes as fast as possible. `written[0]`: the bytes written in the end."""

    async def script(line: Connection) -> None:
        chunk = bytes(65536)
        await line.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        written.append(0)
        try:
            while written[0] < size:
                await line.write(chunk)
                written[0] += len(chunk)
        except ConnectionError:
            line.end()

    return script


ok = answer(200)
hang = then_hang(b"")
reset_before_answer = raw(b"", Connection.reset)
end_before_answer = raw(b"", Connection.end)
