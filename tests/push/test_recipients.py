"""Webhooks and channels, against a real server; who is told, in the settings; and whether they can be."""

import json
import socket
from pathlib import Path

import pytest
from standardwebhooks import Webhook

from tarry.alert import alert_sender, webhook
from tarry.alert.alarms import Notice
from tarry.alert.alert_errors import SendError
from tarry.alert.alert_message import build_message
from tarry.alert.alert_sender import AlertSender
from tarry.alert.alert_settings import AlertSettings
from tarry.config.config import load
from tarry.errors import ConfigError
from tarry.model.duration import MINUTE, SECOND
from tarry.push.endpoint.recipient import Recipient, RecipientKind
from tarry.push.endpoint.secret import Secret
from tarry.push.http.address_guard import AddressGuard
from tarry.push.http.http_sender import SendLimits
from tests.push.mailbox import Mailbox
from tests.push.server import Server, answer, hang, redirect
from tests.test_loading import loaded

# Apprise imports what Python is about to drop.
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")

START = 1_800_000_000_000_000
OPS, ANN = Recipient.parse("ops@example.org"), Recipient.parse("ann@example.org")
LOCAL = AddressGuard(["127.0.0.1"])
TOLD = build_message(
    [Notice("dead t", START, "t: 1 job is dead", START, todo="look", details=("019: why",))], "ann", START
)


def test_a_webhook_gets_a_json_object_that_is_signed(server: Server) -> None:
    secret = "whsec_" + "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0"
    webhook.send(server.url("/alerts"), TOLD, [Secret(secret)], LOCAL)
    (seen,) = server.seen
    headers = {name: value for name, value in seen.headers if name.startswith("webhook-")}
    assert Webhook(secret).verify(seen.body, headers) == json.loads(seen.body)
    body = json.loads(seen.body)
    assert (seen.method, seen.header("content-type"), body["type"]) == ("POST", "application/json", "tarry.alert")
    assert body["host"] == "ann"
    assert "t: 1 job is dead" in body["text"]
    assert body["alerts"] == [
        {
            "key": "dead t",
            "state": "begun",
            "what": "t: 1 job is dead",
            "since": "2027-01-15 08:00:00+00:00",
            "details": ["019: why"],
            "todo": "look",
        }
    ]


def test_a_notice_links_to_its_page_of_the_console_where_the_settings_say_where_that_is() -> None:
    queue = Notice("queue a", START, "a is stuck", START, todo="look", where="/queues/a%2Fb")
    over = Notice("queue b", START, "b is well", START, START + SECOND, where="/queues/b")
    told = build_message([queue, over, Notice("x", START, "x", START)], "ann", START, "https://tarry.example/")
    assert "  what to do: look\n  https://tarry.example/queues/a%2Fb\n" in told.text
    assert [one.get("url") for one in json.loads(told.json)["alerts"]] == [
        "https://tarry.example/queues/a%2Fb",
        None,
        None,
    ]
    assert "url" not in json.loads(build_message([queue], "ann", START).json)["alerts"][0]


@pytest.mark.parametrize(
    "console",
    [
        "tarry.example",
        "ftp://tarry.example",
        "https://",
        "https://ann:secret@tarry.example",
        "https://a/?b",
        "https://a\nb",
    ],
)
def test_where_the_console_is_has_to_be_a_url(tmp_path: Path, console: str) -> None:
    (tmp_path / "tarry.toml").write_text(f"[alerts]\nconsole = {json.dumps(console)}\n")
    with pytest.raises(ConfigError, match=r"alerts.console: .* write https://") as raised:
        AlertSettings.of(load(tmp_path / "tarry.toml"))
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("status", [301, 400, 404, 500])
def test_a_webhook_that_does_not_take_it(server: Server, status: int) -> None:
    server.says("/", answer(status) if status != 301 else redirect(301, "/elsewhere"))
    with pytest.raises(SendError, match=f"it answered {status}"):
        webhook.send(server.url(), TOLD, [], LOCAL)
    assert len(server.seen) == 1


def test_a_webhook_within_the_guard(server: Server) -> None:
    with pytest.raises(SendError, match="loopback"):
        webhook.send(server.url(), TOLD, [], AddressGuard())
    assert server.seen == []


def test_a_webhook_that_hangs(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook, "LIMITS", SendLimits(total=0.3, connect=0.2))
    server.says("/", hang)
    with pytest.raises(SendError, match="no answer"):
        webhook.send(server.url(), TOLD, [], LOCAL)


def test_a_channel_of_apprise(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    to = Recipient.parse(f"json://127.0.0.1:{server.port}/hush")
    alert_sender.send(to, TOLD)
    body = json.loads(server.seen[0].body)
    assert (body["title"], body["type"]) == (TOLD.subject, "info")
    assert "t: 1 job is dead" in body["message"]
    server.says("/hush", answer(500))
    with pytest.raises(SendError, match=r"json://\.\.\.") as caught:
        alert_sender.send(to, TOLD)
    assert "hush" not in str(caught.value)
    assert "hush" not in caplog.text


def test_a_channel_that_apprise_does_not_know() -> None:
    with pytest.raises(ConfigError, match=r"slck://\.\.\. is no channel that apprise knows"):
        alert_sender.open_channel(Recipient.parse("slck://hush/hush"))


def test_a_channel_without_apprise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "apprise", None)
    with pytest.raises(ConfigError, match=r"pip install 'tarry\[alerts\]'"):
        alert_sender.open_channel(Recipient.parse("slack://a/b/c"))


@pytest.mark.parametrize(
    ("text", "kind", "shown"),
    [
        ("ops@example.org", RecipientKind.MAIL, "ops@example.org"),
        ("https://hooks.example:8443/hush?x", RecipientKind.WEBHOOK, "https://hooks.example:8443/..."),
        ("slack://hush/hush/hush", RecipientKind.CHANNEL, "slack://..."),
        ("mailto://ann:hush@mail.example", RecipientKind.CHANNEL, "mailto://..."),
    ],
)
def test_recipients(text: str, kind: RecipientKind, shown: str) -> None:
    one = Recipient.parse(text)
    assert (one.kind, one.shown, repr(one)) == (kind, shown, f"<Recipient {shown}>")
    assert one.id == Recipient.parse(text).id != ANN.id


@pytest.mark.parametrize(
    "text", ["", "ops", "a@b@c", "a(b)@c", "https://", "https://h/{x}", "x:y", "a@b\nBcc: c@d", "s://" + "x" * 3000]
)
def test_nobody(text: str) -> None:
    with pytest.raises(ValueError, match="nobody"):
        Recipient.parse(text)


def settings(text: str, tmp_path: Path, **environ: str) -> AlertSettings:
    (tmp_path / "tarry.toml").write_text(text)
    return AlertSettings.of(load(environ=environ, directory=tmp_path))


def test_the_settings(tmp_path: Path) -> None:
    parsed = settings(
        """
        [alerts]
        to = ["ops@example.org", "https://hooks.example/x"]
        smtp = "smtp://ann:hush@mail.example:587"
        from = "tarry@shop.example"
        secret = ["env:OLD", "hush-hush-hush-hush"]
        group = 10
        every = "10m"
        memory = "50%"
        dead = 0
        """,
        tmp_path,
    )
    assert [one.kind for one in parsed.to] == [RecipientKind.MAIL, RecipientKind.WEBHOOK]
    assert (parsed.alerts.group, parsed.alerts.every, parsed.alerts.memory, parsed.alerts.dead) == (
        10 * SECOND,
        10 * MINUTE,
        0.5,
        0,
    )
    assert "hush" not in repr(parsed)
    assert "hush" not in repr(load(environ={}, directory=tmp_path))


def test_one_recipient_and_variables(tmp_path: Path) -> None:
    assert settings("alerts.to = 'https://h/x'", tmp_path).to == (Recipient.parse("https://h/x"),)
    told = settings("", tmp_path, TARRY_ALERTS__TO="a@b.c, https://h/x,y,slack://t", TARRY_ALERTS__SMTP="env:SMTP")
    assert [one.text for one in told.to] == ["a@b.c", "https://h/x,y", "slack://t"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("to = ['hush']", "tarry.toml:2: alerts.to: number 1 is nobody"),
        ("to = [7]", "tarry.toml:2: alerts.to: number 1 is nobody"),
        ("to = ['a@b.c']", "tarry.toml:2: alerts.to has a mail address; for mails write smtp"),
        ("smtp = 'http://hush:hush@h'", "tarry.toml:2: alerts.smtp: it is no URL of a mail server"),
        ("smtp = 7", "tarry.toml:2: alerts.smtp: no text"),
        ("from = 'hush'", "tarry.toml:2: alerts.from: nobody"),
        ("secret = 'hush'", "tarry.toml:2: alerts.secret: secret 1 of 1 has 4 characters"),
        ("memory = '150%'", 'tarry.toml:2: alerts.memory: expected a share such as "90%"'),
        ("dead = -1", "tarry.toml:2: alerts.dead: expected a whole number"),
        ("mail = 1", "tarry.toml:2: unknown setting alerts.mail"),
    ],
)
def test_settings_that_are_wrong(text: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        settings(f"[alerts]\n{text}\n", tmp_path)
    assert str(caught.value).startswith(told)
    assert "\n" not in str(caught.value)
    assert "hush" not in str(caught.value)


def test_a_task_s_channel_has_to_be_allowed(tmp_path: Path, server: Server) -> None:
    slack, to = Recipient.parse("slack://a/b/c"), Recipient.parse(f"json://127.0.0.1:{server.port}")
    parsed = settings('alerts.channels = ["json"]', tmp_path)
    assert (parsed.allows(slack), parsed.allows(to), parsed.allows(OPS)) == (False, True, True)
    sender = AlertSender(parsed, load(environ={}, directory=tmp_path))
    with pytest.raises(ConfigError, match="only with channels"):
        sender(slack, TOLD)
    sender(to, TOLD)
    assert len(server.seen) == 1


def test_a_keeper_that_tells_nobody_imports_nothing_for_it() -> None:
    modules = loaded("import tarry.process.roles, tarry.process.alerting")
    assert "tarry.alert.monitor" in modules
    assert not modules & {"smtplib", "ssl", "email", "apprise", "pyreqwest", "cryptography", "asyncio"}
    assert not modules & {"prometheus_client", "starlette", "uvicorn", "httptools"}
    assert "tarry.alert" not in loaded("import tarry.process.roles")


def test_whether_people_can_be_told(tmp_path: Path, server: Server) -> None:
    with Mailbox() as box, socket.create_server(("127.0.0.1", 0)) as probe:
        text = f'[alerts]\nto = ["a@b.c", "{server.url()}", "slck://x"]\nsmtp = "{box.url}"'
        parsed = settings(text, tmp_path)
        found = list(AlertSender(parsed, load(environ={}, directory=tmp_path)).check(parsed.to))
        assert [(fact.value, bool(fact.advice)) for fact in found] == [
            ("can be sent", False),
            ("cannot be sent", True),  # the guard
            ("cannot be sent", True),
        ]
        assert (box.mails(), server.seen) == ([], [])
        port = probe.getsockname()[1]
    parsed = settings(f'[alerts]\nto = "a@b.c"\nsmtp = "smtp://127.0.0.1:{port}"', tmp_path)
    (fact,) = AlertSender(parsed, load(environ={}, directory=tmp_path)).check(parsed.to)
    assert "Connection refused" in fact.advice
