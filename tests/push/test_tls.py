"""HTTPS, and HTTP/2 where it is offered."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tarry.push.http.failure import Failure, FailureKind
from tarry.push.http.http_sender import HttpRequest, Sender, SendLimits
from tarry.push.http.response import HttpResponse
from tests.push.certificates import Authority
from tests.push.sending import PATIENT, expect_answer, expect_failure, open_connections, run, until
from tests.push.server import H2Script, Server, end_before_answer


def test_https(authority: Authority, certificate: Path) -> None:
    with Server(certificate) as server:
        got = expect_answer(server.url("/x", "hooks.example"), trust=authority.pem)
    assert (got.status, got.version, got.body) == (200, "1.1", b"ok")
    assert server.seen[0].header("host") == f"hooks.example:{server.port}"
    assert 0 < got.connect < got.elapsed


def test_an_address_as_the_name(authority: Authority, certificate: Path) -> None:
    with Server(certificate) as server:
        assert expect_answer(server.url(), trust=authority.pem).status == 200


WRONG: dict[str, tuple[list[str], int, bool, str]] = {
    "expired": (["hooks.example"], -1, False, "its certificate has expired"),
    "not yet valid": (["hooks.example"], 30, False, "its certificate is not valid yet"),
    "for another": (["other.example"], 1, False, "its certificate is for another name"),
    "self-signed": (["hooks.example"], 1, True, "trusted"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_certificate_that_is_not_good_is_told_and_nothing_is_sent(authority: Authority, case: str) -> None:
    names, days, own, told = WRONG[case]
    with Server(authority.sign(names, days, own)) as server:
        got = expect_failure(server.url("/", "hooks.example"), trust=authority.pem)
        assert (got.kind, got.sent) == (FailureKind.TLS, False)
        assert told in got.reason
        assert server.seen == []


def test_an_authority_that_is_not_trusted(certificate: Path) -> None:
    with Server(certificate) as server:
        got = expect_failure(server.url("/", "hooks.example"))
        assert (got.kind, got.sent) == (FailureKind.TLS, False)
        assert "signed by nobody who is trusted here" in got.reason


def test_plain_http_where_tls_is_expected() -> None:
    with Server() as server:
        server.says("/", end_before_answer)
        url = server.url("/", "hooks.example").replace("http:", "https:")
        got = expect_failure(url, SendLimits(10, 0.5))
        assert not got.sent
        assert got.kind in (FailureKind.TLS, FailureKind.CONNECT_TIMEOUT)


def test_tls_where_plain_http_is_expected(certificate: Path) -> None:
    with Server(certificate) as server:
        got = expect_failure(server.url("/", "hooks.example").replace("https:", "http:"), SendLimits(5, 1))
        assert got.kind in (FailureKind.MALFORMED, FailureKind.CLOSED)
        assert server.seen == []


def test_http_2(authority: Authority, certificate: Path) -> None:
    with Server(certificate, h2=True) as server:
        server.says_h2("/x", H2Script(201, b"made", (("retry-after", "3"),)))
        got = expect_answer(server.url("/x", "hooks.example"), trust=authority.pem, body=b'{"order":7}')
    assert (got.status, got.version, got.body, got.header("retry-after")) == (201, "2", b"made", "3")
    (seen,) = server.seen
    assert (seen.method, seen.version, seen.body, seen.header("content-length")) == (
        "POST",
        "HTTP/2",
        b'{"order":7}',
        "11",
    )
    assert 0 < got.connect < got.elapsed


def test_http_2_has_many_requests_on_one_connection(authority: Authority, certificate: Path) -> None:
    with Server(certificate, h2=True) as server:

        async def work(sending: Sender) -> None:
            request = HttpRequest("POST", server.url("/", "hooks.example"), (), b"{}")
            await sending.send(request, SendLimits())
            got = await asyncio.gather(*[sending.send(request, SendLimits()) for _ in range(50)])
            assert all(isinstance(one, HttpResponse) for one in got)

        run(work, authority.pem)
    assert len(server.seen) == 51
    assert server.connections == 1


def test_http_2_that_does_not_answer(authority: Authority, certificate: Path) -> None:
    with Server(certificate, h2=True) as server:
        server.says_h2("/", H2Script(hangs=True))
        got = expect_failure(server.url("/", "hooks.example"), SendLimits(1.5, 1), authority.pem)
        assert (got.kind, got.sent) == (FailureKind.UNANSWERED, True)


@pytest.mark.parametrize("body", [b"{}", b""])
def test_http_2_that_has_not_begun_is_asked_once_more(authority: Authority, certificate: Path, body: bytes) -> None:
    with Server(certificate, h2=True) as server:
        server.says_h2("/", H2Script(refuses=True))
        got = expect_answer(server.url("/", "hooks.example"), trust=authority.pem, body=body)
    assert got.status == 200
    assert [seen.body for seen in server.seen] == [body]


@pytest.mark.parametrize("hangs", [False, True])
def test_http_2_that_leaves_in_the_middle_loses_and_doubles_nothing(
    authority: Authority, certificate: Path, hangs: bool
) -> None:
    """It says how many requests it has begun: of these it has answered all, or none."""
    with Server(certificate, h2=True) as server:
        server.says_h2("/", H2Script(leaves=5, hangs=hangs))

        async def work(sending: Sender) -> Any:
            url = server.url("/x", "hooks.example")
            limits = SendLimits(3, 2) if hangs else PATIENT
            assert isinstance(await sending.send(HttpRequest("POST", url, (), b"first"), limits), HttpResponse)
            requests = [HttpRequest("POST", server.url("/", "hooks.example"), (), b"%d" % n) for n in range(20)]
            return await asyncio.gather(*[sending.send(request, limits) for request in requests])

        got = run(work, authority.pem)
        bodies = [seen.body for seen in server.seen if seen.path == "/"]
    assert len(bodies) == len(set(bodies))
    for n, came in enumerate(got):
        if isinstance(came, HttpResponse):
            assert b"%d" % n in bodies
        else:
            assert came.sent is (b"%d" % n in bodies), came
    maybe = [came for came in got if isinstance(came, Failure)]
    assert len(maybe) == (5 if hangs else 0), maybe


def test_http_2_with_a_head_that_is_too_large(authority: Authority, certificate: Path) -> None:
    with Server(certificate, h2=True) as server:
        server.says_h2("/", H2Script(headers=tuple((f"x-{n}", "a" * 1000) for n in range(100))))
        got = expect_failure(server.url("/", "hooks.example"), SendLimits(5, 1), authority.pem)
    assert got.sent
    assert got.kind in (FailureKind.HEAD_TOO_LARGE, FailureKind.CLOSED)


def test_a_connection_of_http_2_that_ends_is_replaced(authority: Authority, certificate: Path) -> None:
    with Server(certificate, h2=True) as server:

        async def work(sending: Sender) -> None:
            request = HttpRequest("POST", server.url("/", "hooks.example"), (), b"{}")
            assert isinstance(await sending.send(request, SendLimits()), HttpResponse)
            server.hang_up()
            await until(lambda: not open_connections(server.port))
            assert isinstance(await sending.send(request, SendLimits()), HttpResponse)

        run(work, authority.pem)
    assert server.connections == 2


def test_a_client_for_one_scheme_never_speaks_the_other(certificate: Path) -> None:
    """One for plain HTTP does not check certificates, so nobody may have it speak TLS."""
    with Server() as plain, Server(certificate) as secure:
        urls = [plain.url("/", "hooks.example"), secure.url("/", "hooks.example")]

        async def work(sending: Sender) -> None:
            for url in urls + urls:
                await sending.send(HttpRequest("POST", url, (), b"{}"), SendLimits())

        run(work)
    assert len(plain.seen) == 2
    assert secure.seen == []
