"""Names that others have lead to this machine (DNS rebinding): no door without tokens answers to them."""

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.routing import Route

import tarry
from tarry import App
from tarry.config.server_settings import ServerConfig
from tarry.metrics.listener import MetricsListener
from tarry.model.values.listen_address import is_own_host
from tarry.server.serving.application import HttpDoor, create_application
from tarry.server.serving.server import make_service
from tests.server.http.calling import caller, run

OWN: tuple[str, ...] = (
    "localhost",
    "localhost:7800",
    "127.0.0.1",
    "127.0.0.1:7800",
    "[::1]:7800",
    "10.1.2.3:80",
    "jobs.test",
    "JOBS.test:7800",
)
OWN += ("a.internal.test", "a.b.internal.test:1")
FOREIGN: tuple[str, ...] = (
    "evil.test",
    "evil.test:7800",
    "localhost.evil.test",
    "127.0.0.1.evil.test",
    "jobs.test.evil.test",
    "internal.test",
)
FOREIGN += (
    "xinternal.test",
    "jobs.test@evil.test",
    "evil.test:80:80",
    "[evil.test]",
    "jobs.test.",
    "évil.test",
    "a b",
    "localhost/",
)
HOSTS = ("jobs.test", "*.internal.test")


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    app = App(f"sqlite:///{tmp_path}/jobs.db", closures=True)
    yield app
    app.close()


@pytest.mark.parametrize("host", OWN)
def test_these_are_our_own(host: str) -> None:
    assert is_own_host(host, HOSTS)


@pytest.mark.parametrize("host", FOREIGN)
def test_these_are_not(host: str) -> None:
    assert not is_own_host(host, HOSTS)
    assert is_own_host(host, ("*",))


def of_asgi(app: App) -> HttpDoor:
    """As in an application of somebody."""
    return tarry.asgi(app, host_names=HOSTS)


def of_server(app: App) -> HttpDoor:
    """As `[server] http` has it."""
    config = ServerConfig(host_names=HOSTS)
    return create_application(make_service(app, config))


def requests(door: HttpDoor) -> list[tuple[str, str]]:
    """Each verb and path of the API and the console."""
    found = []
    for route in door._others.routes:
        assert isinstance(route, Route)
        found += [(verb, route.path) for verb in route.methods or ("GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS")]
    return [*found, ("GET", "/nothing")]


@pytest.mark.parametrize("make", [of_asgi, of_server])
def test_no_route_of_http_answers_to_a_name_of_others(app: App, make: Any) -> None:
    door = make(app)
    asked = requests(door)
    assert len(asked) > 100

    async def story() -> None:
        async with caller(door) as client:
            for verb, path in asked:
                got = await client.request(verb, path, headers={"Host": "evil.test"})
                assert got.status_code == 403, (verb, path)
                assert verb == "HEAD" or "[server] host_names" in got.text, (verb, path)
            for host in OWN:
                assert (await client.get("/v1/queues", headers={"Host": host})).status_code == 200

    run(story)
    door.close()


def test_who_needs_a_token_may_call_the_server_as_it_likes(app: App, tmp_path: Path) -> None:
    (tmp_path / "tokens.toml").write_text("")
    door = tarry.asgi(app, tokens=tmp_path / "tokens.toml")

    async def story() -> int:
        async with caller(door) as client:
            return (await client.get("/v1/queues", headers={"Host": "evil.test"})).status_code

    assert run(story) == 401
    door.close()


def test_metrics_answer_to_no_name_of_others(tmp_path: Path) -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    file = socket.socket(socket.AF_UNIX)
    file.bind(str(tmp_path / "s"))
    file.listen()
    for each in (listening, file):
        each.setblocking(False)
    listener = MetricsListener(lambda accept: (b"x 1\n", "text/plain"), [listening, file], HOSTS)
    listener.start()
    url = f"http://127.0.0.1:{listening.getsockname()[1]}/metrics"
    try:
        for host in OWN:
            assert httpx.get(url, headers={"Host": host}).text == "x 1\n"
        for host in FOREIGN:
            got = httpx.get(url, headers=[(b"Host", host.encode())])
            assert (got.status_code, "[metrics] host_names" in got.text) == (421, True)
        # No page reaches a unix socket.
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(tmp_path / "s"))) as client:
            assert client.get("http://whoever/metrics").status_code == 200
    finally:
        listener.close()
        listening.close()
        file.close()
