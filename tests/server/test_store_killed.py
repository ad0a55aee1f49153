"""A store that is killed while puts come: whatever was acknowledged is stored, and the door serves on afterwards."""

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from tarry import App
from tarry.store.rules.base import Query
from tests.server.http.serving import served, until
from tests.servers.mariadb import MariadbServer
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer
from tests.servers.server import Missing

KilledServer = RedisServer | PostgresServer | MariadbServer

AMID = 200
"""So many puts are acknowledged before the store is killed."""


@pytest.fixture(params=["redis", "postgres", "mariadb"])
def server(request: pytest.FixtureRequest, servers_directory: Path) -> Iterator[KilledServer]:
    """A server of its own that promises what it has acknowledged."""
    directory = servers_directory / f"killed-{request.param}"
    kinds: dict[str, Callable[[], KilledServer]] = {
        "redis": lambda: RedisServer(directory, "--appendonly", "yes", "--appendfsync", "always"),
        "postgres": lambda: PostgresServer(directory),
        "mariadb": lambda: MariadbServer(directory),
    }
    server = kinds[request.param]()
    try:
        server.start()
    except Missing as missing:
        pytest.skip(str(missing))
    yield server
    server.kill()


class Producer:
    """Puts one job after the other, until one is refused."""

    def __init__(self, base: str, acknowledged: list[str]) -> None:
        self._base, self._acknowledged = base, acknowledged
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        with httpx.Client(base_url=self._base, timeout=60) as client:
            while (answer := client.post("/v1/jobs", json={"task": "resize", "body": {"n": 1}})).status_code == 201:
                self._acknowledged.append(answer.json()["id"])


def test_what_was_acknowledged_outlives_a_killed_store(server: KilledServer) -> None:
    acknowledged: list[str] = []
    with closing(App(server.url)) as app:
        with served(app) as door:
            producers = [Producer(str(door.client.base_url), acknowledged) for _ in range(8)]
            until(lambda: len(acknowledged) >= AMID)
            server.kill()
            for producer in producers:
                producer.thread.join(60)
                assert not producer.thread.is_alive()
            server.start()
            until(lambda: door.client.post("/v1/jobs", json={"task": "resize"}).status_code == 201)
        stored = {job.id.hex() for job in app.client.store.find(Query(task="resize", limit=100_000))}
    assert len(acknowledged) >= AMID
    assert not {id.replace("-", "") for id in acknowledged} - stored
