"""Every byte that a store keeps, as whoever steals its disk has it."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import redis

from tarry import App


def raw_bytes(app: App, directory: Path) -> bytes:
    """All that the store of this app has. directory: where the files of stores are."""
    url = str(app.store_url if isinstance(app.store_url, str) else app.store_url[0])
    if url.startswith("redis"):
        return b"\n".join(_of_redis(url))
    if url.startswith("postgres"):
        return b"\n".join(_of_postgres(url))
    if url.startswith("mysql"):
        return b"\n".join(_of_mysql(app.client.store))
    return b"\n".join(file.read_bytes() for file in directory.rglob("*") if file.is_file())


def _of_redis(url: str) -> Iterator[bytes]:
    with closing(redis.Redis.from_url(url)) as server:
        # Packed values would hide what is in them.
        server.config_set("rdbcompression", "no")
        for key in server.scan_iter():
            yield key + b"\n" + (server.dump(key) or b"")


def _of_postgres(url: str) -> Iterator[bytes]:
    with psycopg.connect(url.partition("?")[0], autocommit=True) as link:
        tables = link.execute(
            "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname !~ '^(pg_|information_)'"
        ).fetchall()
        assert tables
        for (table,) in tables:
            for row in link.cursor(binary=True).execute(f"SELECT * FROM {table}").fetchall():
                yield from map(_plain, row)


def _of_mysql(store: Any) -> Iterator[bytes]:
    to = store.address
    with closing(pymysql.connect(host=to.host, port=to.port, user=to.user, database=to.database)) as link:
        cursor = link.cursor()
        cursor.execute("SHOW TABLES")
        for (table,) in cursor.fetchall():
            cursor.execute(f"SELECT * FROM `{table}`")
            for row in cursor.fetchall():
                yield from map(_plain, row)


def _plain(value: object) -> bytes:
    return bytes(value) if isinstance(value, bytes | bytearray | memoryview) else str(value).encode()
