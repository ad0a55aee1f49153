"""Mails, against real servers: plain, STARTTLS, TLS, with and without a password, and those that do not take them."""

import contextlib
import smtplib
import socket
import threading
import time
from pathlib import Path
from urllib.parse import quote

import pytest

from tarry.alert import mail
from tarry.alert.alarms import Notice
from tarry.alert.alert_errors import SendError
from tarry.alert.alert_message import Message, build_message
from tarry.alert.mail import MailServer, build_mail, check_server, parse_server, send
from tarry.errors import ConfigError
from tests.push.certificates import Authority
from tests.push.mailbox import PASSWORD, USER, Mailbox, MisbehavingServer

pytestmark = pytest.mark.filterwarnings("ignore:Requiring AUTH while not requiring TLS")

NOW = 1_800_000_000_000_000
TOLD = build_message(
    [Notice("k", NOW, "order.timeout: 1 job is dead", NOW, todo="tarry jobs list")], "ann.example", NOW
)
MAIL = build_mail(TOLD, "tarry@shop.example", "ops@example.org", "ann.example")


def with_password(url: str, password: str = PASSWORD, **options: object) -> MailServer:
    scheme, _, where = url.partition("://")
    asked = "".join(f"?{name}={value}" for name, value in options.items())
    return parse_server(f"{scheme}://{USER}:{quote(password, safe='')}@{where}{asked}")


@pytest.fixture
def ca(authority: Authority, tmp_path: Path) -> Path:
    file = tmp_path / "ca.pem"
    file.write_bytes(authority.pem)
    return file


def test_a_mail_arrives_as_it_was_meant() -> None:
    with Mailbox() as box:
        send(parse_server(box.url), MAIL)
        (arrived,) = box.mails()
        assert box.envelopes[0].rcpt_tos == ["ops@example.org"]
        assert box.envelopes[0].mail_from == "tarry@shop.example"
    assert arrived["Subject"] == "tarry on ann.example: order.timeout: 1 job is dead"
    assert (arrived["From"], arrived["To"]) == ("tarry@shop.example", "ops@example.org")
    assert arrived["Auto-Submitted"] == "auto-generated"
    assert arrived["Date"]
    assert arrived["Message-ID"].endswith("@ann.example>")
    assert "what to do: tarry jobs list" in arrived.get_content()
    assert "since 2027-01-15 08:00:00+00:00" in arrived.get_content()


def test_starttls_where_it_is_offered(certificate: Path, ca: Path) -> None:
    with Mailbox(certificate, auth=True) as box:
        send(with_password(box.url, ca=ca), MAIL)
        assert (len(box.mails()), box.secure) == (1, [True])
        assert (box.logins[0].login, box.logins[0].password) == (USER.encode(), PASSWORD.encode())


def test_tls_from_the_first_byte_on(certificate: Path, ca: Path) -> None:
    with Mailbox(certificate, at_once=True, auth=True) as box:
        send(with_password(box.url, ca=ca), MAIL)
        assert len(box.mails()) == 1


def test_on_the_own_host_a_certificate_that_nobody_knows_will_do(certificate: Path) -> None:
    with Mailbox(certificate, at_once=True) as box:
        send(parse_server(box.url), MAIL)
        assert len(box.mails()) == 1


@pytest.mark.parametrize("at_once", [False, True])
def test_elsewhere_the_certificate_must_be_good(
    at_once: bool, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MailServer, "is_local", False)
    with Mailbox(certificate, at_once=at_once) as box:
        with pytest.raises(SendError, match="certificate"):
            send(parse_server(box.url), MAIL)
        assert box.mails() == []


def test_the_certificate_must_be_of_that_host(authority: Authority, ca: Path) -> None:
    other = authority.sign(["other.example"])
    with Mailbox(other) as box, pytest.raises(SendError, match="certificate"):
        send(parse_server(f"{box.url}?ca={ca}"), MAIL)


def test_no_password_goes_over_an_open_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MailServer, "is_local", False)
    with Mailbox(auth=True) as box:
        with pytest.raises(SendError, match="offers no STARTTLS"):
            send(with_password(box.url), MAIL)
        assert box.logins == []


def test_to_the_own_host_it_may(authority: Authority) -> None:
    with Mailbox(auth=True) as box:
        send(with_password(box.url), MAIL)
        assert len(box.mails()) == 1


def test_a_wrong_password_is_told_and_not_shown() -> None:
    with Mailbox(auth=True) as box, pytest.raises(SendError, match="answered 535") as caught:
        send(with_password(box.url, "hush-hush"), MAIL)
    assert "hush" not in str(caught.value)


def test_a_server_that_refuses() -> None:
    with (
        Mailbox(says="554 not\tfrom \x1b[31myou") as box,
        pytest.raises(SendError, match=r"answered 554 not from") as caught,
    ):
        send(parse_server(box.url), MAIL)
    assert str(caught.value).isprintable()


def test_nobody_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with pytest.raises(SendError, match="Connection refused"):
        send(parse_server(f"smtp://127.0.0.1:{port}"), MAIL)


def test_a_server_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mail, "STEP", 0.3)
    with MisbehavingServer(lambda connection: None) as rude, pytest.raises(SendError, match="timed out"):
        send(parse_server(rude.url), MAIL)


def test_a_connection_that_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time limit passes while there is no socket yet. A thread that fails would fail the test."""
    connect = smtplib.SMTP._get_socket  # type: ignore[attr-defined]
    aborted = threading.Event()
    abort = mail._abort
    monkeypatch.setattr(mail, "TOTAL", 0.05)

    def abort_and_tell(smtp: smtplib.SMTP) -> None:
        abort(smtp)
        aborted.set()

    def slowly(smtp: smtplib.SMTP, *where: object) -> object:
        assert aborted.wait(60)
        return connect(smtp, *where)

    monkeypatch.setattr(mail, "_abort", abort_and_tell)
    monkeypatch.setattr(smtplib.SMTP, "_get_socket", slowly)
    with Mailbox() as box, pytest.raises(SendError, match="no connection within"):
        send(parse_server(box.url), MAIL)


def test_a_server_that_never_comes_to_the_point(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mail, "TOTAL", 0.5)

    def drip(connection: socket.socket) -> None:
        connection.sendall(b"220 ")
        pause = threading.Event()
        with contextlib.suppress(OSError):
            while not pause.wait(0.02):
                connection.sendall(b"x")

    began = time.monotonic()
    with MisbehavingServer(drip) as rude, pytest.raises(SendError):
        send(parse_server(rude.url), MAIL)
    assert time.monotonic() - began < 10


def test_a_server_that_closes() -> None:
    with MisbehavingServer(lambda connection: connection.close()) as rude, pytest.raises(SendError, match="closed"):
        send(parse_server(rude.url), MAIL)


def test_whether_a_server_is_ready_is_seen_without_a_mail() -> None:
    with Mailbox(auth=True) as box:
        check_server(with_password(box.url))
        with pytest.raises(SendError, match="535"):
            check_server(with_password(box.url, "wrong"))
        assert box.mails() == []


@pytest.mark.parametrize("subject", ["one\r\nBcc: all@example.org", "one\nX: y"])
def test_nothing_that_is_told_becomes_a_header(subject: str) -> None:
    told = build_message([Notice("k", NOW, subject, NOW)], "host\r\nBcc: x@y", NOW)
    made = build_mail(told, "tarry@shop.example", "ops@example.org", "host\r\nBcc: x@y")
    assert made["Bcc"] is None
    assert made["X"] is None
    with pytest.raises(ValueError, match="linefeed"):
        build_mail(Message("id", subject, "", b""), "tarry@shop.example", "ops@example.org", "host")


def test_what_is_told_of_the_world_is_bounded() -> None:
    told = build_message([Notice("k", NOW, "ü" * 100_000, NOW)], "ann", NOW)
    assert len(told.subject) <= 150
    with Mailbox() as box:
        send(parse_server(box.url), build_mail(told, "tarry@shop.example", "ops@example.org", "ann"))
        assert box.mails()[0]["Subject"] == told.subject


@pytest.mark.parametrize(
    "url",
    [
        "mail.example",
        "http://mail.example",
        "smtp://",
        "smtp://:25",
        "smtp://hush@mail.example",
        "smtp://:hush@mail.example",
        "smtp://mail.example:0",
        "smtp://mail.example:99999",
        "smtp://mail.example/hush",
        "smtp://mail.example?hush=1",
        "smtp://mail.example?ca=",
        "smtp://[hush",
    ],
)
def test_what_is_no_mail_server(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_server(url)
    assert "\n" not in str(caught.value)
    assert "hush" not in str(caught.value)


def test_what_a_url_says() -> None:
    assert parse_server("smtp://mail.example") == MailServer("mail.example", 587, False)
    assert parse_server("smtps://a%40b:p%2Fw@mail.example:2465/") == MailServer(
        "mail.example", 2465, True, "a@b", "p/w"
    )
    assert "hush" not in repr(parse_server("smtps://ann:hush@mail.example"))


def test_a_ca_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "bad.pem").write_text("nothing")
    with Mailbox() as box:
        for name in ("missing.pem", "bad.pem"):
            to = parse_server(f"{box.url.replace('smtp:', 'smtps:')}?ca={tmp_path / name}")
            with pytest.raises(SendError, match=name):
                send(to, MAIL)
