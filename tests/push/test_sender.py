"""What goes over the wire, to a real server."""

import asyncio
import socket

import pytest

from tarry.push.http.address_guard import AddressGuard
from tarry.push.http.failure import Failure, FailureKind
from tarry.push.http.http_sender import HttpRequest, Sender, SendLimits
from tarry.push.http.response import MOST_BODY, HttpResponse
from tests.push.sending import HEAD, expect_answer, expect_failure, run, until
from tests.push.server import (
    Connection,
    Script,
    Server,
    answer,
    end_before_answer,
    hang,
    parts,
    raw,
    reset_before_answer,
    streamed,
    then_hang,
    zipped,
)


def test_a_request_arrives_as_it_was_given(server: Server) -> None:
    headers = (("Content-Type", "application/json"), ("x-one", "a"), ("webhook-id", "019"))
    got = expect_answer(server.url("/a/b?c=d%20e", "hooks.example"), headers=headers, body=b'{"order":7}')
    assert (got.status, got.body, got.cut, got.version) == (200, b"ok", False, "1.1")
    assert got.address == f"127.0.0.1:{server.port}"
    assert 0 < got.elapsed < 10
    (seen,) = server.seen
    assert (seen.method, seen.path, seen.version, seen.body) == ("POST", "/a/b?c=d%20e", "HTTP/1.1", b'{"order":7}')
    assert seen.header("host") == f"hooks.example:{server.port}"
    assert seen.header("content-type") == "application/json"
    assert seen.header("accept-encoding") == "identity"
    assert seen.header("user-agent") == "tarry"
    assert (seen.header("x-one"), seen.header("webhook-id")) == ("a", "019")


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "POST"])
def test_each_method(server: Server, method: str) -> None:
    body = b"" if method in ("GET", "HEAD") else b"{}"
    server.says("/", raw(HEAD + b"Content-Length: 2\r\n\r\n" + (b"" if method == "HEAD" else b"ok")))
    got = expect_answer(server.url(), method=method, body=body)
    assert got.body == (b"" if method == "HEAD" else b"ok")
    assert (server.seen[0].method, server.seen[0].body) == (method, body)


@pytest.mark.parametrize(
    "status", [200, 201, 202, 204, 299, 304, 400, 401, 404, 408, 410, 418, 425, 429, 500, 503, 599]
)
def test_each_status_is_an_answer(server: Server, status: int) -> None:
    body = b"" if status in (204, 304) else b"why"
    server.says("/", answer(status, body))
    got = expect_answer(server.url())
    assert (got.status, got.body) == (status, body)


def test_headers_of_the_answer_keep_their_order_and_their_number(server: Server) -> None:
    server.says("/", answer(200, b"", [("X-A", "1"), ("Retry-After", "7"), ("X-A", "2")]))
    got = expect_answer(server.url())
    assert got.header("x-a") == "1, 2"
    assert got.header("retry-after") == "7"


def test_a_header_that_is_not_ascii_does_not_cost_the_answer(server: Server) -> None:
    server.says("/", raw(HEAD + b"Content-Length: 0\r\nX-City: K\xf6ln\r\nX-Good: yes\r\n\r\n"))
    got = expect_answer(server.url())
    assert got.header("x-good") == "yes"
    assert got.header("x-city") == "(not ASCII)"


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
@pytest.mark.parametrize("host", ["[::1]", "six.example"])
def test_ipv6(host: str) -> None:
    async def work(url: str) -> HttpResponse | Failure:
        sending = Sender(AddressGuard(["::1"]), lookup=lambda name: ["::1"])
        got = await sending.send(HttpRequest("POST", url, (), b"{}"), SendLimits())
        await sending.close()
        return got

    with Server(address="::1") as there:
        got = asyncio.run(work(there.url("/", host)))
    assert isinstance(got, HttpResponse)
    assert got.address == f"[::1]:{there.port}"
    assert there.seen[0].header("host") == f"{host}:{there.port}"


def test_http_1_0(server: Server) -> None:
    server.says("/", raw(b"HTTP/1.0 200 OK\r\n\r\nold", Connection.end))
    got = expect_answer(server.url())
    assert (got.version, got.body) == ("1.0", b"old")


def test_chunks(server: Server) -> None:
    server.says("/", parts([HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"2\r\n{}\r\n", b"0\r\n\r\n"], 0.01))
    assert expect_answer(server.url()).body == b"{}"


def test_interim_answers_are_passed_over(server: Server) -> None:
    server.says("/", raw(b"HTTP/1.1 103 Early\r\n\r\nHTTP/1.1 100 Go on\r\n\r\n" + HEAD + b"Content-Length: 0\r\n\r\n"))
    assert expect_answer(server.url()).status == 200


@pytest.mark.parametrize(("size", "cut"), [(MOST_BODY, False), (MOST_BODY + 1, True), (10 * MOST_BODY, True)])
def test_of_a_body_only_the_start_is_read(server: Server, size: int, cut: bool) -> None:
    server.says("/", answer(200, b"x" * size))
    got = expect_answer(server.url())
    assert (len(got.body), got.cut) == (MOST_BODY, cut)


def test_of_ten_gigabytes_hardly_anything_is_taken(server: Server) -> None:
    written: list[int] = []
    server.says("/", streamed(10 * 1024**3, written))

    async def work(sending: Sender) -> None:
        got = await sending.send(HttpRequest("POST", server.url()), SendLimits(30, 5))
        assert isinstance(got, HttpResponse)
        assert got.cut
        await until(lambda: server.ended == 1)

    run(work)
    assert written[0] < 64 * 1024**2


def test_nothing_is_unpacked(server: Server) -> None:
    server.says("/", zipped(1024**3 // 8))
    got = expect_answer(server.url(), SendLimits(30, 5))
    assert got.body.startswith(b"\x1f\x8b")
    assert len(got.body) <= MOST_BODY
    assert server.seen[0].header("accept-encoding") == "identity"


SENT_AND_LOST: dict[str, tuple[Script, FailureKind, str]] = {
    "no answer": (hang, FailureKind.UNANSWERED, "no answer within"),
    "half a head": (then_hang(HEAD + b"X-A: "), FailureKind.UNANSWERED, "no answer within"),
    "slow head": (parts([bytes([byte]) for byte in HEAD], 0.2), FailureKind.UNANSWERED, "no answer within"),
    "reset": (reset_before_answer, FailureKind.CLOSED, "ended without an answer"),
    "end": (end_before_answer, FailureKind.CLOSED, "ended without an answer"),
    "end in the head": (raw(HEAD + b"X-A: 1\r\n", Connection.end), FailureKind.CLOSED, "ended without an answer"),
    "no HTTP": (raw(b"SSH-2.0-OpenSSH_9.2\r\n\r\n", Connection.end), FailureKind.MALFORMED, "is no HTTP"),
    "HTTP/0.9": (raw(b"hello", Connection.end), FailureKind.MALFORMED, "is no HTTP"),
    "no status": (raw(b"HTTP/1.1 abc\r\n\r\n", Connection.end), FailureKind.MALFORMED, "is no HTTP"),
    "two lengths": (
        raw(HEAD + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab"),
        FailureKind.MALFORMED,
        "is no HTTP",
    ),
    "a long head": (raw(HEAD + b"X: " + bytes(1 << 20).replace(b"\0", b"a")), FailureKind.HEAD_TOO_LARGE, "too large"),
    "a heavy head": (answer(200, b"", [("X", "a" * 70_000)]), FailureKind.HEAD_TOO_LARGE, "more than 64 KiB"),
    "many headers": (raw(HEAD + b"X: a\r\n" * 101 + b"\r\n"), FailureKind.HEAD_TOO_LARGE, "too large"),
}


@pytest.mark.parametrize("case", SENT_AND_LOST)
def test_what_was_sent_and_not_answered_is_maybe_delivered(server: Server, case: str) -> None:
    script, why, told = SENT_AND_LOST[case]
    server.says("/", script)
    got = expect_failure(server.url("/", "hooks.example"), SendLimits(1, 0.5))
    assert (got.kind, got.sent, got.address) == (why, True, f"127.0.0.1:{server.port}")
    assert told in got.reason
    assert got.status == 0 or case == "a heavy head"
    assert len(server.seen) == 1


BROKEN: dict[str, Script] = {
    "reset": raw(b"HTTP/1.1 503 No\r\nContent-Length: 9\r\n\r\nabc", Connection.reset),
    "end": raw(b"HTTP/1.1 503 No\r\nContent-Length: 9\r\n\r\nabc", Connection.end),
    "hang": then_hang(b"HTTP/1.1 503 No\r\nContent-Length: 9\r\n\r\nabc"),
    "slow": parts([b"HTTP/1.1 503 No\r\nContent-Length: 99\r\n\r\n", *[b"a"] * 99], 0.1),
    "no chunk": raw(b"HTTP/1.1 503 No\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", Connection.end),
}


@pytest.mark.parametrize("case", BROKEN)
def test_an_answer_that_breaks_off_has_its_status(server: Server, case: str) -> None:
    server.says("/", BROKEN[case])
    got = expect_failure(server.url(), SendLimits(1, 0.5))
    assert (got.kind, got.sent, got.status) == (FailureKind.BROKEN, True, 503)
    assert "answered 503" in got.reason


def test_nobody_listens() -> None:
    with Server() as server:
        url = server.url("/", "hooks.example")
    got = expect_failure(url)
    assert (got.kind, got.sent) == (FailureKind.REFUSED, False)
    assert got.reason.endswith("refuses the connection")


def test_tls_that_is_not_answered_is_a_connection_that_takes_too_long(server: Server) -> None:
    """A server of plain HTTP that waits for the end of the line."""
    got = expect_failure(server.url().replace("http:", "https:"), SendLimits(10, 0.3))
    assert (got.kind, got.sent) == (FailureKind.CONNECT_TIMEOUT, False)
    assert got.elapsed < 5


def test_the_time_to_connect_is_less_than_the_whole_time(server: Server) -> None:
    got = expect_failure(server.url().replace("http:", "https:"), SendLimits(0.5, 5))
    assert got.kind in (FailureKind.CONNECT_TIMEOUT, FailureKind.TIMEOUT)
    assert not got.sent
    assert got.elapsed < 5


def test_no_such_host() -> None:
    def none(host: str) -> list[str]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    async def work() -> HttpResponse | Failure:
        sending = Sender(AddressGuard(), lookup=none)
        got = await sending.send(HttpRequest("POST", "https://nowhere.example/"), SendLimits())
        await sending.close()
        return got

    got = asyncio.run(work())
    assert isinstance(got, Failure)
    assert (got.kind, got.sent, got.reason) == (FailureKind.NO_HOST, False, "nowhere.example: no such host")


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.2/",
        "http://0x7f.2/",
        "http://0177.0.0.2/",
        "http://2130706434/",
        "http://127.2/",
        "http://127.0.0.2./",
        "http://１２７.0.0.2/",
        "http://%31%32%37.0.0.2/",
        "http://[::1]/",
        "http://[::ffff:127.0.0.2]/",
        "http://[::ffff:7f00:2]/",
        "http://[64:ff9b::127.0.0.2]/",
        "http://0/",
        "http://169.254.169.254/latest/meta-data/",
        "http://metadata.example/",
        "http://METADATA.example./",
    ],
)
def test_strange_ways_to_write_an_address_lead_nowhere(url: str) -> None:
    got = expect_failure(url)
    assert (got.kind, got.sent) == (FailureKind.FORBIDDEN, False)
    assert "not reached, unless [push] allow" in got.reason


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("ftp://hooks.example/", "begins with ftp"),
        ("file:///etc/passwd", "begins with file"),
        ("hooks.example", "none"),
        ("http://", "none"),
        ("http://user:hunter2@hooks.example/", "a user or a password"),
        ("http://hunter2@hooks.example/", "a user or a password"),
        ("http://hooks.example:99999/", "port"),
        ("http://hooks.example\\@127.0.0.1/", "write %5C"),
        ("http://hooks.example/a b", "write %20"),
        ("http://hooks.example/\r\nX: hunter2", "write %0D"),
        ("http://hooks.exa\tmple/", "write %09"),
        ("http://hooks..example/", "host"),
        ("http://" + "a" * 64 + ".example/", "host"),
        ("http://hooks.example/" + "a" * 9000, "8192 at most"),
        ("http://{host}/", "host"),
    ],
)
def test_what_is_no_url_is_told_and_not_repeated(url: str, told: str) -> None:
    got = expect_failure(url)
    assert (got.kind, got.sent) == (FailureKind.REQUEST, False)
    assert told in got.reason
    assert "hunter2" not in got.reason


@pytest.mark.parametrize(
    ("header", "told"),
    [
        (("x-a", "b\r\nx-b: hunter2"), "header x-a has a character"),
        (("x-a", "b\nhunter2"), "header x-a has a character"),
        (("x-a", "b\0hunter2"), "header x-a has a character"),
        (("x-a", "hunter2ä"), "header x-a has a character"),
        (("x-a\r\nx-b", "hunter2"), "is no name"),
        (("x a", "hunter2"), "is no name"),
        (("", "hunter2"), "is no name"),
        (("x:", "hunter2"), "is no name"),
        (("Host", "hunter2"), "connection's own"),
        (("Transfer-Encoding", "chunked"), "connection's own"),
        (("content-length", "3"), "connection's own"),
        (("x-a", "b" * 70_000), "too many headers"),
    ],
)
def test_headers_cannot_be_injected(server: Server, header: tuple[str, str], told: str) -> None:
    got = expect_failure(server.url(), headers=(header,))
    assert (got.kind, got.sent) == (FailureKind.REQUEST, False)
    assert told in got.reason
    assert "hunter2" not in got.reason
    assert server.connections == 0


def test_a_method_cannot_be_made_up(server: Server) -> None:
    got = expect_failure(server.url(), method="GET / HTTP/1.1\r\nX: ")
    assert got.kind is FailureKind.REQUEST
    assert server.connections == 0
