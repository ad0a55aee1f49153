"""Connections of the HTTP door over real sockets: what clients may not do, and what they are told."""

import asyncio
import json
import random
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
import uvloop

from tarry.server.connection_limits import Connections
from tarry.server.http import protocol
from tarry.server.http.protocol import HttpConnections, HttpLimits
from tests.worker.bench import LIMIT, until

QUICK = HttpLimits(read_timeout=0.3, keep_alive=0.3)
PATIENT = HttpLimits(read_timeout=60.0, keep_alive=60.0)
GET = b"GET / HTTP/1.1\r\nHost: t\r\n\r\n"
PUT = b"POST /v1/jobs HTTP/1.1\r\nHost: t\r\nContent-Length: 2\r\n\r\n{}"


class Application:
    """Answers with the length of the body, once it may."""

    def __init__(self) -> None:
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.calls, self.reads = 0, True

    async def __call__(self, scope: Any, receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
        self.calls += 1
        length, more = 0, self.reads
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            length, more = length + len(message.get("body", b"")), message.get("more_body", False)
        await self.may_answer.wait()
        body = b"%d" % length
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
        await send({"type": "http.response.body", "body": body})


class Served:
    """A door on a port, in a thread of the test."""

    def __init__(self, limits: HttpLimits, connections: Connections, most_puts: int) -> None:
        self._limits, self.connections, self._most_puts = limits, connections, most_puts
        self.application: Application
        self.door: HttpConnections
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: uvloop.run(self._serve()))

    def start(self) -> None:
        self._thread.start()
        assert self._ready.wait(LIMIT)

    async def _serve(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        self.application = Application()
        self.door = HttpConnections(self.application, self.connections, self._limits, self._most_puts)
        listener = socket.create_server(("127.0.0.1", 0))
        self.port = listener.getsockname()[1]
        self._server = await self._loop.create_server(self.door.make_connection, sock=listener)
        self.door.start()
        self._ready.set()
        await self._end.wait()
        self._server.close()
        await self.door.wait_until_gone(0)

    def do(self, action: Callable[[], object]) -> None:
        """Does it on the event loop, and returns when it is done."""
        done = threading.Event()
        self._loop.call_soon_threadsafe(action)
        self._loop.call_soon_threadsafe(done.set)
        assert done.wait(LIMIT)

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(LIMIT)
        assert not self._thread.is_alive()

    def client(self, *data: bytes) -> socket.socket:
        connected = socket.create_connection(("127.0.0.1", self.port), LIMIT)
        for part in data:
            connected.sendall(part)
        return connected


@contextmanager
def serving(
    limits: HttpLimits = PATIENT, connections: Connections | None = None, most_puts: int = 1000
) -> Iterator[Served]:
    served = Served(limits, connections or Connections(1000), most_puts)
    served.start()
    try:
        yield served
    finally:
        served.end()


def answer(client: socket.socket) -> tuple[int, dict[str, str], bytes]:
    """The status, headers and body of the next answer; status 0: the connection ended before."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = client.recv(65536)
        if not more:
            return 0, {}, data
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}
    while len(body) < int(headers["content-length"]):
        body += client.recv(65536)
    return int(lines[0].split()[1]), headers, body[: int(headers["content-length"])]


def has_ended(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


def test_requests_on_one_connection_are_answered_in_turn() -> None:
    with serving() as served, served.client(GET) as client:
        assert answer(client)[0] == 200
        client.sendall(b"POST /a HTTP/1.1\r\nHost: t\r\nContent-Length: 100000\r\n\r\n" + b"x" * 100_000)
        status, headers, body = answer(client)
        assert (status, body) == (200, b"100000")
        assert headers["date"].endswith("GMT")
    until(lambda: served.connections.open == 0)


def test_pipelined_requests_are_answered_in_order() -> None:
    sizes = [3, 0, 70_000, 1]
    requests = [b"POST / HTTP/1.1\r\nHost: t\r\nContent-Length: %d\r\n\r\n" % size + b"x" * size for size in sizes]
    with serving() as served, served.client(b"".join(requests)) as client:
        data = b""
        while data.count(b"HTTP/1.1 200") < 4 or not data.endswith(b"\r\n\r\n1"):
            data += client.recv(65536)
        assert [part.rpartition(b"\r\n")[2] for part in data.split(b"HTTP/1.1 200 OK")[1:]] == [
            b"3",
            b"0",
            b"70000",
            b"1",
        ]


@pytest.mark.parametrize(
    "begun", [b"", b"GET / HTTP/1.1\r\nHo", b"POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 9\r\n\r\nx", b"\r\n\r\n"]
)
def test_a_client_that_is_too_slow_is_ended(begun: bytes) -> None:
    with serving(QUICK) as served, served.client(begun) as client:
        status, _, body = answer(client)
        if b"HTTP" in begun:
            assert (status, json.loads(body)["status"]) == (408, 408)
        else:
            assert status == 0
        assert has_ended(client)
        until(lambda: served.connections.open == 0)


def test_a_slow_client_that_sends_byte_after_byte_is_ended_too() -> None:
    with serving(QUICK) as served, served.client(b"GET / HTTP/1.1\r\n") as client:
        client.settimeout(0.05)
        statuses: list[int] = []
        while not statuses:
            try:
                client.sendall(b"x: y\r\n")
                statuses.append(answer(client)[0])
            except TimeoutError:
                continue
            except OSError:
                statuses.append(0)
        assert statuses[0] in (408, 0)


def test_an_idle_connection_is_ended() -> None:
    with serving(QUICK) as served, served.client(GET) as client:
        assert answer(client)[0] == 200
        assert has_ended(client)


def test_while_the_server_works_no_time_runs() -> None:
    with serving(QUICK) as served:
        served.do(served.application.may_answer.clear)
        with served.client(GET) as client:
            client.settimeout(1.5)
            with pytest.raises(TimeoutError):
                client.recv(1)
            served.do(served.application.may_answer.set)
            client.settimeout(LIMIT)
            assert answer(client)[0] == 200


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET / HTTP/1.1\r\nx: " + b"y" * 70_000, 431),
        (b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 200, 431),
        (b"GET /" + b"y" * 70_000 + b" HTTP/1.1\r\nHost: t\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: t\r\nx: y\r\nhost: u\r\n\r\n", 400),
        (b"\x00\x01\x02garbage\r\n\r\n", 400),
        (b"GET / HTTP/9.9\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: t\r\nContent-Length: x\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
    ],
)
def test_what_is_no_request_is_refused_and_the_connection_ends(request_: bytes, status: int) -> None:
    with serving() as served, served.client(request_) as client:
        found, headers, body = answer(client)
        assert (found, headers["connection"]) == (status, "close")
        assert json.loads(body)["status"] == status
        assert has_ended(client)
        assert served.door.invalid == 1


def test_an_old_client_needs_no_host() -> None:
    with serving() as served, served.client(b"GET / HTTP/1.0\r\n\r\n") as client:
        assert answer(client)[0] == 200


def test_garbage_ends_only_its_own_connection() -> None:
    chance = random.Random(7)
    with serving() as served:
        for _ in range(200):
            with served.client() as client:
                client.sendall(chance.randbytes(chance.randrange(1, 300)))
        with served.client(GET) as client:
            assert answer(client)[0] == 200
        until(lambda: served.connections.open == 0)
        assert served.door.puts == 0


@pytest.mark.parametrize("begun", [b"", b"GET / HTTP/1.1\r\nHo"])
def test_the_oldest_unfinished_head_makes_room(begun: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that never end their heads keep nobody out, and one whose request is under way keeps its place."""
    monkeypatch.setattr(protocol, "HEAD_GRACE", 0.0)
    with serving(connections=Connections(4)) as served, ExitStack() as all_clients:
        busy = all_clients.enter_context(served.client(b"POST /slow HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\n\r\n"))
        until(lambda: served.connections.open == 1 and not served.door.unfinished)
        slow = [all_clients.enter_context(served.client(begun)) for _ in range(30)]
        until(lambda: served.connections.accepted == 31)
        assert served.connections.open == 4
        for _ in range(3):
            with served.client(GET) as other:
                assert answer(other)[0] == 200
        assert answer(slow[0])[0] == 408
        busy.sendall(b"hello")
        assert answer(busy)[0] == 200
        assert served.connections.refused == 0


def test_connections_are_bounded_and_those_beyond_are_told_so() -> None:
    with serving(connections=Connections(2)) as served, served.client(GET) as one, served.client(GET) as two:
        assert (answer(one)[0], answer(two)[0]) == (200, 200)
        with served.client(GET) as third:
            status, headers, body = answer(third)
            assert (status, headers["retry-after"]) == (503, "1")
            assert "as many connections as it takes" in json.loads(body)["detail"]
            assert has_ended(third)
        assert (served.connections.open, served.connections.refused) == (2, 1)
        one.close()
        until(lambda: served.connections.open == 1)
        with served.client(GET) as fourth:
            assert answer(fourth)[0] == 200


def test_an_address_has_a_bound_of_its_own() -> None:
    with serving(connections=Connections(100, 1)) as served, served.client(GET) as one:
        assert answer(one)[0] == 200
        with served.client(GET) as two:
            assert answer(two)[0] == 503


@pytest.mark.parametrize("parts", [[PUT], [PUT[:30], PUT[30:]], [PUT[:-1], PUT[-1:]]])
def test_puts_beyond_the_bound_are_told_busy_at_once_and_cost_no_call(parts: list[bytes]) -> None:
    with serving(most_puts=1) as served:
        served.do(served.application.may_answer.clear)
        with served.client(PUT) as first, served.client() as second:
            until(lambda: served.door.puts == 1)
            for part in parts:
                second.sendall(part)
                until(lambda: served.application.calls == 1)
            status, headers, body = answer(second)
            assert (status, headers["retry-after"], headers["connection"]) == (503, "1", "keep-alive")
            assert json.loads(body)["type"] == "urn:tarry:problem:busy"
            assert served.application.calls == 1
            served.do(served.application.may_answer.set)
            assert answer(first)[0] == 200
            until(lambda: served.door.puts == 0)
            # The same connection goes on.
            second.sendall(PUT)
            assert answer(second)[0] == 200
            assert served.door.shed == 1


@pytest.mark.parametrize("more", [b"", b"Expect: 100-continue\r\n"], ids=["plain", "expects"])
def test_puts_without_their_bodies_keep_nobody_from_putting(more: bytes) -> None:
    head = PUT[:-2].replace(b"Host: t\r\n", b"Host: t\r\n" + more)
    with serving(most_puts=2) as served, ExitStack() as stack:
        slow = [stack.enter_context(served.client(head)) for _ in range(5)]
        until(lambda: served.application.calls == 5)
        with served.client(PUT) as client:
            assert answer(client)[0] == 200
        slow[0].sendall(b"{}")
        if more:
            assert slow[0].recv(65536, socket.MSG_PEEK).startswith(b"HTTP/1.1 100 ")
        else:
            assert answer(slow[0])[0] == 200
        until(lambda: served.door.in_flight == 4 and served.door.puts == 0)


def test_a_put_that_is_answered_before_its_body_came_leaves_no_count() -> None:
    with serving(most_puts=1) as served:
        served.application.reads = False
        with served.client(PUT[:-2]) as client:
            assert answer(client)[0] == 200
            client.sendall(b"{}" + GET)
            assert answer(client)[0] == 200
            assert served.door.puts == 0


def test_other_requests_are_answered_while_puts_are_too_many() -> None:
    with serving(most_puts=0) as served, served.client(GET) as client:
        assert answer(client)[0] == 200
        client.sendall(PUT + GET)
        assert [answer(client)[0]] == [503]


def test_a_client_that_leaves_amid_its_put_leaves_no_count() -> None:
    with serving() as served:
        served.do(served.application.may_answer.clear)
        for _ in range(5):
            served.client(PUT).close()
        until(lambda: served.connections.accepted == 5 and served.connections.open == 0)
        served.do(served.application.may_answer.set)
        until(lambda: served.door.in_flight == 0)
        assert served.door.puts == 0


def test_a_request_whose_client_has_no_address_any_more_is_dropped() -> None:
    with serving() as served:

        def leave() -> None:
            client = served.client(PUT)
            # A reset: the kernel forgets from where it came, and keeps what it sent.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()

        # While the loop is busy, so that it is gone when the door accepts it.
        served.do(leave)
        with served.client(GET) as later:
            assert answer(later)[0] == 200
            assert served.application.calls == 1
            assert served.connections.open == 1


def test_the_last_answer_says_that_the_connection_ends() -> None:
    with serving() as served, served.client(GET) as idle, served.client(GET) as busy:
        assert (answer(idle)[0], answer(busy)[0]) == (200, 200)
        served.do(served.application.may_answer.clear)
        busy.sendall(GET)
        until(lambda: served.door.in_flight == 1)
        served.do(served.door.drain)
        served.do(served.application.may_answer.set)
        status, headers, _ = answer(busy)
        assert (status, headers["connection"]) == (200, "close")
        assert has_ended(busy)
        # Its client may just be sending: it is answered once more.
        idle.sendall(GET)
        status, headers, _ = answer(idle)
        assert (status, headers["connection"]) == (200, "close")
        assert has_ended(idle)


CHUNKED = b"POST /v1/jobs HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n"
MALFORMED = {
    "chunk size": CHUNKED + b"zz\r\n",
    "end of a chunk": CHUNKED + b"2\r\n{}xx\r\n",
    "long chunk size": CHUNKED + b"f" * 100,
    "header": b"GET / HTTP/1.1\r\nHo st: t\r\n\r\n",
    "header without a host": b"GET / HTTP/1.1\r\n\r\n",
    "target": b"GET \x01 HTTP/1.1\r\nHost: t\r\n\r\n",
    "version": b"GET / HTTP/9.9\r\nHost: t\r\n\r\n",
    "method": b"G\x00T / HTTP/1.1\r\nHost: t\r\n\r\n",
    "length": b"POST / HTTP/1.1\r\nHost: t\r\nContent-Length: x\r\n\r\n",
    "two lengths": b"POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
}


@pytest.mark.parametrize("reads", [True, False])
def test_a_malformed_request_is_answered_400_and_leaves_nothing_in_the_log(
    reads: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with serving() as served:
        served.application.reads = reads
        for name, request in MALFORMED.items():
            # In two parts, so that the application may have begun with its answer.
            with served.client(request[:-6]) as client:
                until(lambda: served.door.state.connections)
                client.sendall(request[-6:])
                assert answer(client)[0] in ((400,) if reads else (200, 400)), name
            until(lambda: served.connections.open == 0)
        assert served.door.invalid >= len(MALFORMED) - 4
    assert [record.getMessage() for record in caplog.records] == []
