"""The servers on which a story runs: each is started once, and emptied for each point."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeAlias

from tests.servers.kept_tables import kept_mariadb, kept_postgres
from tests.servers.mariadb import MariadbServer
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer
from tests.servers.server import Server

KINDS_OF_SERVERS = ("redis", "postgres", "mariadb")
Emptied: TypeAlias = Callable[[str], str]
"""Gives the URL of a store without jobs, on a server of that kind; `Missing` if it is not installed."""


@contextmanager
def own_servers(directory: Path) -> Iterator[Emptied]:
    """Each is started when it is first asked for. directory: other users may enter it, since servers run as such."""
    with ExitStack() as running:
        started: dict[str, Callable[[], str]] = {}

        def emptied(kind: str) -> str:
            if kind not in started:
                started[kind] = _start(kind, directory / kind, running)
            return started[kind]()

        yield emptied


def _start(kind: str, directory: Path, running: ExitStack) -> Callable[[], str]:
    """What empties it."""
    if kind == "redis":
        redis = RedisServer(directory)
        _run(redis, running)
        return lambda: _empty(redis)
    # The server lives longer than what is killed.
    if kind == "postgres":
        postgres = PostgresServer(directory, "fsync=off")
        _run(postgres, running)
        return running.enter_context(kept_postgres(postgres)).emptied
    mariadb = MariadbServer(directory, "--innodb-flush-log-at-trx-commit=0")
    _run(mariadb, running)
    return running.enter_context(kept_mariadb(mariadb)).emptied


def _run(server: Server, running: ExitStack) -> None:
    server.start()
    running.callback(server.stop)


def _empty(server: RedisServer) -> str:
    server.empty()
    return server.url
