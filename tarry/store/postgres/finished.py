"""The finished jobs of the PostgreSQL store, for `tarry.store.shared.pruning`: each step is its own transaction."""

from collections.abc import Mapping, Sequence
from typing import Any

from tarry.store.postgres import rows as pack
from tarry.store.postgres import sql
from tarry.store.postgres.connection import Connections
from tarry.store.postgres.link import Row
from tarry.store.shared.pruning import Finished, Place

COMPRESSED = 10
"""Compressed, the jobs may take less than they weigh, but hardly less than a tenth."""


class PostgresFinished:
    """Those in one schema."""

    def __init__(self, connections: Connections, schema: str) -> None:
        self._connections, self._schema = connections, schema

    def bound(self) -> int:
        if not self._rows(sql.ANY_FINISHED):
            return 0
        ((size,),) = self._rows(sql.ALL_BYTES)
        return int(size) * COMPRESSED

    def after(self, place: Place, now: int, count: int) -> Sequence[Finished]:
        return [Finished(*row) for row in self._rows(sql.FINISHED, (*_packed(place), now, count))]

    def weights(self, place: Place, count: int) -> tuple[Mapping[str, int], Place | None]:
        weights: dict[str, int] = dict(self._rows(sql.WEIGHTS, (*_packed(place), count)))
        last = self._rows(sql.LAST_WEIGHED, (*_packed(place), count))
        return weights, (last[0][0], last[0][1]) if last else None

    def forget(self, jobs: Sequence[Finished]) -> int:
        in_order = sorted(jobs, key=lambda job: job.id)
        values = pack.uuids([job.id for job in in_order]), pack.big_ints([job.until for job in in_order])
        statement = sql.at(sql.FORGET_FINISHED, self._schema)
        return self._connections.call(lambda link: link.run(statement, values))

    def drop_levels(self, name: str, now: int, count: int) -> str | None:
        ((last, looked_at),) = self._rows(sql.DROP_LEVELS, (name, now, count))
        return last if looked_at == count else None

    def _rows(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        text = sql.at(statement, self._schema)
        return self._connections.call(lambda link: link.rows(text, values))


def _packed(place: Place) -> tuple[int, bytes]:
    until, id = place
    return until, id.ljust(16, b"\0")
