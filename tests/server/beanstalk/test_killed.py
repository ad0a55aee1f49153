"""A server process that is killed: what it had acknowledged is stored, and what it held is given back."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tarry import App
from tarry.model.job import State
from tarry.store.rules.base import Query
from tests.server.beanstalk.serving import serving
from tests.server.beanstalk.talking import Client


@pytest.fixture(params=["sqlite", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store that has no jobs."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/jobs.db"
    server = request.getfixturevalue("redis_server")
    server.empty()
    return str(server.url)


@contextmanager
def server_process(url: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process that serves the door, and its port."""
    command = [sys.executable, "-m", "tests.server.beanstalk.serve", url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process, int(process.stdout.readline())
        process.kill()


def connect(port: int) -> Client:
    """A client of that process."""
    return Client(socket.create_connection(("127.0.0.1", port)))


def test_whatever_was_acknowledged_is_stored(url: str) -> None:
    with server_process(url) as (process, port):
        clients = [connect(port) for _ in range(5)]
        for client in clients:
            client.send(b"put 5 0 100 4\r\nbody\r\n" * 2000)
        answers = [client.answer() for _ in range(50) for client in clients]
        process.kill()
        for client in clients:
            # Until the end of the connection.
            answers += iter(client.answer, b"")
            client.close()
    app = App(url, closures=True)
    stored = {each.split()[1].decode() for each in answers}
    with serving(app) as door:
        client = door.client()
        assert all(client.ask(f"peek {number}\r\n").startswith(b"FOUND") for number in stored)
    assert len(app.client.store.find(Query(limit=20_000))) >= len(stored) == len(answers)
    app.close()


def test_what_it_held_is_given_back_by_the_keeper(url: str) -> None:
    with server_process(url) as (process, port):
        client = connect(port)
        client.ask("put 5 0 100 1\r\nx\r\n")
        taken = client.ask("reserve\r\n")
        process.kill()
        process.wait()
        client.close()
    app = App(url, closures=True)
    keeper = app.keeper(app.client.store)
    keeper.rescue_dead()
    keeper.close()
    assert [job.state for job in app.client.store.find(Query(limit=9))] == [State.READY]
    with serving(app) as door:
        assert door.client().ask("reserve-with-timeout 10\r\n") == taken
    app.close()
