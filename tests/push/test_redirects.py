"""Redirects: off unless asked for, each judged as if it had been asked for itself."""

from pathlib import Path

import pytest

from tarry.push.http import http_sender
from tarry.push.http.failure import FailureKind
from tarry.push.http.http_sender import SendLimits
from tests.push.certificates import Authority
from tests.push.sending import expect_answer, expect_failure
from tests.push.server import Server, answer, end_before_answer, redirect

FOLLOWED = SendLimits(10, 5, redirects=3)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_they_are_answers_unless_asked_for(server: Server, status: int) -> None:
    server.says("/", redirect(status, "/elsewhere"))
    got = expect_answer(server.url())
    assert (got.status, got.header("location"), got.url) == (status, "/elsewhere", "")
    assert server.paths() == ["/"]


@pytest.mark.parametrize("status", [307, 308])
def test_method_and_body_are_kept(server: Server, status: int) -> None:
    server.says("/", redirect(status, "/b?c=d"))
    got = expect_answer(server.url(), FOLLOWED, method="PUT", body=b"[1]", headers=(("x-key", "secret"),))
    assert (got.status, got.url) == (200, server.url("/b"))
    assert [(s.method, s.path, s.body) for s in server.seen] == [("PUT", "/", b"[1]"), ("PUT", "/b?c=d", b"[1]")]
    assert server.seen[1].header("x-key") == "secret"


def test_see_other_is_a_get_without_body(server: Server) -> None:
    server.says("/", redirect(303, "/result"))
    headers = (("content-type", "application/json"), ("webhook-signature", "v1,x"), ("x-key", "1"))
    expect_answer(server.url(), FOLLOWED, headers=headers)
    second = server.seen[1]
    assert (second.method, second.path, second.body) == ("GET", "/result", b"")
    assert second.header("content-type") is second.header("webhook-signature") is None
    assert second.header("x-key") == "1"


@pytest.mark.parametrize("status", [301, 302])
def test_what_would_lose_the_body_is_not_followed(server: Server, status: int) -> None:
    server.says("/", redirect(status, "/elsewhere"))
    assert expect_answer(server.url(), FOLLOWED).status == status
    assert server.paths() == ["/"]


@pytest.mark.parametrize("status", [301, 302])
def test_a_get_is_sent_on(server: Server, status: int) -> None:
    server.says("/", redirect(status, "/elsewhere"))
    assert expect_answer(server.url(), FOLLOWED, method="GET", body=b"").status == 200
    assert server.paths() == ["/", "/elsewhere"]


def test_so_many_and_no_more(server: Server) -> None:
    for n in range(5):
        server.says(f"/{n}", redirect(307, f"/{n + 1}"))
    got = expect_failure(server.url("/0"), FOLLOWED)
    assert (got.kind, got.sent, got.reason) == (FailureKind.REDIRECT, True, "3 redirects lead to yet another")
    assert server.paths() == ["/0", "/1", "/2", "/3"]
    assert expect_answer(server.url("/2"), FOLLOWED).status == 200


def test_a_circle_ends(server: Server) -> None:
    server.says("/", redirect(308, "/"))
    assert expect_failure(server.url(), FOLLOWED).kind is FailureKind.REDIRECT
    assert len(server.seen) == 4


@pytest.mark.parametrize(
    "location",
    [
        "http://169.254.169.254/latest/meta-data/",
        "http://metadata.example/",
        "//127.0.0.2/x",
        "http://0x7f.2/",
        "http://[::ffff:127.0.0.2]/",
        "http://[::1]/",
    ],
)
def test_none_leads_to_what_is_forbidden(server: Server, location: str) -> None:
    server.says("/", redirect(307, "/on"))
    server.says("/on", redirect(307, location))
    got = expect_failure(server.url("/", "hooks.example"), FOLLOWED)
    assert (got.kind, got.sent, got.status) == (FailureKind.FORBIDDEN, True, 307)
    assert "not reached, unless [push] allow" in got.reason


@pytest.mark.parametrize(
    "location",
    [
        "ftp://hooks.example/",
        "file:///etc/passwd",
        "http://a:hunter2@hooks.example/",
        "http://h:99999/",
        "http://a b/",
        "http://127.0.0.1../",
        "http://1.2.3.4.5../",
        "x" * 9000,
    ],
)
def test_what_is_no_url_leads_nowhere(server: Server, location: str) -> None:
    server.says("/", redirect(307, location))
    got = expect_failure(server.url(), FOLLOWED)
    assert (got.kind, got.sent) == (FailureKind.REDIRECT, True)
    assert "redirects to nowhere" in got.reason
    assert "hunter2" not in got.reason


def test_without_a_location_it_is_an_answer(server: Server) -> None:
    server.says("/", answer(307))
    assert expect_answer(server.url(), FOLLOWED).status == 307


def test_secrets_do_not_go_to_another_origin(server: Server) -> None:
    headers = (
        ("Authorization", "Bearer hunter2"),
        ("cookie", "hunter2"),
        ("x-api-key", "hunter2"),
        ("content-type", "application/json"),
        ("webhook-id", "019"),
        ("idempotency-key", '"019"'),
    )
    server.says("/", redirect(307, server.url("/on", "other.example")))
    assert expect_answer(server.url("/", "hooks.example"), FOLLOWED, headers=headers).status == 200
    first, second = server.seen
    assert first.header("authorization") == "Bearer hunter2"
    assert second.header("host") == f"other.example:{server.port}"
    assert "hunter2" not in str(second.headers)
    assert (second.header("webhook-id"), second.header("content-type")) == ("019", "application/json")
    assert second.header("accept-encoding") == "identity"


def test_another_port_is_another_origin(server: Server) -> None:
    with Server() as other:
        server.says("/", redirect(307, other.url("/on")))
        expect_answer(server.url(), FOLLOWED, headers=(("x-api-key", "hunter2"),))
        assert other.seen[0].header("x-api-key") is None
        assert other.seen[0].header("referer") is None


def test_none_leads_out_of_https(server: Server, authority: Authority, certificate: Path) -> None:
    with Server(certificate) as secure:
        secure.says("/", redirect(307, server.url("/x?token=hunter2")))
        got = expect_failure(secure.url("/", "hooks.example"), FOLLOWED, authority.pem)
    assert got.kind is FailureKind.REDIRECT
    assert got.reason.endswith(f"redirects out of HTTPS, to http://127.0.0.1:{server.port}")
    assert server.seen == []


def test_after_see_other_it_is_maybe_delivered_even_if_nobody_is_there(server: Server) -> None:
    with Server() as gone:
        url = gone.url("/")
    server.says("/", redirect(303, url))
    got = expect_failure(server.url(), FOLLOWED)
    assert (got.kind, got.sent) == (FailureKind.REFUSED, True)


def test_what_nobody_has_thought_of_is_maybe_delivered_too(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.says("/", redirect(307, "/on"))

    def fails(*_: object) -> None:
        raise ZeroDivisionError("hunter2")

    monkeypatch.setattr(http_sender, "_redirect_headers", fails)
    got = expect_failure(server.url(), FOLLOWED)
    assert (got.kind, got.sent) == (FailureKind.LOCAL, True)
    assert got.reason == "it broke here (ZeroDivisionError); see the log"


def test_the_whole_time_is_for_all_of_them(server: Server) -> None:
    server.says("/", redirect(307, "/on"))
    server.says("/on", end_before_answer)
    got = expect_failure(server.url(), FOLLOWED)
    assert (got.kind, got.sent) == (FailureKind.CLOSED, True)
    assert got.elapsed < FOLLOWED.total
