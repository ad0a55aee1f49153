"""Reads and deletes finished jobs, for `tarry.store.sql.pruning`. Each call is its own transaction."""

from collections.abc import Mapping, Sequence
from itertools import groupby

from tarry.store.postgres import packing as pack
from tarry.store.postgres import sql
from tarry.store.postgres.limits import PostgresLimits
from tarry.store.postgres.link.pool import PostgresPool
from tarry.store.sql.pruning import Finished, LanePlace, PrunedPlace
from tarry.store.sql.sql_store import SqlFinishedJobs, SqlStore

# PostgreSQL may compress jobs on disk, but hardly to less than a tenth of their size.
COMPRESSED = 10
"""How many bytes of jobs one byte on disk may hold."""


class PostgresFinished(SqlFinishedJobs):
    """The finished jobs in one schema."""

    def __init__(self, store: SqlStore, pool: PostgresPool, schema: str) -> None:
        super().__init__(store)
        self._pool, self._schema = pool, schema

    def bound(self) -> int:
        # Cheap, unlike adding up the sizes of all jobs: so that is done only if there may be too much.
        if not self._rows(sql.ANY_FINISHED):
            return 0
        ((size,),) = self._rows(sql.ALL_BYTES)
        return int(size) * COMPRESSED

    def after(self, place: PrunedPlace, now: int, count: int) -> Sequence[Finished]:
        return super().after(_whole(place), now, count)

    def weights(self, place: PrunedPlace, count: int) -> tuple[Mapping[str, int], PrunedPlace | None]:
        return super().weights(_whole(place), count)

    def forget(self, jobs: Sequence[Finished]) -> int:
        # Sorted, so that two processes that prune at once lock the rows in the same order.
        in_order = sorted(jobs, key=lambda job: job.id)
        values = pack.uuids([job.id for job in in_order]), pack.big_ints([job.until for job in in_order])
        statement = sql.for_schema(sql.FORGET_FINISHED, self._schema)
        return self._pool.call(lambda connection: connection.run(statement, values))

    def drop_levels(self, name: str, now: int, count: int) -> str | None:
        ((last, looked_at),) = self._rows(sql.DROP_LEVELS, (name, now, count))
        return last if looked_at == count else None

    def _remove_lanes(self, lanes: Sequence[LanePlace]) -> None:
        for line, alike in groupby(lanes, key=lambda lane: lane[:3]):
            names = sorted({lane for *_, lane in alike})
            self._pool.call(lambda link: PostgresLimits(link, self._schema).remove_between_claims(line, names))  # noqa: B023


def _whole(place: PrunedPlace) -> PrunedPlace:
    # A UUID needs 16 bytes, but the place before all jobs has an empty id.
    until, id = place
    return until, id.ljust(16, b"\0")
