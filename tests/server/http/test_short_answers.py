"""Answers that are made outside of the usual path, as "busy": their length, and the end of the connection."""

import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

import pytest

from tarry.server.connection_limits import Connections
from tarry.server.http.protocol import MOST_HEAD
from tests.server.http.test_protocol import GET, PATIENT, PUT, QUICK, Served, serving
from tests.worker.bench import until

ENDINGS = {
    "1.0": (b"HTTP/1.0", b""),
    "1.0 keep-alive": (b"HTTP/1.0", b"Connection: keep-alive\r\n"),
    "close": (b"HTTP/1.1", b"Connection: close\r\n"),
    "Close among others": (b"HTTP/1.1", b"CONNECTION: Keep-Alive, Close\r\n"),
    "1.1": (b"HTTP/1.1", b""),
}
"""How clients say whether the connection goes on: the version, and a line of the head."""
Ask = Callable[[Served, bytes, bytes], socket.socket]


def head(version: bytes, more: bytes, request: bytes = b"POST /v1/jobs") -> bytes:
    return b"%b %b\r\nHost: t\r\n%bContent-Length: 2\r\n\r\n" % (request, version, more)


def whole_put(served: Served, version: bytes, more: bytes) -> socket.socket:
    return served.client(head(version, more) + b"{}")


def put_in_parts(served: Served, version: bytes, more: bytes) -> socket.socket:
    client = served.client(head(version, more))
    until(lambda: served.door.state.connections)
    client.sendall(b"{}")
    return client


def put_after_another(served: Served, version: bytes, more: bytes) -> socket.socket:
    client = served.client(PUT)
    assert read(client)[0] == 503
    client.sendall(head(version, more) + b"{}")
    return client


def bad_line(served: Served, version: bytes, more: bytes) -> socket.socket:
    return served.client(b"what is this\r\n" + more + b"\r\n")


def two_hosts(served: Served, version: bytes, more: bytes) -> socket.socket:
    return served.client(head(version, b"Host: u\r\n" + more))


def large_head(served: Served, version: bytes, more: bytes) -> socket.socket:
    return served.client(head(version, b"A: " + b"x" * MOST_HEAD + b"\r\n" + more)[:-4])


def late_head(served: Served, version: bytes, more: bytes) -> socket.socket:
    return served.client(head(version, more)[:-4])


def late_body(served: Served, version: bytes, more: bytes) -> socket.socket:
    return served.client(head(version, more, b"POST /"))


def while_it_drains(served: Served, version: bytes, more: bytes) -> socket.socket:
    served.do(served.application.may_answer.clear)
    client = served.client(head(version, more, b"POST /") + b"{}")
    until(lambda: served.application.calls)
    served.do(served.door.drain)
    served.do(served.application.may_answer.set)
    return client


def busy_while_it_drains(served: Served, version: bytes, more: bytes) -> socket.socket:
    client = served.client()
    until(lambda: served.door.state.connections)
    served.do(served.door.drain)
    client.sendall(head(version, more) + b"{}")
    return client


@contextmanager
def full() -> Iterator[Served]:
    with serving(connections=Connections(1)) as served, served.client(GET) as first:
        assert read(first)[0] == 200
        yield served


KINDS: dict[str, tuple[Callable[[], AbstractContextManager[Served]], Ask, int, bool]] = {
    "busy": (lambda: serving(most_puts=0), whole_put, 503, False),
    "busy, in parts": (lambda: serving(most_puts=0), put_in_parts, 503, False),
    "busy again": (lambda: serving(most_puts=0), put_after_another, 503, False),
    "busy, draining": (lambda: serving(most_puts=0), busy_while_it_drains, 503, True),
    "draining": (serving, while_it_drains, 200, True),
    "too many": (full, whole_put, 503, True),
    "bad line": (serving, bad_line, 400, True),
    "two hosts": (serving, two_hosts, 400, True),
    "large head": (serving, large_head, 431, True),
    "late head": (lambda: serving(QUICK), late_head, 408, True),
    "late body": (lambda: serving(QUICK), late_body, 408, True),
}
"""Who serves, what a client does, the status, and whether the connection ends in any case."""


def read(client: socket.socket) -> tuple[int, dict[str, str]]:
    """The status and head of an answer whose body is as long as it says."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += (part := client.recv(65536))
        assert part, data
    before, _, body = data.partition(b"\r\n\r\n")
    line, *lines = before.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (each.partition(": ") for each in lines)}
    while len(body) < int(headers["content-length"]):
        body += (part := client.recv(65536))
        assert part, body
    assert len(body) == int(headers["content-length"]), body
    return int(line.split()[1]), headers


def check(client: socket.socket, ending: str, status: int, ends: bool) -> None:
    client.settimeout(20)
    found, headers = read(client)
    assert found == status, ending
    if ends or ending != "1.1":
        assert headers["connection"] == "close", ending
        assert client.recv(1) == b"", ending
    else:
        assert headers["connection"] == "keep-alive", ending
        client.sendall(GET)
        assert read(client)[0] == 200, ending


@pytest.mark.parametrize("kind", [kind for kind in KINDS if not kind.startswith("late")])
def test_who_reads_to_the_end_comes_to_it(kind: str) -> None:
    serve, ask, status, ends = KINDS[kind]
    assert PATIENT.keep_alive > 30
    for ending, (version, more) in ENDINGS.items():
        with serve() as served, ask(served, version, more) as client:
            check(client, ending, status, ends)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.startswith("late")])
def test_who_is_late_comes_to_the_end(kind: str) -> None:
    serve, ask, status, ends = KINDS[kind]
    with serve() as served, ExitStack() as clients:
        # All wait for the same sweep.
        asked = [(ending, clients.enter_context(ask(served, *how))) for ending, how in ENDINGS.items()]
        for ending, client in asked:
            check(client, ending, status, ends)
