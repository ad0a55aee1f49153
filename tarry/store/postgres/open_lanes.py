"""The open lanes of tasks with a limit for each key: a claim looks at these only.

A transaction that puts a job into such a lane always adds a row to the table `lane`: if it relied on a row that is
there, it would have to wait for a transaction that removes that row. A claim that finds a lane full closes it: one
closed row replaces all open rows. A claim that takes the last job of a lane removes its rows, as does the keeper where
the last job was taken away. A lane is opened when one of its
attempts ends, when its rate allows a start, and when its limit changes. No lane stays closed or is lost by mistake:

- Closing locks the row of the level and sees that it is still full. The end of an attempt locks the level before it
  opens lanes. If it comes first, there is room; if it comes second, it finds the closed row and opens it.
- The statement that removes a row sees that no job waits there. A row is committed together with its job, so a
  statement that does not see the job does not see its row either.
"""

from collections.abc import Iterable, Mapping, Sequence

from tarry.model.limit import EACH, TASK, Level, Limit
from tarry.store.postgres import packing as pack
from tarry.store.postgres import sql
from tarry.store.postgres.constants import UNTIL_AN_END
from tarry.store.postgres.link.connection import PostgresConnection
from tarry.store.rules.lanes import is_wrongly_closed, lane_level
from tarry.store.sql.lane_reader import Lane, TaskLine

_OPEN = "again IS NULL AND queue = $1 AND band = $2::int AND task = $3"
# A level that another transaction has locked may change: its lane stays open, and a later claim closes it.
_LOCKED = "SELECT name, running, next FROM {s}.level WHERE name = ANY ($1) FOR UPDATE SKIP LOCKED"
# Only while the task still has the limit by which the lanes are full: a change has opened its lanes already.
_CLOSE = f"""WITH full_ AS (SELECT * FROM unnest($4, $5) AS f (lane, again)
        WHERE EXISTS (SELECT FROM {{s}}.limits WHERE name = 'each:' || $3 AND value = $6)),
    gone AS (DELETE FROM {{s}}.lane WHERE ctid = ANY (ARRAY(SELECT o.ctid FROM {{s}}.lane o
        WHERE {_OPEN} AND lane IN (SELECT lane FROM full_) LIMIT 2000)))
    INSERT INTO {{s}}.lane (queue, band, task, lane, again) SELECT $1, $2::int, $3, f.lane, f.again FROM full_ f
    WHERE NOT EXISTS (SELECT FROM {{s}}.lane c WHERE c.again IS NOT NULL AND c.task = $3 AND c.lane = f.lane
        AND c.queue = $1 AND c.band = $2::int)"""
# LIMIT keeps the planner from joining: it would read all open lanes, or all jobs that wait, for each lane.
_REMOVE = f"""DELETE FROM {{s}}.lane WHERE ctid = ANY (ARRAY(SELECT o.ctid FROM unnest($4) AS n (name)
    CROSS JOIN LATERAL (SELECT ctid, lane FROM {{s}}.lane WHERE {_OPEN} AND lane = n.name LIMIT 2000) AS o
    WHERE (SELECT true FROM {{s}}.job j WHERE j.state = 1 AND j.lane IS NOT NULL AND j.queue = $1
        AND (j.claim_order > 0)::int - (j.claim_order < 0)::int = -$2::int AND j.task = $3 AND j.lane = o.lane
        LIMIT 1) IS NULL
    LIMIT 2000))"""
_ALL_OF = """INSERT INTO {s}.lane (queue, band, task, lane)
    SELECT DISTINCT queue, (claim_order < 0)::int - (claim_order > 0)::int, task, lane FROM {s}.job
    WHERE state = 1 AND lane IS NOT NULL AND task = $1"""
_NONE_OF = "DELETE FROM {s}.lane WHERE task = $1"
_OPEN_TASK = "UPDATE {s}.lane SET again = NULL WHERE again IS NOT NULL AND task = $1"
_CLOSED_NOW = f"""SELECT DISTINCT c.task, c.lane, coalesce(l.running, 0), nullif(c.again, {UNTIL_AN_END})
    FROM {{s}}.lane c LEFT JOIN {{s}}.level l ON l.name = 'each:' || c.task || chr(31) || c.lane
    WHERE c.again IS NOT NULL"""
_OPEN_THESE = """UPDATE {s}.lane c SET again = NULL FROM unnest($1, $2) AS o (task, lane)
    WHERE c.again IS NOT NULL AND c.task = o.task AND c.lane = o.lane"""


def close(
    link: PostgresConnection, schema: str, line: TaskLine, lanes: Iterable[str], limit: tuple[Limit, bytes], now: int
) -> None:
    """Closes the lanes that are full. limit: the task's limit for each key, decoded and as it is stored.

    To be called only at the end of a claim: after it the claim must not wait for any lock.
    """
    queue, band, task = line
    names = {lane_level(task, lane): lane for lane in lanes}
    # Locked and read again: an attempt may have ended since the claim saw the lane full, and then there is room.
    locked = link.rows(sql.for_schema(_LOCKED, schema), (pack.texts(names),))
    # Where nothing may start there may be no row of a level: the lane is full without one.
    levels = dict.fromkeys(names, Level()) if limit[0].most == 0 else {}
    levels |= {name: Level(running, following) for name, running, following in locked}
    full = {names[name]: level.again(limit[0], now) for name, level in levels.items() if not level.room(limit[0], now)}
    if full:
        again = pack.big_ints(UNTIL_AN_END if time is None else time for time in full.values())
        link.run(sql.for_schema(_CLOSE, schema), (queue, band, task, pack.texts(full), again, limit[1]))


def remove(link: PostgresConnection, schema: str, line: TaskLine, lanes: Iterable[str]) -> None:
    """Removes the lanes where no job waits."""
    link.run(sql.for_schema(_REMOVE, schema), (*line, pack.texts(lanes)))


def remove_empty(link: PostgresConnection, schema: str, line: TaskLine, lanes: Iterable[str]) -> None:
    """As `remove`, between claims: in a transaction of its own."""
    # Behind the lock that claims of the task have: two that remove rows at once may wait for each other.
    turn = (pack.texts([TASK + line[-1]]),)
    with link.transaction_with():
        link.run(sql.for_schema(sql.LEVELS_THERE, schema), turn)
        link.rows(sql.for_schema(sql.LEVELS, schema), turn)
        remove(link, schema, line, lanes)


def reset_lanes(link: PostgresConnection, schema: str, name: str, limit: Limit | None) -> None:
    """After a limit was set or lifted, while all others wait: opens all lanes of its task, or forgets them."""
    # All rows are made anew: while there was no limit, jobs came without a row.
    if name.startswith(EACH):
        link.run(sql.for_schema(_NONE_OF, schema), (name.removeprefix(EACH),))
        if limit is not None:
            link.run(sql.for_schema(_ALL_OF, schema), (name.removeprefix(EACH),))


def reopen_task(link: PostgresConnection, schema: str, name: str) -> None:
    """After a limit changed: waits for claims that use the old one, then opens the closed lanes of its task."""
    if name.startswith(EACH):
        # A claim holds the lock of the task's level. One that still uses the old limit could close lanes after this.
        task = name.removeprefix(EACH)
        turn = (pack.texts([TASK + task]),)
        link.run(sql.for_schema(sql.LEVELS_THERE, schema), turn)
        link.rows(sql.for_schema(sql.LEVELS, schema), turn)
        link.run(sql.for_schema(_OPEN_TASK, schema), (task,))


def find_wrongly_closed(link: PostgresConnection, schema: str, limits: Mapping[str, Limit], now: int) -> Sequence[Lane]:
    """The lanes that need not be closed."""
    return [
        (task, lane)
        for task, lane, running, again in link.rows(sql.for_schema(_CLOSED_NOW, schema))
        if is_wrongly_closed(limits.get(EACH + task), running, again, now)
    ]


def reopen(link: PostgresConnection, schema: str, lanes: Sequence[Lane]) -> None:
    """Opens these lanes, in all queues and bands."""
    tasks, names = zip(*lanes, strict=True)
    link.run(sql.for_schema(_OPEN_THESE, schema), (pack.texts(tasks), pack.texts(names)))
