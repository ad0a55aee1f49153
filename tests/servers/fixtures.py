"""One server of each kind for all tests of a run, started when the first of them asks; and a place for one's own.

These go without fsync, since what they keep need not outlive them. A test that kills a server starts its own.
"""

import itertools
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Protocol, TypeVar

import pytest

from tarry.store.opening import open_store
from tarry.store.redis.store import RedisStore
from tests.servers.beanstalkd import BeanstalkdServer
from tests.servers.kept_tables import KeptTables, kept_mariadb, kept_postgres, remove_board, remove_postgres_board
from tests.servers.mariadb import MariadbServer
from tests.servers.pgbouncer import PgbouncerServer
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisCluster, RedisServer, Watched
from tests.servers.server import Missing


class _Startable(Protocol):
    def start(self) -> None: ...

    def stop(self) -> None: ...


S = TypeVar("S", bound=_Startable)
_NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def servers_directory() -> Iterator[Path]:
    """Where servers may keep what they keep; other users may enter it, since some of them run as such."""
    directory = Path(tempfile.mkdtemp(prefix="tarry-servers-"))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


def started(server: S) -> Iterator[S]:
    """Starts it, and stops it at the end; skips the test if it is not installed."""
    try:
        server.start()
    except Missing as missing:
        pytest.skip(str(missing))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def beanstalkd_server(servers_directory: Path) -> Iterator[BeanstalkdServer]:
    yield from started(BeanstalkdServer(servers_directory / "beanstalkd"))


@pytest.fixture(scope="session")
def redis_server(servers_directory: Path) -> Iterator[RedisServer]:
    yield from started(RedisServer(servers_directory / "redis"))


@pytest.fixture
def redis_store(redis_server: RedisServer) -> Iterator[RedisStore]:
    """A store on that server, which is empty."""
    redis_server.empty()
    with closing(open_store(redis_server.url)) as store:
        assert isinstance(store, RedisStore)
        yield store


@pytest.fixture(scope="session")
def redis_cluster(servers_directory: Path) -> Iterator[RedisCluster]:
    yield from started(RedisCluster(servers_directory / "cluster"))


@pytest.fixture(scope="session")
def redis_watched(servers_directory: Path) -> Iterator[Watched]:
    yield from started(Watched(servers_directory / "watched"))


@pytest.fixture(scope="session")
def postgres_server(servers_directory: Path) -> Iterator[PostgresServer]:
    yield from started(PostgresServer(servers_directory / "postgres", "fsync=off"))


@pytest.fixture(scope="session")
def mortal_postgres(servers_directory: Path) -> Iterator[PostgresServer]:
    """A PostgreSQL server with its default durability, which a test may kill and start again."""
    settings = ("max_connections=20", "superuser_reserved_connections=1")
    yield from started(PostgresServer(servers_directory / "mortal", *settings))


@pytest.fixture
def new_postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """A schema of one's own, which is not there yet."""
    schema = f"t{next(_NUMBERS)}"
    yield f"{postgres_server.url}?schema={schema}"
    postgres_server.call(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
    remove_postgres_board(f"{postgres_server.url}?schema={schema}")


@pytest.fixture(scope="session")
def _kept_postgres(postgres_server: PostgresServer) -> Iterator[KeptTables]:
    with kept_postgres(postgres_server) as kept:
        yield kept


@pytest.fixture
def postgres_url(_kept_postgres: KeptTables) -> str:
    """A store as it was made. Its tables have served other tests: for one that measures plans or what is made,
    `new_postgres_url`."""
    return _kept_postgres.emptied()


@pytest.fixture(scope="session")
def _pgbouncer(postgres_server: PostgresServer, servers_directory: Path) -> Iterator[PgbouncerServer]:
    yield from started(PgbouncerServer(servers_directory / "pgbouncer", postgres_server))


@pytest.fixture
def pgbouncer_url(postgres_url: str, _pgbouncer: PgbouncerServer) -> str:
    """As `postgres_url`, by way of a pooler in transaction mode; skips the test if there is none."""
    return f"{_pgbouncer.before(postgres_url)}&notify=no"


@pytest.fixture(scope="session")
def mariadb_server(servers_directory: Path) -> Iterator[MariadbServer]:
    yield from started(MariadbServer(servers_directory / "mariadb", "--innodb-flush-log-at-trx-commit=0"))


@pytest.fixture
def new_mariadb_url(mariadb_server: MariadbServer) -> Iterator[str]:
    """An empty database of one's own."""
    database = f"t{next(_NUMBERS)}"
    mariadb_server.call(f"CREATE DATABASE {database}")
    url = f"mysql://root@127.0.0.1:{mariadb_server.port}/{database}"
    yield url
    mariadb_server.call(f"DROP DATABASE {database}")
    remove_board(url)


@pytest.fixture(scope="session")
def _kept_mariadb(mariadb_server: MariadbServer) -> Iterator[KeptTables]:
    with kept_mariadb(mariadb_server) as kept:
        yield kept


@pytest.fixture
def mariadb_url(_kept_mariadb: KeptTables) -> str:
    """As `postgres_url`."""
    return _kept_mariadb.emptied()


def empty_server(request: pytest.FixtureRequest, kind: str) -> str:
    """The URL of a server without jobs: redis, postgres or mariadb. Also for fixtures of a longer scope."""
    if kind != "redis":
        kept: KeptTables = request.getfixturevalue(f"_kept_{kind}")
        return kept.emptied()
    server: RedisServer = request.getfixturevalue("redis_server")
    server.empty()
    return server.url
