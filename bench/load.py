"""Load on a door, from a process of its own that is as cheap as Python can have it: `python -m bench.load`.

It reads a Load as JSON from stdin and prints a LoadResult. With a rate, requests are sent at their moments whether
earlier ones are answered or not (an open loop), each on a connection that is free; without, each connection sends its
next request when the one before is answered (a closed loop).
"""

import contextlib
import resource
import select
import socket
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Callable
from itertools import cycle

import msgspec
from msgspec import Struct

from bench.crew import ROOT
from bench.measure import percentile

_LENGTH = b"\r\ncontent-length: "


class Load(Struct):
    """What to send. requests: in turn, over all connections."""

    address: tuple[str, int]
    requests: list[bytes]
    protocol: str = "http"
    """http, or beanstalk: of that, `reserve` alone is followed by a `delete` of the job that came."""
    connections: int = 50
    seconds: float = 5.0
    depth: int = 1
    """How many requests a connection sends before the first answer, in a closed loop."""
    rate: float = 0.0
    warm: float = 0.5
    """Seconds at the beginning that do not count."""
    hello: bytes = b""
    """What each connection sends first: lines of beanstalk, with one line for each as the answer."""


class LoadResult(Struct):
    """What came back."""

    seconds: float
    answers: dict[str, int]
    """How many, by the status of HTTP or the first word of beanstalk; `refused` and `closed`: connections."""
    latency: dict[str, tuple[float, float, float]]
    """p50, p99 and the longest in ms, by the same."""
    unsent: int
    """Requests whose moment came while no connection was free."""

    def rate(self, answer: str) -> float:
        """How many of these a second."""
        return self.answers.get(answer, 0) / self.seconds


def send(load: Load) -> LoadResult:
    """Runs the load in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.load"],
        input=msgspec.json.encode(load),
        stdout=subprocess.PIPE,
        cwd=ROOT,
        timeout=load.seconds + 60,
        check=True,
    )
    return msgspec.json.decode(done.stdout, type=LoadResult)


def _http_answer(data: bytes) -> tuple[str, int]:
    """The status and the length of the first answer; length 0: it is not whole."""
    end = data.find(b"\r\n\r\n")
    if end < 0:
        return "", 0
    at = data.lower().find(_LENGTH, 0, end + 2)
    stop = data.find(b"\r\n", at + len(_LENGTH))
    length = int(data[at + len(_LENGTH) : stop]) if at >= 0 else 0
    whole = end + 4 + length
    return data[9:12].decode(), whole if len(data) >= whole else 0


def _beanstalk_answer(data: bytes) -> tuple[str, int]:
    end = data.find(b"\r\n")
    if end < 0:
        return "", 0
    words = data[:end].split(b" ")
    body = int(words[-1]) + 2 if words[0] in (b"RESERVED", b"FOUND", b"OK") else 0
    whole = end + 2 + body
    return words[0].decode(), whole if len(data) >= whole else 0


class _Line:
    """One connection, and the moments of its requests that are not answered."""

    __slots__ = ("socket", "unread", "waiting")

    def __init__(self, opened: socket.socket) -> None:
        self.socket, self.unread = opened, b""
        self.waiting: deque[float] = deque()


class _Sender:
    def __init__(self, load: Load) -> None:
        self._load = load
        self._split: Callable[[bytes], tuple[str, int]] = _http_answer if load.protocol == "http" else _beanstalk_answer
        self._requests = cycle(load.requests)
        self._poll = select.epoll()
        self._lines: dict[int, _Line] = {}
        self._free: deque[_Line] = deque()
        self._answers: Counter[str] = Counter()
        self._latency: dict[str, list[float]] = {}
        self._unsent = 0
        self._counts_from = 0.0

    def run(self) -> LoadResult:
        """To its end."""
        for _ in range(self._load.connections):
            self._open()
        begin = time.perf_counter()
        self._counts_from, end = begin + self._load.warm, begin + self._load.warm + self._load.seconds
        if self._load.rate:
            self._paced(begin, end)
        else:
            self._closed(end)
        return LoadResult(
            self._load.seconds,
            dict(self._answers),
            {
                name: (percentile(found, 0.5), percentile(found, 0.99), max(found))
                for name, found in self._latency.items()
            },
            self._unsent,
        )

    def _open(self) -> None:
        try:
            opened = socket.create_connection(self._load.address, 10)
        except OSError:
            self._answers["refused"] += 1
            return
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._greet(opened)
        opened.setblocking(False)
        line = self._lines[opened.fileno()] = _Line(opened)
        self._poll.register(opened, select.EPOLLIN)
        self._free.append(line)

    def _greet(self, opened: socket.socket) -> None:
        hello, answer = self._load.hello, b""
        opened.sendall(hello)
        while answer.count(b"\r\n") < hello.count(b"\r\n"):
            answer += opened.recv(4096)

    def _closed(self, end: float) -> None:
        for line in list(self._lines.values()):
            self._send(line, b"".join(next(self._requests) for _ in range(self._load.depth)), self._load.depth)
        while (now := time.perf_counter()) < end:
            for line in self._answered(end - now):
                # Only when the whole pipeline is answered: otherwise it would shrink to single requests.
                if not line.waiting:
                    many = self._load.depth
                    self._send(line, b"".join(next(self._requests) for _ in range(many)), many)

    def _paced(self, begin: float, end: float) -> None:
        sent = 0
        while (now := time.perf_counter()) < end:
            due = int((now - begin) * self._load.rate)
            while sent < due:
                sent += 1
                if self._free:
                    self._send(self._free.popleft(), next(self._requests), 1)
                elif now > self._counts_from:
                    self._unsent += 1
            pause = begin + (sent + 1) / self._load.rate - time.perf_counter()
            self._free.extend(self._answered(max(0.0, min(pause, end - now))))

    def _send(self, line: _Line, data: bytes, count: int) -> None:
        line.waiting.extend([time.perf_counter()] * count)
        try:
            line.socket.setblocking(True)
            line.socket.sendall(data)
            line.socket.setblocking(False)
        except OSError:
            self._lost(line)

    def _answered(self, pause: float) -> list[_Line]:
        """The connections on which nothing is under way any more."""
        found = []
        for number, _ in self._poll.poll(pause):
            line = self._lines.get(number)
            if line is not None and self._read(line) and not line.waiting:
                found.append(line)
        return found

    def _read(self, line: _Line) -> bool:
        try:
            data = line.socket.recv(262144)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self._lost(line)
            return False
        line.unread += data
        now = time.perf_counter()
        while True:
            status, length = self._split(line.unread)
            if not length:
                return True
            answer, line.unread = line.unread[:length], line.unread[length:]
            # A server that has too many connections answers before it was asked.
            if not line.waiting:
                self._answers["refused"] += 1
                continue
            self._count(status, now - line.waiting.popleft(), now)
            if status == "RESERVED":
                self._send(line, b"delete %s\r\n" % answer.split(b" ", 2)[1], 1)

    def _count(self, status: str, seconds: float, now: float) -> None:
        if now >= self._counts_from:
            self._answers[status] += 1
            self._latency.setdefault(status, []).append(seconds * 1e3)

    def _lost(self, line: _Line) -> None:
        self._answers["closed"] += 1
        del self._lines[line.socket.fileno()]
        line.socket.close()
        self._open()
        if not self._load.rate and self._free:
            self._send(self._free.pop(), next(self._requests), 1)


if __name__ == "__main__":
    _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    found = _Sender(msgspec.json.decode(sys.stdin.buffer.read(), type=Load)).run()
    sys.stdout.buffer.write(msgspec.json.encode(found))
