"""The finished jobs of the MySQL store, for `tarry.store.shared.pruning`: each step is a transaction of its own."""

from collections.abc import Mapping, Sequence

from tarry.store.mysql import sql
from tarry.store.mysql.calls import Calls
from tarry.store.mysql.link import Link
from tarry.store.mysql.sql import among, listed, raw, text
from tarry.store.shared.pruning import Finished, Place

_AFTER = "f.until >= {0} AND (f.until > {0} OR HEX(f.id) > {1})"
"""HEX hides that part from the planner, which would look for both parts of the OR by themselves."""
_NEXT = "FROM tarry_finished f FORCE INDEX (PRIMARY) WHERE {} ORDER BY f.until, f.id LIMIT {}"
_FIRST = f"SELECT f.until, f.id, f.queue, f.size {_NEXT}"
_FINISHED = "SELECT f.until, f.id, f.queue, f.size, j.holds <= {} FROM ({}) f STRAIGHT_JOIN tarry_job j ON j.id = f.id"
_WEIGHTS = "SELECT queue, SUM(size) FROM ({}) s GROUP BY queue"
_LAST = f"SELECT f.until, f.id {_NEXT}, 1"
_BOUND = "SELECT IFNULL((SELECT 1 FROM tarry_finished LIMIT 1), 0)"
_LEVELS = """SELECT name, running = 0 AND next <= {} FROM tarry_level WHERE name > {} AND name < 'each;'
    ORDER BY name LIMIT {}"""
"""Of keys of tasks: their names begin with each:, and ; is the next character."""
_DROP = "DELETE FROM tarry_level WHERE name IN ({}) AND running = 0 AND next <= {}"
_UNBOUNDED = 2**62


class MysqlFinished:
    """Those of one database."""

    def __init__(self, calls: Calls) -> None:
        self._call, self._write = calls.call, calls.write

    def bound(self) -> int:
        ((any_,),) = self._call(lambda link: link.rows(_BOUND))
        return _UNBOUNDED if any_ else 0

    def after(self, place: Place, now: int, count: int) -> Sequence[Finished]:
        statement = _FINISHED.format(now, _FIRST.format(_beyond(place), count))
        rows = self._call(lambda link: link.rows(f"{statement} ORDER BY f.until, f.id"))
        return [Finished(until, id, queue.decode(), size, bool(free)) for until, id, queue, size, free in rows]

    def weights(self, place: Place, count: int) -> tuple[Mapping[str, int], Place | None]:
        beyond = _beyond(place)
        sums, last = self._call(
            lambda link: link.run(_WEIGHTS.format(_FIRST.format(beyond, count)), _LAST.format(beyond, count - 1))
        )
        found = {queue.decode(): int(size) for queue, size in sums.rows}
        return found, (last.rows[0][0], last.rows[0][1]) if last.rows else None

    def forget(self, jobs: Sequence[Finished]) -> int:
        untils = {job.id: job.until for job in jobs}

        def work(link: Link) -> int:
            locked = f"{sql.LOCK_JOBS.format('j.id, j.until', among(untils))} AND j.state >= 3 FOR UPDATE"
            still = [id for id, until in link.rows(locked) if until == untils[id]]
            if still:
                these = among(still)
                link.run(
                    f"{sql.LOSE_KEYS.format(these)} AND j.job_key IS NOT NULL",
                    sql.LEAVE_FINISHED.format(these),
                    sql.FORGET.format(these),
                )
            return len(still)

        return self._write(work)

    def drop_levels(self, name: str, now: int, count: int) -> str | None:
        rows = self._call(lambda link: link.rows(_LEVELS.format(now, text(name), count)))
        if idle := [name for name, is_idle in rows if is_idle]:
            self._write(lambda link: link.run(_DROP.format(listed(idle), now)))
        return rows[-1][0].decode() if len(rows) == count else None


def _beyond(place: Place) -> str:
    until, id = place
    return _AFTER.format(until, f"HEX({raw(id)})" if id else "''")
