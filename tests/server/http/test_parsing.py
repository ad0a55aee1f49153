"""The HTTP parser of the door, over real sockets, with requests that nobody wrote by hand."""

import logging
import re
import socket
from collections.abc import Iterator, Sequence
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.server.http.test_protocol import GET, Served, answer, serving
from tests.worker.bench import LIMIT, until

PARTS = [
    b"GET / HTTP/1.1\r\n", b"POST /v1/jobs HTTP/1.1\r\n", b"HEAD /x?y=z HTTP/1.0\r\n", b"GET http://e/ HTTP/1.1\r\n",
    b"Host: t\r\n", b"Content-Length: 5\r\n", b"Content-Length: 0\r\n", b"content-length: 99999999999999999999\r\n",
    b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: gzip\r\n", b"Connection: close\r\n",
    b"Connection: upgrade\r\nUpgrade: websocket\r\n", b"Expect: 100-continue\r\n", b"x: \xff\x80\r\n", b" folded\r\n",
    b"\r\n", b"\n", b"hello", b"5\r\nhello\r\n", b"0\r\n\r\n", b"ffffffffffffffff\r\n", b"5;a=b\r\n", b"\x00",
]  # fmt: skip
FLOOD = st.lists(st.sampled_from(PARTS) | st.binary(max_size=8), min_size=1, max_size=14).map(b"".join)
STATUSES = {"100", "200", "400", "405", "413", "431", "503"}
# Statuses are enough of an answer here: its length is checked where all requests are right.
_STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")

bounded = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@pytest.fixture(scope="module")
def door() -> Iterator[Served]:
    with serving() as served:
        yield served


def send_in_pieces(client: socket.socket, data: bytes, cuts: Sequence[int]) -> None:
    # Or the kernel would put them together again.
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    for start, end in pairwise(places):
        client.sendall(data[start:end])


def read_to_end(client: socket.socket) -> bytes:
    found = b""
    try:
        while more := client.recv(65536):
            found += more
    # The door ended the connection before it had read all.
    except ConnectionResetError:
        pass
    return found


@bounded
@given(flood=FLOOD, cuts=st.lists(st.integers(0, 500), max_size=4))
def test_whatever_comes_the_door_answers_in_http_and_goes_on(
    door: Served, caplog: pytest.LogCaptureFixture, flood: bytes, cuts: list[int]
) -> None:
    caplog.set_level(logging.WARNING)
    with door.client() as client:
        try:
            send_in_pieces(client, flood, cuts)
            client.shutdown(socket.SHUT_WR)
        except OSError:
            # Refused while it was sending.
            pass
        found = read_to_end(client)
    assert found == b"" or found.startswith(b"HTTP/1.1 ")
    assert {status.decode() for status in _STATUS.findall(found)} <= STATUSES
    with door.client(GET) as client:
        assert answer(client)[0] == 200
    until(lambda: (door.door.puts, door.door.in_flight, door.connections.open) == (0, 0, 0))
    assert caplog.messages == []


def _request(size: int, is_chunked: bool, is_put: bool) -> bytes:
    head = b"POST %s HTTP/1.1\r\nHost: t\r\n" % (b"/v1/jobs" if is_put else b"/")
    body = b"x" * size
    if not is_chunked:
        return head + b"Content-Length: %d\r\n\r\n" % size + body
    parts = [body[at : at + 1000] for at in range(0, size, 1000)]
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)
    return head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"


@bounded
@given(
    wanted=st.lists(st.tuples(st.integers(0, 3000), st.booleans(), st.booleans()), min_size=1, max_size=6),
    cuts=st.lists(st.integers(0, 20_000), max_size=6),
)
def test_however_requests_are_cut_each_has_its_answer_in_turn(
    door: Served, wanted: list[tuple[int, bool, bool]], cuts: list[int]
) -> None:
    last = b"GET / HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n"
    with door.client() as client:
        client.settimeout(LIMIT)
        send_in_pieces(client, b"".join(_request(*each) for each in wanted) + last, cuts)
        found = read_to_end(client)
    answers = [part.partition(b"\r\n\r\n")[2] for part in found.split(b"HTTP/1.1 200 OK\r\n")[1:]]
    assert answers == [b"%d" % size for size, _, _ in wanted] + [b"0"]
    until(lambda: (door.door.puts, door.door.in_flight) == (0, 0))
