"""The finished jobs of the MySQL store, for `tarry.store.shared.pruning`. Each step is its own transaction."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from tarry.store.mysql import sql
from tarry.store.mysql.link.connection import MysqlConnection
from tarry.store.mysql.sql import id_table
from tarry.store.shared.pruning import Finished
from tarry.store.shared.sql_store import SqlFinishedJobs, SqlStore

Write: TypeAlias = Callable[[Callable[[MysqlConnection], int]], int]
# Above every limit: as long as there are finished jobs, pruning weighs them.
_UNBOUNDED = 2**62


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
            locked = f"{sql.LOCK_JOBS.format('j.id, j.until', id_table(untils))} AND j.state >= 3 FOR UPDATE"
            still = [id for id, until in link.rows(locked) if until == untils[id]]
            if still:
                these = id_table(still)
                link.run(
                    f"{sql.LOSE_KEYS.format(these)} AND j.job_key IS NOT NULL",
                    sql.LEAVE_FINISHED.format(these),
                    sql.FORGET.format(these),
                )
            return len(still)

        return self._write(work)
