"""The finished jobs of the MySQL store, for `tarry.store.sql.pruning`. Each step is its own transaction."""

from collections.abc import Callable, Collection, Sequence
from itertools import groupby
from typing import TypeAlias

from tarry.store.mysql import sql
from tarry.store.mysql.link.connection import MysqlConnection
from tarry.store.mysql.link.literals import id_table
from tarry.store.mysql.open_lanes import close_and_remove
from tarry.store.mysql.settings import TAKE_TURN
from tarry.store.sql.lane_reader import TaskLine
from tarry.store.sql.pruning import Finished, LanePlace
from tarry.store.sql.sql_store import SqlFinishedJobs, SqlStore

Write: TypeAlias = Callable[[Callable[[MysqlConnection], int]], int]
# Above every limit: as long as there are finished jobs, pruning weighs them.
_UNBOUNDED = 2**62
# All claims under limits wait meanwhile.
_LANES_AT_ONCE = 50
"""How many open lanes one transaction removes."""


class MysqlFinished(SqlFinishedJobs):
    """The finished jobs of one database."""

    def __init__(self, store: SqlStore, write: Write) -> None:
        super().__init__(store)
        self._write = write

    def bound(self) -> int:
        return _UNBOUNDED if self._rows("SELECT 1 FROM tarry_finished LIMIT 1") else 0

    def forget(self, jobs: Sequence[Finished]) -> int:
        untils = {job.id: job.until for job in jobs}

        def work(link: MysqlConnection) -> int:
            # Under the job's lock: since pruning saw it, the job may have come back, and may have ended anew.
            look = sql.LOCK_JOBS.format(f"j.id, j.keep_until, {sql.HAS_LABELS.format('j')}", id_table(untils))
            rows = [row for row in link.rows(f"{look} AND j.state >= 3 FOR UPDATE") if row[1] == untils[row[0]]]
            still = [id for id, _, _ in rows]
            if still:
                these = id_table(still)
                labelled = [id for id, _, has_labels in rows if has_labels]
                link.run(
                    *sql.unlabel(labelled),
                    f"{sql.LOSE_KEYS.format(these)} AND j.key IS NOT NULL",
                    sql.LEAVE_FINISHED.format(these),
                    sql.FORGET.format(these),
                )
            return len(still)

        return self._write(work)

    def _remove_lanes(self, lanes: Sequence[LanePlace]) -> None:
        for (queue, band, task), alike in groupby(lanes, key=lambda lane: lane[:3]):
            names = [lane for *_, lane in alike]
            for start in range(0, len(names), _LANES_AT_ONCE):
                some = names[start : start + _LANES_AT_ONCE]
                self._write(lambda link: _remove_lanes(link, (queue, -band, task), some))  # noqa: B023


def _remove_lanes(link: MysqlConnection, line: TaskLine, lanes: Collection[str]) -> int:
    link.run(TAKE_TURN)
    close_and_remove(link, line, {}, lanes)
    return len(lanes)
