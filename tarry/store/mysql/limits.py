"""Limits in MySQL and MariaDB. Who reads or writes levels or open lanes has the turn (`mysql.settings.TAKE_TURN`)."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from tarry.model.limit import KeyLimit, Level, Limit
from tarry.store.mysql import open_lanes, sql
from tarry.store.mysql.claim import into_lanes
from tarry.store.mysql.link.connection import MysqlConnection
from tarry.store.mysql.link.literals import bind, bounded_statements, id_list, id_table, raw, text
from tarry.store.mysql.settings import NUMBER, RAISE, TAKE_TURN
from tarry.store.rules.base import PlaceAnswer, ShareChange
from tarry.store.rules.lanes import UNTIL_AN_END, JobKey
from tarry.store.sql.columns import Row
from tarry.store.sql.lane_reader import Lane
from tarry.store.sql.limits import LimitSql, RoomSql, SqlLimits, SqlRooms
from tarry.store.sql.transaction import SqlTransaction

_WRITE_LEVELS = "INSERT INTO tarry_level (name, running, next) VALUES "
_SET_LEVELS = " ON DUPLICATE KEY UPDATE running = VALUES(running), next = VALUES(next)"


class MysqlTransaction(SqlTransaction):
    """A transaction of the connection."""

    def __init__(self, link: MysqlConnection) -> None:
        self._link = link

    def rows(self, statement: str, values: Sequence[Any] = ()) -> Sequence[Row]:
        return self._link.rows(bind(statement, values))

    def each(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        self._link.run(*(bind(statement, row) for row in rows))


class MysqlLimits(MysqlTransaction, SqlLimits):
    """The limits and open lanes of one database."""

    sql = LimitSql(
        tables="tarry_",
        limits="tarry_limit",
        put=f"INSERT INTO tarry_limit VALUES (?1, ?2, ({NUMBER})) ON DUPLICATE KEY UPDATE value = VALUES(value)",
        # STRAIGHT_JOIN: running jobs are few, and are looked up in the large table, not the other way round.
        running="tarry_running r STRAIGHT_JOIN tarry_job j ON j.id = r.id WHERE TRUE",
        closed=f"""SELECT c.task, c.lane, IFNULL(l.running, 0), NULLIF(c.again, {UNTIL_AN_END}) FROM tarry_closed c
            LEFT JOIN tarry_level l ON l.name = CONCAT('each:', c.task, X'1F', c.lane)""",
        next_open=open_lanes.NEXT_TIME,
        add_lanes=open_lanes.ALL_OF.format("?1"),
        remove_lanes=open_lanes.NONE_CLOSED.format("?1"),
        reopen_task=(open_lanes.OPEN_TASK.format("?1"), open_lanes.NONE_CLOSED.format("?1")),
    )

    def change(self, statement: str, values: Sequence[Any]) -> int:
        return self._link.run(bind(statement, values))[0].changed

    def named_rows(self, source: str, names: Sequence[str]) -> Sequence[Row]:
        return self._link.rows(f"SELECT {source} WHERE name IN ({id_list(name.encode() for name in names)})")

    def set_running(self, counts: Mapping[str, int]) -> None:
        values = (f"({text(name)},{count})" for name, count in sorted(counts.items()))
        self._link.run(*bounded_statements("INSERT INTO tarry_level (name, running) VALUES ", values,
                       " ON DUPLICATE KEY UPDATE running = VALUES(running)"))  # fmt: skip

    def _move_into_lanes(self, task: str) -> None:
        # Only those that run: the store moves those that wait, a few at a time.
        rows = self.rows(f"SELECT r.id FROM {self.sql.running} AND j.lane IS NULL AND j.task = ?1", (task,))
        if rows:
            ids = id_list(id for (id,) in rows)
            self._link.run(f"UPDATE tarry_job FORCE INDEX (PRIMARY) SET lane = '' WHERE id IN ({ids})")

    def take_place(self, name: str, key: JobKey, until: int, cost: int, now: int) -> PlaceAnswer:
        self._link.run(TAKE_TURN)
        return super().take_place(name, key, until, cost, now)

    def set_next(self, levels: Mapping[str, Level]) -> None:
        self.raise_levels(levels)

    def change_shares(self, changes: Sequence[ShareChange], now: int) -> list[bool]:
        self._link.run(RAISE, TAKE_TURN)
        return super().change_shares(changes, now)

    def raise_levels(self, levels: Mapping[str, Level]) -> None:
        self._link.run(*write_levels(levels))

    def reopen(self, lanes: Collection[Lane]) -> None:
        self._link.run(*open_lanes.reopen_statements(self._link, lanes))

    def reopen_some_due(self, now: int, most: int) -> None:
        due = self.rows(f"SELECT DISTINCT task, lane FROM tarry_closed WHERE again <= {now} LIMIT {most}")
        self._link.run(*(statement for row in due for statement in open_lanes.reopen_lane(row)))

    def set_limit(self, name: str, limit: Limit | None) -> bool:
        self._link.run(RAISE, TAKE_TURN)
        return super().set_limit(name, limit)

    def limit_key(self, task: str, lane: str, limit: KeyLimit | None) -> bool:
        self._link.run(RAISE, TAKE_TURN)
        return super().limit_key(task, lane, limit)

    def recount(self, now: int) -> int:
        # Claims and ends go on while `needs_recount` looks: the counts are exact only under the turn.
        self._link.run(TAKE_TURN)
        return super().recount(now)


def write_levels(levels: Mapping[str, Level]) -> Iterator[str]:
    """The statements that set these levels."""
    values = (f"({text(name)},{level.running},{level.next})" for name, level in sorted(levels.items()))
    return bounded_statements(_WRITE_LEVELS, values, _SET_LEVELS)


class MysqlRooms(MysqlTransaction, SqlRooms):
    """The rooms of queues with a bound."""

    rooms = RoomSql(
        # Changes nothing where the row is there, but locks it: one that is not there could not be locked.
        make="INSERT INTO tarry_cell VALUES (?1, '') ON DUPLICATE KEY UPDATE name = name",
        lock="SELECT value FROM tarry_cell WHERE name = ?1 FOR UPDATE",
        save="UPDATE tarry_cell SET value = ?2 WHERE name = ?1",
        # The first plain read of the transaction, so it sees what others committed before the lock.
        count=sql.COUNT_WAITING,
        count_key=sql.COUNT_KEY,
    )

    def find_stored(self, ids: Sequence[bytes]) -> Collection[bytes]:
        rows = self._link.rows(f"SELECT id FROM tarry_job FORCE INDEX (PRIMARY) WHERE id IN ({id_list(ids)})")
        return [id for (id,) in rows]


def jobs_without_lane(link: MysqlConnection, task: str, after: bytes) -> list[bytes]:
    """Ids of waiting jobs of this task without a lane: the first thousand after that id."""
    rows = link.rows(
        f"SELECT id FROM tarry_job WHERE id > {raw(after)} AND task = {text(task)}"
        " AND lane IS NULL AND state IN (0, 1) ORDER BY id LIMIT 1000"
    )
    return [id for (id,) in rows]


def move_into_lanes(link: MysqlConnection, ids: Sequence[bytes]) -> None:
    """Moves these jobs into the lane of their task, if they still wait."""
    found = link.rows(
        f"{sql.LOCK_JOBS.format('j.id, j.state', id_table(ids))} AND j.state IN (0, 1) AND j.lane IS NULL FOR UPDATE"
    )
    ready = [id for id, state in found if state == 1]
    if ready:
        into_lanes(link, ready)
    # A scheduled job is in no line yet: its row only has to say into which lane it will go.
    if scheduled := [id for id, state in found if state == 0]:
        link.run(f"UPDATE tarry_job FORCE INDEX (PRIMARY) SET lane = '' WHERE id IN ({id_list(scheduled)})")
