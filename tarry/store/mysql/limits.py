"""Sets, lifts and recounts limits, and keeps the rooms of bounded queues; each within one transaction of its caller."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from tarry.model.limit import QUEUE, Level, Limit
from tarry.store.mysql import open_lanes, sql
from tarry.store.mysql.claim import into_lanes
from tarry.store.mysql.lane_reader import NOT_EACH
from tarry.store.mysql.link.connection import MysqlConnection
from tarry.store.mysql.link.literals import bind, bounded_statements, id_list, id_table, raw, text
from tarry.store.mysql.settings import LIMITS, NUMBER, RAISE, TAKE_TURN, limits_of
from tarry.store.rules.kept_places import PREFIX, job_keys
from tarry.store.rules.lanes import JobKey, count_by_level, wrong_levels

# STRAIGHT_JOIN: running jobs are few, and are looked up in the large table, not the other way round.
_ALL_RUNNING = "SELECT j.queue, j.task, j.lane FROM tarry_running r STRAIGHT_JOIN tarry_job j ON j.id = r.id"

_ALL_KEPT = f"SELECT value FROM tarry_cell WHERE name LIKE '{PREFIX}%'"


def change_limit(link: MysqlConnection, name: str, limit: Limit) -> bool:
    """Changes a limit that is set; False if it is not set."""
    # Running jobs are counted and waiting jobs have lanes since the limit was set, so no pass over the jobs is needed.
    value = f"UPDATE tarry_limit SET value = {raw(msgspec.json.encode(limit))} WHERE name = {text(name)}"
    *_, found = link.run(RAISE, value)
    if found.changed > 0:
        open_lanes.reopen_task(link, name)
    return found.changed > 0


def set_limit(link: MysqlConnection, name: str, limit: Limit | None) -> str | None:
    """Sets or lifts a limit, and counts the running jobs. Answers the task whose waiting jobs may have no lane yet."""
    if limit is not None and change_limit(link, name, limit):
        return None
    which = f"name = {text(name)} OR (name >= {text(name + chr(31))} AND name < {text(name + chr(32))})"
    change = f"DELETE FROM tarry_limit WHERE name = {text(name)}"
    if limit is not None:
        value = f"{text(name)}, {raw(msgspec.json.encode(limit))}, ({NUMBER})"
        change = f"INSERT INTO tarry_limit VALUES ({value}) ON DUPLICATE KEY UPDATE value = VALUES(value)"
    unused = f"UPDATE tarry_level SET running = 0{', next = 0' if limit is None else ''} WHERE {which}"
    link.run(RAISE, TAKE_TURN, change, unused)
    open_lanes.reset_lanes(link, name, limit)
    if limit is None:
        return None
    kind, _, task = name.partition(":")
    # Lanes belong to tasks: a queue's limit holds for jobs in the open line too.
    of_task = f"{kind}:" != QUEUE
    if of_task:
        _move_running_into_lanes(link, task)
    _count_running(link, name, limit)
    return task if of_task else None


def _move_running_into_lanes(link: MysqlConnection, task: str) -> None:
    rows = link.rows(
        "SELECT r.id FROM tarry_running r STRAIGHT_JOIN tarry_job j ON j.id = r.id"
        f" WHERE j.lane IS NULL AND j.task = {text(task)}"
    )
    if rows:
        ids = id_list(id for (id,) in rows)
        link.run(f"UPDATE tarry_job FORCE INDEX (PRIMARY) SET lane = '' WHERE id IN ({ids})")


def _count_running(link: MysqlConnection, name: str, limit: Limit) -> None:
    kind, _, which = name.partition(":")
    column = "queue" if f"{kind}:" == QUEUE else "task"
    running, kept = link.run(f"{_ALL_RUNNING} WHERE j.{column} = {text(which)}", _ALL_KEPT)
    _write_running(link, count_by_level(_counted(running.rows, kept.rows), {name: limit}))


def _counted(running: Sequence[Any], kept: Sequence[Any]) -> list[JobKey]:
    """What levels count: running jobs and kept places, of these rows."""
    return [*map(_job_key, running), *job_keys(bytes(value) for (value,) in kept)]


def _job_key(row: Sequence[Any]) -> JobKey:
    queue, task, lane = row
    return (
        queue.decode("utf-8", "replace"),
        task.decode("utf-8", "replace"),
        None if lane is None else lane.decode("utf-8", "replace"),
    )


def _write_running(link: MysqlConnection, counts: Mapping[str, int]) -> None:
    values = (f"({text(name)},{count})" for name, count in sorted(counts.items()))
    link.run(*bounded_statements("INSERT INTO tarry_level (name, running) VALUES ", values,
                     " ON DUPLICATE KEY UPDATE running = VALUES(running)"))  # fmt: skip


def find_wrong_levels(link: MysqlConnection) -> dict[str, int]:
    """The right count for each wrong level, by name. Without the turn it may also name right levels."""
    limits = limits_of(link.rows(LIMITS))
    if not limits:
        return {}
    levels, running, kept = link.run("SELECT name, running FROM tarry_level", _ALL_RUNNING, _ALL_KEPT)
    return wrong_levels(
        _counted(running.rows, kept.rows),
        limits,
        {name.decode("utf-8", "replace"): count for name, count in levels.rows},
    )


def needs_recount(link: MysqlConnection, now: int) -> bool:
    """Whether a level or a closed lane may be wrong."""
    # Without the turn, since that would hold up claims, and there is hardly ever anything wrong.
    return bool(find_wrong_levels(link) or open_lanes.find_wrongly_closed(link, limits_of(link.rows(LIMITS)), now))


def recount(link: MysqlConnection, now: int) -> int:
    """Corrects levels and opens lanes that need not be closed; answers how many levels were wrong."""
    # Claims and ends go on while `needs_recount` looks: the counts are exact only under the turn.
    link.run(TAKE_TURN)
    wrong = find_wrong_levels(link)
    _write_running(link, wrong)
    closed = open_lanes.find_wrongly_closed(link, limits_of(link.rows(LIMITS)), now)
    link.run(*open_lanes.reopen_statements(link, closed))
    return len(wrong)


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


def all_limits(link: MysqlConnection) -> dict[str, tuple[Limit, Level]]:
    """Limits and levels, by name."""
    limits, rows = link.run(LIMITS, f"SELECT name, running, next FROM tarry_level WHERE {NOT_EACH}")
    levels = {name.decode("utf-8", "replace"): Level(running, following) for name, running, following in rows.rows}
    return {name: (limit, levels.get(name, Level())) for name, limit in sorted(limits_of(limits.rows).items())}


class MysqlRooms:
    """The rooms of queues with a bound, in the transaction of the connection."""

    def __init__(self, link: MysqlConnection) -> None:
        self._link = link

    def lock(self, name: str) -> bytes | None:
        """The value of a cell, locked; empty if there was none."""
        # Changes nothing where the row is there, but locks it: one that is not there could not be locked.
        self._link.run(f"INSERT INTO tarry_cell VALUES ({text(name)}, '') ON DUPLICATE KEY UPDATE name = name")
        ((value,),) = self._link.rows(f"SELECT value FROM tarry_cell WHERE name = {text(name)} FOR UPDATE")
        return bytes(value)

    def save(self, name: str, value: bytes) -> None:
        """Sets the value of a cell that is locked."""
        self._link.run(f"UPDATE tarry_cell SET value = {raw(value)} WHERE name = {text(name)}")

    def count(self, queue: str, most: int) -> int:
        """How many jobs of a queue wait; at most `most`."""
        # The first plain read of the transaction comes after the lock, so it sees what others committed before that.
        ((count,),) = self._link.rows(bind(sql.COUNT_WAITING, (queue, most)))
        return int(count)
