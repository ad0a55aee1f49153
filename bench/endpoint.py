"""What deliveries are sent to: an HTTP server in a process of its own, as cheap as Python can have it, that notes on
the board what arrives when, and counts by `webhook-id`: `python -m bench.endpoint`. Its first line says where it is.

`/slow` answers after five seconds, `/counts` with what came so far, everything else at once.
"""

import contextlib
import json
import resource
import select
import socket
import subprocess
import sys
import time
import urllib.request
from collections import Counter, deque
from collections.abc import Iterator

from msgspec import Struct

from bench.board import BOARD
from bench.crew import ROOT

SLOW = 5.0
_OK = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 2\r\n\r\nok"
_HEAD_END, _LENGTH, _ID = b"\r\n\r\n", b"\r\nContent-Length: ", b"\r\nWebhook-Id: "


class Counts(Struct, frozen=True):
    """What an endpoint has seen."""

    times: dict[str, int]
    """How often, by webhook-id."""
    most: int
    """Requests that waited for the slow answer at once."""


class Endpoint:
    """From another process. `url` ends with a slash."""

    def __init__(self, process: "subprocess.Popen[bytes]", url: str) -> None:
        self.pid, self.url = process.pid, url

    def counts(self) -> Counts:
        """What it has seen so far."""
        with urllib.request.urlopen(f"{self.url}counts", timeout=10) as answer:
            return Counts(**json.load(answer))


@contextlib.contextmanager
def endpoint() -> Iterator[Endpoint]:
    """One that listens while the block runs."""
    with subprocess.Popen([sys.executable, "-m", "bench.endpoint"], stdout=subprocess.PIPE, cwd=ROOT) as process:
        try:
            assert process.stdout is not None
            yield Endpoint(process, process.stdout.readline().decode().strip())
        finally:
            process.kill()


class _Line(Struct):
    """One connection."""

    socket: socket.socket
    unread: bytes = b""


class _Server:
    """One loop around epoll, without asyncio: that takes half of the CPU."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener, self._poll = listener, select.epoll()
        self._poll.register(listener, select.EPOLLIN)
        self._lines: dict[int, _Line] = {}
        self._slow: deque[tuple[float, _Line]] = deque()
        self._times: Counter[str] = Counter()
        self._most = 0

    def serve(self) -> None:
        """For ever."""
        while True:
            pause = max(0.0, self._slow[0][0] - time.monotonic()) if self._slow else None
            for number, _ in self._poll.poll(pause):
                if number == self._listener.fileno():
                    self._accept()
                else:
                    self._read(self._lines[number])
            while self._slow and self._slow[0][0] <= time.monotonic():
                self._answer(self._slow.popleft()[1])

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                line = _Line(self._listener.accept()[0])
                line.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._lines[line.socket.fileno()] = line
                self._poll.register(line.socket, select.EPOLLIN)

    def _read(self, line: _Line) -> None:
        try:
            data = line.socket.recv(65536)
        except ConnectionError:
            data = b""
        if not data:
            del self._lines[line.socket.fileno()]
            line.socket.close()
            return
        line.unread += data
        head, found, rest = line.unread.partition(_HEAD_END)
        if found and len(rest) >= (length := int(_value(head, _LENGTH) or 0)):
            line.unread = rest[length:]
            self._asked(line, head, rest[:length])

    def _asked(self, line: _Line, head: bytes, body: bytes) -> None:
        path = head.split(b" ", 2)[1]
        if path == b"/counts":
            _tell(line, json.dumps({"times": self._times, "most": self._most}).encode())
            return
        self._times[_value(head, _ID).decode()] += 1
        _note(int(body[body.index(b":") + 1 : body.index(b",")]))
        if path == b"/slow":
            self._slow.append((time.monotonic() + SLOW, line))
            self._most = max(self._most, len(self._slow))
        else:
            self._answer(line)

    def _answer(self, line: _Line) -> None:
        with contextlib.suppress(OSError):  # it has gone
            line.socket.send(_OK)


def _tell(line: _Line, told: bytes) -> None:
    line.socket.setblocking(True)
    line.socket.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(told), told))
    line.socket.setblocking(False)


def _value(head: bytes, name: bytes) -> bytes:
    """Of a header, as tarry's own client writes its name; empty if there is none."""
    at = head.find(name)
    end = head.find(b"\r\n", at + 2)
    return b"" if at < 0 else head[at + len(name) : end if end > 0 else None]


def _note(number: int) -> None:
    BOARD.passed(number)
    BOARD.start[number] = time.time()


if __name__ == "__main__":
    _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    listening = socket.create_server(("127.0.0.1", 0), backlog=4096)
    listening.setblocking(False)
    print(f"http://127.0.0.1:{listening.getsockname()[1]}/", flush=True)
    _Server(listening).serve()
