"""The history in a schema of PostgreSQL."""

from collections.abc import Sequence
from typing import Any

from tarry.store.postgres import packing as pack
from tarry.store.postgres import sql
from tarry.store.postgres.link.connection import PostgresConnection
from tarry.store.postgres.link.pool import PostgresPool
from tarry.store.rules.history.history import Taken
from tarry.store.rules.history.sums import Place
from tarry.store.sql.history import RAISE, SqlHistory, Tables

_FORGET = "DELETE FROM {s}.journal WHERE n = ANY ($1)"
_DELETE = """DELETE FROM {s}.history AS h USING unnest($1, $2, $3, $4) AS gone (resolution, start, queue, task)
    WHERE h.resolution = gone.resolution AND h.start = gone.start AND h.queue = gone.queue AND h.task = gone.task"""
_WRITE = """INSERT INTO {s}.history (resolution, start, queue, task, value) SELECT * FROM unnest($1, $2, $3, $4, $5)
    ON CONFLICT (resolution, start, queue, task) DO UPDATE SET value = excluded.value"""


class PostgresHistory(SqlHistory):
    """The history of one schema."""

    def __init__(self, store: Tables, pool: PostgresPool) -> None:
        super().__init__(store, "{s}.")
        self._pool = pool

    def _fold(self, taken: Taken, rows: Sequence[tuple[Any, ...]], gone: Sequence[Place]) -> bool:
        places, values = [row[:4] for row in rows], [row[4] for row in rows]

        def work(connection: PostgresConnection) -> bool:
            with connection.transaction_with():
                # Who waits here for another who sums up finds another number then.
                if not self._run(connection, RAISE.format("{s}."), (taken.number,)):
                    return False
                self._run(connection, _FORGET, (pack.big_ints(taken.places),))
                self._run(connection, _WRITE, (*_places(places), pack.blobs(values)))
                if gone:
                    self._run(connection, _DELETE, _places(gone))
                return True

        return self._pool.call(work)

    def _run(self, connection: PostgresConnection, statement: str, values: Sequence[Any]) -> int:
        return connection.run(sql.for_schema(statement, self._pool.url.schema), values)


def _places(places: Sequence[Sequence[Any]]) -> tuple[bytes, ...]:
    resolutions, starts, queues, tasks = zip(*places, strict=True) if places else ((),) * 4
    return pack.ints(resolutions), pack.big_ints(starts), pack.texts(queues), pack.texts(tasks)
