"""Requests without TLS: their connections, and what is known of a request at each moment."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.push.http.address_guard import AddressGuard
from tarry.push.http.failure import Failure, FailureKind, RequestFailed
from tarry.push.http.http1_client import Http1Client, Http1Pool, encode_head
from tarry.push.http.http1_parser import AnswerError
from tarry.push.http.http_attempt import Hop, SendState
from tarry.push.http.http_sender import METHODS, HttpRequest, SendCancelled, Sender, SendLimits
from tarry.push.http.response import HttpResponse
from tarry.push.http.target import check_headers, parse_target
from tests.push.sending import HEAD, PATIENT, expect_answer, expect_failure, open_connections, run, until
from tests.push.server import Connection, Server, hang, raw

KEPT = HEAD + b"Content-Length: 2\r\n\r\nok"


@pytest.fixture
def unanswered() -> Iterator[int]:
    """A port where a connection is neither made nor refused."""
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        port: int = listening.getsockname()[1]
        # The kernel accepts one more than its backlog, and then drops what comes.
        stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=15))
        yield port


def request(url: str, body: bytes = b"{}") -> HttpRequest:
    return HttpRequest("POST", url, (), body)


def test_who_does_not_connect_in_time_has_sent_nothing(unanswered: int) -> None:
    got = expect_failure(f"http://127.0.0.1:{unanswered}/", SendLimits(10, 0.2))
    assert (got.kind, got.sent, got.connect) == (FailureKind.CONNECT_TIMEOUT, False, 0.0)


@pytest.mark.parametrize("body", [b"{}", b""])
def test_who_is_cancelled_while_connecting_has_sent_nothing(unanswered: int, body: bytes) -> None:
    async def work(sending: Sender) -> bool:
        task = asyncio.create_task(sending.send(request(f"http://127.0.0.1:{unanswered}/", body), PATIENT))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(SendCancelled) as cancelled:
            await task
        return cancelled.value.sent

    assert run(work) is False


def test_to_close_ends_what_is_connecting(unanswered: int) -> None:
    async def work(sending: Sender) -> HttpResponse | Failure:
        task = asyncio.create_task(sending.send(request(f"http://127.0.0.1:{unanswered}/"), SendLimits(60, 60)))
        await asyncio.sleep(0)
        await sending.close()
        return await task

    got = run(work)
    assert isinstance(got, Failure)
    assert (got.kind, got.sent, got.reason) == (FailureKind.LOCAL, False, "the sender is closed")


def test_what_is_left_of_the_time_bounds_connecting_too(unanswered: int) -> None:
    async def work() -> None:
        state = SendState(10, 9)
        state.began -= 9.8
        client = Http1Client("tarry")
        with pytest.raises(RequestFailed) as failed:
            await client.exchange(Hop("POST", parse_target(url), (), b""), "127.0.0.1", state)
        assert (failed.value.kind, failed.value.sent) == (FailureKind.TIMEOUT, False)

    url = f"http://127.0.0.1:{unanswered}/"
    asyncio.run(work())


def test_a_shorter_timeout_holds_on_a_connection_that_had_a_longer_one(server: Server) -> None:
    server.says("/never", hang)

    async def work(sending: Sender) -> HttpResponse | Failure:
        assert isinstance(await sending.send(request(server.url()), SendLimits(90, 50)), HttpResponse)
        return await sending.send(request(server.url("/never")), SendLimits(0.3, 0.2))

    got = run(work)
    assert isinstance(got, Failure)
    assert (got.kind, got.sent) == (FailureKind.UNANSWERED, True)
    assert got.elapsed < 50
    assert {seen.connection for seen in server.seen} == {0}


def test_the_timer_of_an_earlier_request_does_not_end_a_later_one(server: Server) -> None:
    server.says("/never", hang)

    async def work() -> None:
        pool = Http1Pool()
        connection = await pool.open(("a.example", "127.0.0.1", server.port), 10)
        later = asyncio.create_task(connection.request(b"GET /never HTTP/1.1\r\n\r\n", "GET", 60))
        await until(lambda: len(server.seen) == 1)
        connection._check_deadline()
        assert connection._timer is not None
        assert connection._timer.when() == connection._deadline
        await pool.close()
        with pytest.raises(AnswerError, match="the sender was closed"):
            await later

    asyncio.run(work())


def test_what_comes_unasked_is_no_answer_to_the_next_request(server: Server) -> None:
    """The server says 500 after its answer, and once more when it likes."""
    server.says("/behind", raw(KEPT + b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"))

    async def late(line: Connection) -> None:
        await line.write(KEPT)
        await asyncio.sleep(0.05)
        await line.write(b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n")

    server.says("/late", late)

    async def work(sending: Sender) -> None:
        for path in ("/behind", "/", "/late"):
            got = await sending.send(request(server.url(path)), PATIENT)
            assert isinstance(got, HttpResponse)
            assert got.status == 200
        await until(lambda: not open_connections(server.port))
        assert isinstance(got := await sending.send(request(server.url()), PATIENT), HttpResponse)
        assert got.status == 200

    run(work)
    assert [seen.connection for seen in server.seen] == [0, 1, 1, 2]


def test_an_answer_before_the_end_of_the_request_is_the_answer() -> None:
    """The server reads a part of the body. What is left of it must not reach the next request."""
    answered = b"HTTP/1.1 413 Large\r\nContent-Length: 0\r\n\r\n"

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answered)
        while len(seen) < 2:
            await asyncio.sleep(0.01)
        writer.transport.abort()
        await writer.wait_closed()
        ended.append(writer)

    async def work(sending: Sender) -> None:
        serving = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1024)
        url = f"http://127.0.0.1:{serving.sockets[0].getsockname()[1]}/"
        for _ in range(2):
            got = await sending.send(request(url, bytes(32 * 1024 * 1024)), PATIENT)
            assert isinstance(got, HttpResponse)
            assert got.status == 413
        serving.close()
        while len(ended) < 2:
            await asyncio.sleep(0.01)

    seen: list[bytes] = []
    ended: list[asyncio.StreamWriter] = []
    run(work)
    assert len(seen) == 2


def test_a_host_that_moves_is_followed(server: Server) -> None:
    where = ["127.0.0.1"]

    async def work() -> None:
        sending = Sender(AddressGuard(["127.0.0.0/24"]), lookup=lambda host: where)
        assert isinstance(await sending.send(request(server.url("/", "hooks.example")), PATIENT), HttpResponse)
        sending._resolver._cache.clear()
        where[:] = ["127.0.0.2"]
        got = await sending.send(request(server.url("/", "hooks.example")), PATIENT)
        assert isinstance(got, Failure)
        assert (got.kind, got.address) == (FailureKind.REFUSED, f"127.0.0.2:{server.port}")
        await sending.close()

    asyncio.run(work())
    assert len(server.seen) == 1


@pytest.mark.parametrize(
    ("method", "body", "length"),
    [("POST", b"", "0"), ("POST", b"{}", "2"), ("PUT", b"", "0"), ("GET", b"", None), ("DELETE", b"", None)],
)
def test_the_length_of_the_body_is_said(server: Server, method: str, body: bytes, length: str | None) -> None:
    expect_answer(server.url(), method=method, body=body)
    assert server.seen[0].header("content-length") == length


async def used(pool: Http1Pool, key: tuple[str, str, int], times: int = 1) -> None:
    for _ in range(times):
        connection = pool.take(key) or await pool.open(key, 10)
        await connection.request(b"GET / HTTP/1.1\r\n\r\n", "GET", 10)
        pool.give_back(key, connection)


def test_idle_connections_are_bounded_and_the_oldest_goes_first(server: Server) -> None:
    async def work() -> None:
        pool = Http1Pool(most_idle=2)
        hosts = [(f"h{n}.example", "127.0.0.1", server.port) for n in range(3)]
        for host in hosts:
            await used(pool, host)
        assert len(pool) == 2
        await until(lambda: server.ended == 1)
        assert pool.take(hosts[0]) is None
        await used(pool, hosts[2])
        await pool.close()

    asyncio.run(work())
    assert [seen.connection for seen in server.seen] == [0, 1, 2, 2]


def test_connections_that_nobody_uses_are_closed_after_a_while(server: Server) -> None:
    async def work() -> None:
        pool = Http1Pool(idle=0.05)
        await used(pool, ("a.example", "127.0.0.1", server.port), 2)
        await until(lambda: len(pool) == 0 and server.ended == 1)
        await used(pool, ("a.example", "127.0.0.1", server.port))
        await pool.close()

    asyncio.run(work())


def test_connections_of_another_name_are_not_used(server: Server) -> None:
    """Some servers choose a site by the first request of a connection."""

    async def work(sending: Sender) -> None:
        for host in ("hooks.example", "other.example", "hooks.example"):
            await sending.send(request(server.url("/", host)), PATIENT)

    run(work)
    assert [seen.connection for seen in server.seen] == [0, 1, 0]


@given(
    st.sampled_from(METHODS),
    st.text(max_size=40),
    st.lists(st.tuples(st.text(max_size=5), st.text(max_size=10)), max_size=4),
    st.binary(max_size=5),
)
def test_nothing_that_is_given_can_make_a_line_of_its_own(
    method: str, path: str, headers: list[tuple[str, str]], body: bytes
) -> None:
    try:
        hop = Hop(method, parse_target(f"http://hooks.example/{path}"), check_headers(headers), body)
    except ValueError:
        return
    first, *rest = encode_head(hop, "tarry").removesuffix(b"\r\n\r\n").split(b"\r\n")
    assert len(first.split(b" ")) == 3
    assert not any(b"\r" in line or b"\n" in line for line in [first, *rest])
    names = [line.partition(b":")[0].lower().decode() for line in rest]
    assert names[: 1 + len(headers)] == ["host", *[name.lower() for name, _ in headers]]
    assert len(names) == len(set(names)) or len(headers) > len({name.lower() for name, _ in headers})
