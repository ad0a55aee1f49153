"""The small HTTP server for /metrics, over real sockets, and its bounds."""

import gzip
import http.client
import socket
import threading
from collections.abc import Iterator

import pytest

from tarry.metrics import listener as module
from tarry.metrics.listener import MOST_AT_ONCE, MOST_HEAD, MetricsListener


class Served:
    """A listener, and what it was asked."""

    def __init__(self) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.socket.setblocking(False)
        self.text, self.accepts = b"x 1\n", list[str]()
        self.gate: threading.Event | None = None
        self.listener = MetricsListener(self.answer, [self.socket])
        self.listener.start()

    def answer(self, accept: str) -> tuple[bytes, str]:
        self.accepts.append(accept)
        if self.gate is not None:
            assert self.gate.wait(20)
        return self.text, "text/x"

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.socket.getsockname()
        return host, port

    def ask(self, method: str = "GET", path: str = "/metrics", **headers: str) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection(*self.address, timeout=20)
        connection.request(method, path, headers={name.replace("_", "-"): text for name, text in headers.items()})
        return connection.getresponse()

    def raw(self, sent: bytes) -> bytes:
        with socket.create_connection(self.address, timeout=20) as connection:
            connection.sendall(sent)
            return read_all(connection)


def read_all(connection: socket.socket) -> bytes:
    found = b""
    while part := connection.recv(65536):
        found += part
    return found


@pytest.fixture
def served() -> Iterator[Served]:
    served = Served()
    yield served
    served.listener.close()
    served.socket.close()


def test_it_answers_with_what_the_reader_takes(served: Served) -> None:
    answer = served.ask(Accept="application/openmetrics-text")
    assert (answer.status, answer.read(), answer.headers["Content-Type"]) == (200, b"x 1\n", "text/x")
    assert served.accepts == ["application/openmetrics-text"]


def test_a_long_answer_is_compressed_for_those_who_take_it(served: Served) -> None:
    served.text = b"x 1\n" * 1000
    answer = served.ask(Accept_Encoding="gzip")
    assert answer.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(answer.read()) == served.text
    assert served.ask(Accept_Encoding="gzip;q=0").read() == served.text
    assert served.ask(Accept_Encoding="identity").read() == served.text


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/metrics?x=1", 200), ("GET", "/", 404), ("GET", "/metrics/x", 404), ("POST", "/metrics", 405)],
)
def test_there_is_nothing_else(served: Served, method: str, path: str, status: int) -> None:
    assert served.ask(method, path).status == status


def test_a_head_request_gets_no_body(served: Served) -> None:
    answer = served.ask("HEAD")
    assert (answer.status, answer.headers["Content-Length"], answer.read()) == (200, "4", b"")


@pytest.mark.parametrize(
    "sent", [b"nonsense\r\n\r\n", b"GET / HTTP/1.1\r\nx: " + b"x" * MOST_HEAD, b"\x16\x03\x01\r\n\r\n"]
)
def test_what_is_no_request_is_told_so(served: Served, sent: bytes) -> None:
    assert served.raw(sent).startswith(b"HTTP/1.1 400 ")
    assert served.ask().status == 200


def test_a_client_that_sends_nothing_is_let_go(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HEAD_WITHIN", 0.2)
    with socket.create_connection(served.address, timeout=20) as silent:
        silent.sendall(b"GET /met")
        assert read_all(silent) == b""


def test_more_readers_than_it_bears_are_told_so(served: Served) -> None:
    served.gate = threading.Event()
    request = b"GET /metrics HTTP/1.1\r\n\r\n"
    kept = [socket.create_connection(served.address, timeout=20) for _ in range(MOST_AT_ONCE)]
    for one in kept:
        one.sendall(request)
    # Until the listener has taken all of these, another one may still find room, and would wait.
    while len(served.accepts) < MOST_AT_ONCE:
        threading.Event().wait(0.01)
    assert served.raw(request).startswith(b"HTTP/1.1 503 ")
    served.gate.set()
    assert [read_all(one).partition(b" ")[2][:3] for one in kept] == [b"200"] * MOST_AT_ONCE
    for one in kept:
        one.close()


def test_what_fails_takes_no_room(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(accept: str) -> tuple[bytes, str]:
        raise RuntimeError("no")

    monkeypatch.setattr(served.listener, "_answer", fail)
    for _ in range(MOST_AT_ONCE + 1):
        assert served.raw(b"GET /metrics HTTP/1.1\r\n\r\n") == b""
    monkeypatch.undo()
    assert served.ask().status == 200
