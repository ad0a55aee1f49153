"""The same bytes are sent to beanstalkd and to tarry's door on every store; the same bytes come back."""

import contextlib
import itertools
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tarry import App
from tarry.store.shards.sharded import ShardedStore
from tests.every_store.conftest import app  # noqa: F401 - each kind of store
from tests.server.beanstalk.scripts import ORDERED, SCRIPTS
from tests.server.beanstalk.serving import serving
from tests.server.beanstalk.talking import run_in_time
from tests.servers.beanstalkd import BeanstalkdServer
from tests.servers.server import Missing

Connect = Callable[[], socket.socket]
_answers: dict[str, list[bytes]] = {}


@contextlib.contextmanager
def beanstalkd(directory: Path) -> Iterator[Connect]:
    """A beanstalkd that has no jobs; gives what connects to it."""
    server = BeanstalkdServer(directory)
    try:
        server.start()
        yield lambda: socket.create_connection(("127.0.0.1", server.port))
    except Missing as missing:
        pytest.skip(str(missing))
    finally:
        server.kill()


@contextlib.contextmanager
def tarry(app: App) -> Iterator[Connect]:  # noqa: F811
    """The door of the app; gives what connects to it."""
    with serving(app) as door:
        yield door.connect


@pytest.fixture
def expected(tmp_path_factory: pytest.TempPathFactory, script: str) -> list[bytes]:
    """What beanstalkd answers to the script; asked once."""
    if script not in _answers:
        # Each try has a server of its own, in a directory of its own.
        directories = (tmp_path_factory.mktemp("real") / "beanstalkd" for _ in itertools.count())
        _answers[script] = run_in_time(SCRIPTS[script], lambda: beanstalkd(next(directories)))
    return _answers[script]


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_answers_are_those_of_beanstalkd(app: App, script: str, expected: list[bytes]) -> None:  # noqa: F811
    if isinstance(app.client.store, ShardedStore) and script in ORDERED:
        pytest.skip("shards have no common order")
    assert run_in_time(SCRIPTS[script], lambda: tarry(app)) == expected


@pytest.mark.parametrize("script", ["a-life", "waiting", "bodies", "a-drop", "half-closed"])
def test_a_unix_socket_gives_the_same(tmp_path: Path, script: str, expected: list[bytes]) -> None:
    served = App(f"sqlite:///{tmp_path}/jobs.db", closures=True)
    paths = (tmp_path / f"socket{at}" for at in itertools.count())

    @contextlib.contextmanager
    def serve() -> Iterator[Connect]:
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(str(next(paths)))
        listening.listen()
        with serving(served, listening) as door:
            yield door.connect

    assert run_in_time(SCRIPTS[script], serve) == expected
    served.close()
