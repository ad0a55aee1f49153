"""Which lanes of tasks with a limit for each key may give something: a claim looks at these only.

Whoever lets a job wait in such a lane adds a row to the table `lane`, always: to rely on one that is there would be to
wait for whoever removes it. A claim that finds a lane full closes it, by one row in place of all that are open; one
that finds it empty removes them. It is opened when one of its attempts ends, when its rate allows a start, and when its
limit changes. Row by row:

- closed: the level's row is locked, and it is still full. An end locks the level before it opens lanes, so it comes
  either before that, and there is room, or after it, and finds what was closed.
- removed: in the statement that sees that nothing waits there. A row is committed together with its job, so one whose
  job is not seen is not seen either.
"""

from collections.abc import Iterable, Mapping, Sequence

from tarry.model.limit import EACH, TASK, Level, Limit
from tarry.store.postgres import rows as pack
from tarry.store.postgres import sql
from tarry.store.postgres.functions import UNTIL_AN_END
from tarry.store.postgres.link import Link
from tarry.store.shared.lanes import each, is_wrongly_closed

Line = tuple[str, int, str]
"""Queue, band and task."""
_OPEN = "again IS NULL AND queue = $1 AND band = $2::int AND task = $3"
_LOCKED = "SELECT name, running, next FROM {s}.level WHERE name = ANY ($1) FOR UPDATE SKIP LOCKED"
_CLOSE = f"""WITH full_ AS (SELECT * FROM unnest($4, $5) AS f (lane, again)
        WHERE EXISTS (SELECT FROM {{s}}.limits WHERE name = 'each:' || $3 AND value = $6)),
    gone AS (DELETE FROM {{s}}.lane WHERE ctid = ANY (ARRAY(SELECT o.ctid FROM {{s}}.lane o
        WHERE {_OPEN} AND lane IN (SELECT lane FROM full_) LIMIT 2000)))
    INSERT INTO {{s}}.lane (queue, band, task, lane, again) SELECT $1, $2::int, $3, f.lane, f.again FROM full_ f
    WHERE NOT EXISTS (SELECT FROM {{s}}.lane c WHERE c.again IS NOT NULL AND c.task = $3 AND c.lane = f.lane
        AND c.queue = $1 AND c.band = $2::int)"""
"""While it has the limit by which it is full."""
_REMOVE = f"""DELETE FROM {{s}}.lane WHERE ctid = ANY (ARRAY(SELECT o.ctid FROM {{s}}.lane o
    WHERE {_OPEN} AND lane = ANY ($4) AND NOT EXISTS (SELECT FROM {{s}}.job j WHERE j.state = 1 AND j.lane IS NOT NULL
        AND j.queue = $1 AND (j.rank > 0)::int - (j.rank < 0)::int = -$2::int AND j.task = $3 AND j.lane = o.lane)
    LIMIT 2000))"""
_ALL_OF = """INSERT INTO {s}.lane (queue, band, task, lane)
    SELECT DISTINCT queue, (rank < 0)::int - (rank > 0)::int, task, lane FROM {s}.job
    WHERE state = 1 AND lane IS NOT NULL AND task = $1"""
_NONE_OF = "DELETE FROM {s}.lane WHERE task = $1"
_OPEN_TASK = "UPDATE {s}.lane SET again = NULL WHERE again IS NOT NULL AND task = $1"
_CLOSED_NOW = f"""SELECT DISTINCT c.task, c.lane, coalesce(l.running, 0), nullif(c.again, {UNTIL_AN_END})
    FROM {{s}}.lane c LEFT JOIN {{s}}.level l ON l.name = 'each:' || c.task || chr(31) || c.lane
    WHERE c.again IS NOT NULL"""
_OPEN_THESE = """UPDATE {s}.lane c SET again = NULL FROM unnest($1, $2) AS o (task, lane)
    WHERE c.again IS NOT NULL AND c.task = o.task AND c.lane = o.lane"""


def close(link: Link, schema: str, line: Line, lanes: Iterable[str], limit: tuple[Limit, bytes], now: int) -> None:
    """Closes those of these lanes that are full. limit: of the task, for each key, and as it is kept. To be called at
    the end of a claim: it waits for nobody, and nobody may be waited for after it."""
    queue, band, task = line
    names = {each(task, lane): lane for lane in lanes}
    locked = link.rows(sql.at(_LOCKED, schema), (pack.texts(names),))
    levels = dict.fromkeys(names, Level()) if limit[0].most == 0 else {}
    levels |= {name: Level(running, following) for name, running, following in locked}
    full = {names[name]: level.again(limit[0], now) for name, level in levels.items() if not level.room(limit[0], now)}
    if full:
        again = pack.big_ints(UNTIL_AN_END if time is None else time for time in full.values())
        link.run(sql.at(_CLOSE, schema), (queue, band, task, pack.texts(full), again, limit[1]))


def remove(link: Link, schema: str, line: Line, lanes: Iterable[str]) -> None:
    """Those of these lanes where nothing waits are looked at no more."""
    link.run(sql.at(_REMOVE, schema), (*line, pack.texts(lanes)))


def limit_set(link: Link, schema: str, name: str, limit: Limit | None) -> None:
    """A limit was set or lifted, while nobody else does anything."""
    if name.startswith(EACH):
        link.run(sql.at(_NONE_OF, schema), (name.removeprefix(EACH),))
        if limit is not None:
            link.run(sql.at(_ALL_OF, schema), (name.removeprefix(EACH),))


def limit_changed(link: Link, schema: str, name: str) -> None:
    """A limit has another number, by this transaction. Waits for claims that go by the one before."""
    if name.startswith(EACH):
        task = name.removeprefix(EACH)
        turn = (pack.texts([TASK + task]),)
        link.run(sql.at(sql.LEVELS_THERE, schema), turn)
        link.rows(sql.at(sql.LEVELS, schema), turn)
        link.run(sql.at(_OPEN_TASK, schema), (task,))


def wrongly_closed(link: Link, schema: str, limits: Mapping[str, Limit], now: int) -> Sequence[tuple[str, str]]:
    """Task and lane of those that need not be closed."""
    return [
        (task, lane)
        for task, lane, running, again in link.rows(sql.at(_CLOSED_NOW, schema))
        if is_wrongly_closed(limits.get(EACH + task), running, again, now)
    ]


def open_these(link: Link, schema: str, lanes: Sequence[tuple[str, str]]) -> None:
    """Opens them."""
    tasks, names = zip(*lanes, strict=True)
    link.run(sql.at(_OPEN_THESE, schema), (pack.texts(tasks), pack.texts(names)))
