"""The same bytes are sent to beanstalkd and to tarry's door on every store; the same bytes come back."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tarry import App
from tarry.store.shards.sharded import ShardedStore
from tests.door.beanstalk.scripts import ORDERED, SCRIPTS
from tests.door.beanstalk.serving import serving
from tests.door.beanstalk.talking import Talk
from tests.every_store.conftest import app  # noqa: F401 - each kind of store
from tests.servers.beanstalkd import BeanstalkdServer
from tests.servers.server import Missing

_answers: dict[str, list[bytes]] = {}


@pytest.fixture
def real(servers_directory: Path) -> Iterator[BeanstalkdServer]:
    """A beanstalkd that has no jobs."""
    server = BeanstalkdServer(servers_directory / f"beanstalkd{len(_answers)}")
    try:
        server.start()
    except Missing as missing:
        pytest.skip(str(missing))
    yield server
    server.kill()


@pytest.fixture
def expected(request: pytest.FixtureRequest, script: str) -> list[bytes]:
    """What beanstalkd answers to the script; asked once."""
    if script not in _answers:
        real = request.getfixturevalue("real")
        talk = Talk(lambda: socket.create_connection(("127.0.0.1", real.port)))
        _answers[script] = talk.run(SCRIPTS[script])
    return _answers[script]


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_answers_are_those_of_beanstalkd(app: App, script: str, expected: list[bytes]) -> None:  # noqa: F811
    if isinstance(app.client.store, ShardedStore) and script in ORDERED:
        pytest.skip("shards have no common order")
    with serving(app) as door:
        assert Talk(door.connect).run(SCRIPTS[script]) == expected
