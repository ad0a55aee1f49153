"""People whom a proxy has signed in: its header counts from named addresses only, and in no other form."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from msgspec.structs import replace

from tarry import App
from tarry.config.server_settings import ServerConfig
from tarry.errors import ConfigError
from tarry.operate.access import Scope
from tarry.operate.method import Method
from tarry.server.identity.passwords import open_access
from tarry.server.identity.proxy_access import ProxyAccess, TrustedProxies, configured_access
from tarry.server.identity.tokens import digest, read_tokens
from tarry.server.service import DoorService
from tarry.server.serving.api import METHODS
from tarry.server.serving.application import create_application
from tests.server.console.visiting import outcomes
from tests.server.http.calling import run
from tests.server.http.test_authorisation import QUERIES

PROXY, OTHER = "10.1.2.3", "10.2.0.1"
PEOPLE = """
[roles.viewer]
scopes = ["read"]
[roles.operator]
scopes = ["read", "operate"]
[roles.mailer]
scopes = ["read", "operate"]
queues = ["mail"]
[people]
ann = "viewer"
bob = "operator"
cy = "mailer"
"Zoë Müller" = "viewer"
"""
FORCED = {"force": True}
"""Also a queue that is not there yet."""
Headers = Sequence[tuple[str, str | bytes]]


@pytest.fixture
def config(tmp_path: Path) -> ServerConfig:
    people, tokens = tmp_path / "people.toml", tmp_path / "tokens.toml"
    people.write_text(PEOPLE)
    tokens.write_text(f'[tokens.shop]\nsha256 = "{digest("shop-token").hex()}"\nscopes = ["read"]\n')
    header, proxies = "X-Forwarded-User", ("10.1.0.0/16", "unix")
    return ServerConfig(tokens=tokens, trusted_header=header, trusted_proxies=proxies, people=people)


def send(
    app: App,
    config: ServerConfig,
    headers: Headers,
    path: str = "/v1/queues",
    verb: str = "GET",
    address: str = PROXY,
    **more: Any,
) -> httpx.Response:
    """The answer to a request from that address; empty: by a unix socket."""

    async def story() -> httpx.Response:
        service = DoorService(app, access=configured_access(config))
        transport = httpx.ASGITransport(without_client(create_application(service), address), client=(address, 1))
        try:
            async with httpx.AsyncClient(transport=transport, base_url="http://tarry.test") as client:
                sent = [(name, value.encode() if isinstance(value, str) else value) for name, value in headers]
                encoded: Any = [(name.encode(), value) for name, value in sent]
                return await client.request(verb, path, headers=encoded, **more)
        finally:
            service.close()

    return run(story)


def without_client(application: Any, address: str) -> Any:
    async def called(scope: Any, receive: Any, send: Any) -> None:
        await application({**scope, "client": scope["client"] if address else None}, receive, send)

    return called


def test_a_proxy_names_who_asks(app: App, config: ServerConfig, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tarry.audit")
    assert send(app, config, [("x-forwarded-user", "ann")]).status_code == 200
    assert (
        send(app, config, [("X-FORWARDED-USER", "bob")], "/v1/queues/mail/pause", "POST", json=FORCED).status_code
        == 200
    )
    refused = send(app, config, [("x-forwarded-user", "ann")], "/v1/queues/mail/resume", "POST")
    assert (refused.status_code, refused.json()["detail"]) == (
        403,
        "person proxy:ann may not operate: add the scope to it in the people's file",
    )
    assert outcomes(caplog) == [("proxy:bob", "pause_queue", "done"), ("proxy:ann", "resume_queue", "NotAllowed")]


@pytest.mark.parametrize("address", [PROXY, "::ffff:10.1.2.3", ""])
def test_the_header_counts_from_named_addresses(app: App, config: ServerConfig, address: str) -> None:
    assert send(app, config, [("x-forwarded-user", "ann")], address=address).status_code == 200


@pytest.mark.parametrize("address", [OTHER, "127.0.0.1", "::1", "::ffff:10.2.0.1", "testclient", "10.1.2.3:80"])
def test_from_any_other_address_it_is_no_identity(
    app: App, config: ServerConfig, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    got = send(app, config, [("x-forwarded-user", "bob")], address=address)
    assert (got.status_code, "bob" in got.text) == (401, False)
    told = [one.getMessage() for one in caplog.records if "trusted_proxies" in one.getMessage()]
    assert [address in line and "bob" not in line for line in told] == [True]
    # Who has a token there is that token, whatever the header says.
    token = ("authorization", "Bearer shop-token")
    assert send(app, config, [("x-forwarded-user", "bob"), token], address=address).status_code == 200
    assert (
        send(
            app, config, [("x-forwarded-user", "bob"), token], "/v1/queues/mail/pause", "POST", json=FORCED
        ).status_code
        == 401
    )


def test_a_unix_socket_counts_only_if_it_is_named(app: App, config: ServerConfig) -> None:
    only = replace(config, trusted_proxies=("10.1.0.0/16",))
    assert send(app, only, [("x-forwarded-user", "ann")], address="").status_code == 401


@pytest.mark.parametrize(
    "headers",
    [
        [("x-forwarded-user", "ann"), ("X-Forwarded-User", "bob")],
        [("x-forwarded-user", "bob"), ("x-forwarded-user", "bob")],
        [("x-forwarded-user", "")],
        [("x-forwarded-user", "   ")],
        [("x-forwarded-user", "ann, bob")],
        [("x-forwarded-user", "ann,bob")],
        [("x-forwarded-user", "x" * 101)],
        [("x-forwarded-user", "x" * 5000)],
        [("x-forwarded-user", "ann\x7f")],
        [("x-forwarded-user", b"ann\x00")],
        [("x-forwarded-user", b"\xff\xfe")],
        [("x-forwarded-user", "a\u202enn")],
        [("x-forwarded-user", "ann\u200b")],
        [("x-forwarded-user", "bob"), ("authorization", "Bearer shop-token")],
        [("x-forwarded-user", "bob"), ("authorization", "bearer nonsense")],
    ],
)
def test_what_does_not_name_one_person_is_refused(app: App, config: ServerConfig, headers: Headers) -> None:
    got = send(app, config, headers)
    assert got.status_code == 401, got.text
    assert "x-forwarded-user" in got.json()["detail"].lower()
    assert send(app, config, headers, "/queues", params={}).status_code in (303, 401)


@pytest.mark.parametrize(
    "name", ["x_forwarded_user", "x-forwarded_user", "x-forwarded-user-id", "x-forwarded-email", "forwarded-user"]
)
def test_a_header_of_another_name_is_nobody(app: App, config: ServerConfig, name: str) -> None:
    assert send(app, config, [(name, "bob")]).status_code == 401
    # Nor does it change who asks.
    path = "/v1/queues/mail/pause"
    assert send(app, config, [("x-forwarded-user", "ann"), (name, "bob")], path, "POST", json=FORCED).status_code == 403


def test_what_proxies_add_besides_does_no_harm(app: App, config: ServerConfig) -> None:
    basic = ("authorization", "Basic YW5uOng=")
    assert send(app, config, [("x-forwarded-user", "ann"), basic]).status_code == 200
    assert send(app, config, [("x-forwarded-user", "Zoë Müller".encode())]).status_code == 200
    assert send(app, config, [("x-forwarded-user", "Zoe\u0308 Müller")]).status_code == 200


def test_who_is_not_listed_has_the_default_role_or_none(app: App, config: ServerConfig) -> None:
    got = send(app, config, [("x-forwarded-user", "eve")])
    assert (got.status_code, "eve has no role here" in got.json()["detail"]) == (403, True)
    assert config.people is not None
    config.people.write_text(f'default_role = "viewer"\n{PEOPLE}')
    assert send(app, config, [("x-forwarded-user", "eve")]).status_code == 200
    assert (
        send(app, config, [("x-forwarded-user", "eve")], "/v1/queues/mail/pause", "POST", json=FORCED).status_code
        == 403
    )
    # The others keep their own.
    assert (
        send(app, config, [("x-forwarded-user", "bob")], "/v1/queues/mail/pause", "POST", json=FORCED).status_code
        == 200
    )


@pytest.mark.parametrize("method", [one for one in METHODS if one.scope], ids=lambda method: method.name)
def test_no_method_takes_the_header_from_elsewhere(app: App, config: ServerConfig, method: Method) -> None:
    path = "/".join("x" if part.startswith("{") else part for part in method.route.split("/"))
    path += QUERIES.get(method.name, "")
    headers: Headers = [("x-forwarded-user", "bob"), ("content-type", "application/json")]
    assert send(app, config, headers, path, method.verb, OTHER, content=b"{}").status_code == 401
    scopes = {Scope.READ} if method.scope is Scope.READ else set()
    got = send(app, config, [("x-forwarded-user", "ann"), headers[1]], path, method.verb, content=b"{}")
    assert (got.status_code == 403) == (not scopes), got.text


def test_a_role_that_is_taken_away_counts_within_a_second(app: App, config: ServerConfig) -> None:
    now = [0.0]
    assert config.people is not None
    access = ProxyAccess(
        open_access(None, None), "X-User", TrustedProxies(["unix"]), config.people, clock=lambda: now[0]
    )
    before = access.person({"x-user": "bob"}, "")
    assert before is not None
    assert access.named(before.entry) is before
    config.people.write_text(PEOPLE.replace('bob = "operator"', 'bob = "viewer"'))
    now[0] = 1.5
    assert access.named(before.entry) is not before
    found = access.person({"x-user": "bob"}, "")
    assert found is not None
    assert not found.allows(Scope.OPERATE, "mail")


@pytest.mark.parametrize(
    ("people", "said"),
    [
        ('[people]\nann = "viewer"\n', "a role: there is none"),
        ('default_role = "x"\n[roles.viewer]\nscopes = ["read"]\n', "a role: viewer"),
        ('[roles.viewer]\nscopes = ["all"]\n', "scopes"),
        ('[roles.viewer]\n[people]\n"a,b" = "viewer"\n', "without a comma"),
        ("[people]\nann = 7\n", "people"),
        ('[roles.viewer]\n[people]\n"" = "viewer"\n', "a name of 1 to"),
        ('default_role = "viewer"\n[roles.viewer]\n[roles.all]\n[people]\n"" = "all"\n', "a name of 1 to"),
        ('[roles.viewer]\n[people]\n"\u00e9" = "viewer"\n"e\u0301" = "viewer"\n', "each name once"),
        ("[peple]\n", "peple"),
        ("x = " + "[" * 10_000, "too deep"),
    ],
)
def test_a_file_of_people_that_is_wrong_says_so(config: ServerConfig, people: str, said: str) -> None:
    assert config.people is not None
    config.people.write_text(people)
    with pytest.raises(ConfigError, match=said):
        configured_access(config)
    config.people.unlink()
    with pytest.raises(ConfigError, match="does not exist"):
        configured_access(config)


@pytest.mark.parametrize("name", ["proxy:ann", "password:ann"])
def test_no_token_has_the_name_of_a_person(tmp_path: Path, name: str) -> None:
    file = tmp_path / "tokens.toml"
    file.write_text(f'[tokens."{name}"]\nsha256 = "{digest("x").hex()}"\n')
    with pytest.raises(ConfigError, match="does not begin with"):
        read_tokens(file)
