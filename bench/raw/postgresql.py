"""PostgreSQL: a table with a partial index, SKIP LOCKED, DELETE at the end. Two statements a turn, one round trip."""

from typing import Any

import psycopg

from bench.raw.limit import CONTENT

_TABLE = """CREATE TABLE tarry_raw (id bigserial PRIMARY KEY, lease timestamptz, body bytea NOT NULL);
CREATE INDEX tarry_raw_ready ON tarry_raw (id) WHERE lease IS NULL"""
_INSERT = "INSERT INTO tarry_raw (body) SELECT unnest(%s::bytea[])"
_CLAIM = """UPDATE tarry_raw SET lease = now() + interval '1h' WHERE id IN
    (SELECT id FROM tarry_raw WHERE lease IS NULL ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED) RETURNING id, body"""
_FINISH = "DELETE FROM tarry_raw WHERE id = ANY(%s)"


class PostgresRaw:
    """One connection."""

    def __init__(self, url: str, durable: bool) -> None:
        self._url = url
        self._ear: psycopg.Connection[Any] | None = None
        self._db = psycopg.connect(url, prepare_threshold=1)
        if not durable:
            self._db.execute("SET synchronous_commit = off")
        self._db.commit()

    def batch(self, size: int) -> list[bytes]:
        """Bodies."""
        return [CONTENT] * size

    def insert(self, batch: list[bytes]) -> None:
        """One transaction."""
        with self._db.pipeline():
            self._db.execute(_INSERT, (batch,))
            self._db.commit()

    def exchange(self, finished: list[int], size: int) -> list[int]:
        """One transaction, one round trip."""
        with self._db.pipeline():
            if finished:
                self._db.execute(_FINISH, (finished,))
            claimed: Any = self._db.execute(_CLAIM, (size,))
            self._db.commit()
            return [row[0] for row in claimed.fetchall()]

    def hand_over(self) -> None:
        """One job, and one transaction that tells who waits."""
        with self._db.pipeline():
            self._db.execute(_INSERT, (self.batch(1),))
            self._db.execute("NOTIFY tarry_raw")
            self._db.commit()

    def wait(self, seconds: float) -> bool:
        """LISTEN on one connection, and the claim on another, whose commit need not be on the disk."""
        if self._ear is None:
            self._ear = psycopg.connect(self._url, autocommit=True)
            self._ear.execute("LISTEN tarry_raw")
        heard = any(self._ear.notifies(timeout=seconds, stop_after=1))
        return heard and bool(self.exchange([], 1))

    def close(self) -> None:
        """Closes the connections."""
        if self._ear is not None:
            self._ear.close()
        self._db.close()


def opened(target: str, durable: bool) -> PostgresRaw:
    """A connection."""
    return PostgresRaw(target, durable)


def emptied(target: str) -> None:
    """Makes the table anew."""
    removed(target)
    with psycopg.connect(target) as connection:
        connection.execute(_TABLE)


def removed(target: str) -> None:
    """Removes the table."""
    with psycopg.connect(target) as connection:
        connection.execute("DROP TABLE IF EXISTS tarry_raw")
