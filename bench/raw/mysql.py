"""MySQL, MariaDB: a token is written into the next rows, which are then read; DELETE at the end."""

import os
import threading
from typing import Any
from urllib.parse import unquote, urlsplit

import pymysql

from bench.raw.limit import CONTENT

_TABLE = """CREATE TABLE tarry_raw (id BIGINT AUTO_INCREMENT PRIMARY KEY, token BIGINT NOT NULL DEFAULT 0,
    body VARBINARY(1000) NOT NULL, KEY waiting (token, id)) ENGINE = InnoDB"""


class MysqlRaw:
    """One connection."""

    def __init__(self, url: str) -> None:
        self._db = connected(url)
        self._token = (os.getpid() * 1000 + threading.get_native_id() % 1000) * 1_000_000

    def batch(self, size: int) -> list[tuple[bytes]]:
        """Rows."""
        return [(CONTENT,)] * size

    def insert(self, batch: list[tuple[bytes]]) -> None:
        """One transaction, one statement."""
        with self._db.cursor() as cursor:
            cursor.executemany("INSERT INTO tarry_raw (body) VALUES (%s)", batch)
        self._db.commit()

    def exchange(self, finished: list[int], size: int) -> list[int]:
        """One transaction."""
        self._token += 1
        with self._db.cursor() as cursor:
            if finished:
                cursor.execute(f"DELETE FROM tarry_raw WHERE id IN ({','.join(map(str, finished))})")
            cursor.execute("UPDATE tarry_raw SET token = %s WHERE token = 0 ORDER BY id LIMIT %s", (self._token, size))
            cursor.execute("SELECT id, body FROM tarry_raw WHERE token = %s", (self._token,))
            rows: Any = cursor.fetchall()
        self._db.commit()
        return [row[0] for row in rows]

    def close(self) -> None:
        """Closes the connection."""
        self._db.close()


def opened(target: str, durable: bool) -> MysqlRaw:
    """A connection; how safe it is, is the server's to say."""
    return MysqlRaw(target)


def emptied(target: str) -> None:
    """Makes the table anew."""
    removed(target)
    _once(target, _TABLE)


def removed(target: str) -> None:
    """Removes the table."""
    _once(target, "DROP TABLE IF EXISTS tarry_raw")


def _once(url: str, statement: str) -> None:
    connection = connected(url)
    with connection.cursor() as cursor:
        cursor.execute(statement)
    connection.close()


def connected(url: str) -> "pymysql.connections.Connection[Any]":
    """A new connection to the database of a URL."""
    parts = urlsplit(url)
    connection = pymysql.connect(
        host=parts.hostname,
        port=parts.port or 3306,
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        database=parts.path.strip("/"),
    )
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
    return connection
