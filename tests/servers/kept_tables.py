"""Tables of a store that are made once and emptied for each test: to make them takes most of a small test's time."""

import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any, ClassVar

from tarry.store.opening import open_store
from tests.servers.mariadb import MariadbServer
from tests.servers.postgres import PostgresServer

NAME = "kept"
"""Of the schema or the database."""


class KeptTables:
    """What a test finds is what a new store has. cursor: commits by itself."""

    drop: ClassVar[str]
    shape: ClassVar[tuple[str, ...]]
    """Queries that answer the same as long as no test has changed the tables."""
    tables: ClassVar[str]
    """The query for their names."""

    def __init__(self, url: str, cursor: Any) -> None:
        self.url, self._cursor = url, cursor
        self._rows: dict[str, list[tuple[Any, ...]]] = {}
        """Those that a new store has, by table."""
        self._shape: list[Any] = []

    def emptied(self) -> str:
        """The URL of the store."""
        if self._shape != self._read_shape():
            self._make()
        for name, rows in self._rows.items():
            self._cursor.execute(f"DELETE FROM {name}")
            for row in rows:
                self._cursor.execute(f"INSERT INTO {name} VALUES ({', '.join(['%s'] * len(row))})", row)
        self.remove_board()
        return self.url

    def remove_board(self) -> None:
        """Removes what the processes that used it shared on this host."""
        raise NotImplementedError

    def _make(self) -> None:
        for statement in self.drop.split("; "):
            self._cursor.execute(statement)
        open_store(self.url).close()
        self._rows = {name: self._read(f"SELECT * FROM {name}") for (name,) in self._read(self.tables)}
        self._shape = self._read_shape()

    def _read_shape(self) -> list[Any]:
        return [self._read(query) for query in self.shape]

    def _read(self, query: str) -> list[tuple[Any, ...]]:
        self._cursor.execute(query)
        return list(self._cursor.fetchall())


class _Postgres(KeptTables):
    drop = f"DROP SCHEMA IF EXISTS {NAME} CASCADE"
    tables = f"SELECT schemaname || '.' || tablename FROM pg_tables WHERE schemaname = '{NAME}'"
    # A change of a row of the catalogue has a new `xmin`; what DELETE and VACUUM write there has none.
    shape = (
        f"""SELECT relname, relkind, relnatts, relchecks, relhastriggers FROM pg_class
        WHERE relnamespace = '{NAME}'::regnamespace ORDER BY oid""",
        f"""SELECT md5(string_agg(concat(attrelid, attname, atttypid, atttypmod, attnotnull, attisdropped), ','
        ORDER BY attrelid, attnum)) FROM pg_attribute JOIN pg_class ON attrelid = pg_class.oid
        WHERE relnamespace = '{NAME}'::regnamespace""",
        f"""SELECT md5(string_agg(concat(oid, xmin), ',' ORDER BY oid)) FROM pg_proc
        WHERE pronamespace = '{NAME}'::regnamespace""",
    )

    def remove_board(self) -> None:
        remove_postgres_board(self.url)

    def _read_shape(self) -> list[Any]:
        there = self._read(f"SELECT 1 FROM pg_namespace WHERE nspname = '{NAME}'")
        return super()._read_shape() if there else [None]


class _Mariadb(KeptTables):
    drop = f"DROP DATABASE IF EXISTS {NAME}; CREATE DATABASE {NAME}; USE {NAME}"
    tables = "SHOW TABLES"
    shape = (
        f"""SELECT table_name, column_name, column_type, is_nullable, column_default FROM information_schema.columns
        WHERE table_schema = '{NAME}' ORDER BY table_name, ordinal_position""",
        f"""SELECT table_name, index_name, column_name FROM information_schema.statistics
        WHERE table_schema = '{NAME}' ORDER BY table_name, index_name, seq_in_index""",
    )

    def remove_board(self) -> None:
        remove_board(self.url)


@contextmanager
def kept_postgres(server: PostgresServer) -> Iterator[KeptTables]:
    """Those of that server."""
    import psycopg  # noqa: PLC0415 -- need not be there

    with psycopg.connect(server.url, autocommit=True, options="-c lock_timeout=10s") as connection:
        yield _Postgres(f"{server.url}?schema={NAME}", connection.cursor())


@contextmanager
def kept_mariadb(server: MariadbServer) -> Iterator[KeptTables]:
    """As `kept_postgres`."""
    import pymysql  # noqa: PLC0415 -- need not be there

    with closing(pymysql.connect(host="127.0.0.1", port=server.port, user="root", autocommit=True)) as connection:
        yield _Mariadb(f"mysql://root@127.0.0.1:{server.port}/{NAME}", connection.cursor())


def remove_postgres_board(url: str) -> None:
    """Removes what the processes that used that schema shared on this host."""
    from tarry.store.postgres.link.url import parse_url  # noqa: PLC0415 -- its driver need not be there
    from tarry.store.postgres.wakeup import HostBoard  # noqa: PLC0415

    shutil.rmtree(HostBoard(parse_url(url)).path, ignore_errors=True)


def remove_board(url: str) -> None:
    """Removes what the processes that used that database shared on this host."""
    from tarry.store.mysql.link.address import parse  # noqa: PLC0415 -- its driver need not be there
    from tarry.store.mysql.wakeup import board_directory  # noqa: PLC0415

    shutil.rmtree(board_directory(parse(url)).path, ignore_errors=True)
