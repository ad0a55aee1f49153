"""The PostgreSQL store's statements that are no functions. `{s}` is the schema. A priority is kept as its negative,
`rank`, so that indexes run upwards."""

from functools import lru_cache

from tarry.store.postgres.functions import CLOCK, LINE

COLUMNS = """uuid_send(id), task, body, queue, -rank, due, state, epoch, failures, losses, coalesce(owner, ''),
    since, until, expires, key, note, unique_for, holds, lane, headers, progress"""
GET = f"SELECT {COLUMNS} FROM {{s}}.job WHERE id = ANY ($1)"
HELD_BY = f"SELECT {COLUMNS} FROM {{s}}.job WHERE state = 2 AND owner = $1 ORDER BY id LIMIT $2"
_OWNERS = """WITH RECURSIVE found (owner) AS (
    (SELECT owner FROM {s}.job WHERE state = 2 ORDER BY owner LIMIT 1)
    UNION ALL
    SELECT (SELECT owner FROM {s}.job j WHERE state = 2 AND j.owner > found.owner ORDER BY owner LIMIT 1)
    FROM found WHERE owner IS NOT NULL)"""
OWNERS = f"{_OWNERS} SELECT owner FROM found WHERE owner IS NOT NULL"
OVERDUE = f"""{_OWNERS} SELECT {COLUMNS} FROM {{s}}.job WHERE state = 2 AND owner = ANY (ARRAY(
    SELECT owner FROM found WHERE owner IS NOT NULL AND NOT EXISTS (
        SELECT FROM {{s}}.owner o WHERE o.name = found.owner AND o.until > $1))) ORDER BY id LIMIT $2"""
LEASE = """INSERT INTO {s}.owner AS o (name, until) VALUES ($1, $2)
    ON CONFLICT (name) DO UPDATE SET until = excluded.until WHERE o.until < $3"""
LEASED = "SELECT 1 FROM {s}.owner WHERE name = $1 AND until >= $2"
OWNED = "SELECT uuid_send(id), epoch, state, owner FROM {s}.job WHERE id = ANY ($1)"
"""By the id alone, so that what its owner had before, and is gone, is not walked over."""
HOLD = """INSERT INTO {s}.hold AS h (name, owner, until) VALUES ($1, $2, $3)
    ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, until = excluded.until
    WHERE h.owner = excluded.owner OR h.until <= $4 RETURNING name"""
OLD_LEASES = "DELETE FROM {s}.owner WHERE until < $1"
SIZE = "octet_length(body) + octet_length(note) + octet_length(headers) + octet_length(progress)"
TALLY = f"""SELECT queue, task, state, count(*), min(due), sum({SIZE})::bigint
    FROM {{s}}.job GROUP BY queue, task, state"""
LEAVING = f"""SELECT {COLUMNS} FROM {{s}}.job
    WHERE state >= 3 AND until >= $1 AND until < $2 ORDER BY until, id LIMIT $3"""
_FINISHED = "FROM {s}.job WHERE state >= 3 AND (until, id) > ($1, encode($2, 'hex')::uuid)"
FINISHED = f"""SELECT until, uuid_send(id), queue, ({SIZE})::bigint, holds <= $3 {_FINISHED}
    ORDER BY until, id LIMIT $4"""
WEIGHTS = f"""SELECT queue, sum(size)::bigint FROM (
        SELECT queue, {SIZE} AS size {_FINISHED} ORDER BY until, id LIMIT $3) AS next_
    GROUP BY queue"""
LAST_WEIGHED = f"SELECT until, uuid_send(id) {_FINISHED} ORDER BY until, id LIMIT 1 OFFSET $3 - 1"
ANY_FINISHED = "SELECT 1 FROM {s}.job WHERE state >= 3 ORDER BY until LIMIT 1"
FORGET_FINISHED = """DELETE FROM {s}.job j USING unnest($1, $2) AS f (id, until)
    WHERE j.id = f.id AND j.until = f.until AND j.state >= 3"""
ALL_BYTES = "SELECT pg_table_size('{s}.job')"
DROP_LEVELS = """WITH next_ AS MATERIALIZED (
        SELECT name FROM {s}.level WHERE name > $1 AND name < 'each;' ORDER BY name LIMIT $3),
    gone AS (
        DELETE FROM {s}.level WHERE name = ANY (ARRAY(SELECT l.name FROM {s}.level l JOIN next_ USING (name)
            WHERE l.running = 0 AND l.next <= $2 FOR UPDATE OF l SKIP LOCKED)))
    SELECT max(name), count(*) FROM next_"""
"""Of keys of tasks: their names begin with each:, and ; is the next character."""
PAUSE = "INSERT INTO {s}.paused VALUES ($1) ON CONFLICT DO NOTHING"
RESUME = "DELETE FROM {s}.paused WHERE queue = $1"
MARK = """UPDATE {s}.job j SET progress = m.progress FROM unnest($1, $2, $3) AS m (id, epoch, progress)
    WHERE j.id = m.id AND j.state + 0 = 2 AND j.epoch = m.epoch AND j.owner = $4"""
"""`+ 0` keeps it from reading all running jobs for each mark, which it would go on to do if it was planned when there
were few."""
CELLS = "SELECT name, value FROM {s}.cell WHERE name >= $1 AND name < $2 ORDER BY name"
WRITE_NEW = "INSERT INTO {s}.cell VALUES ($1, $2) ON CONFLICT DO NOTHING"
WRITE = "UPDATE {s}.cell SET value = $2 WHERE name = $1 AND value = $3"
ERASE = "DELETE FROM {s}.cell WHERE name = $1 AND value = $2"
ABSENT = "SELECT 1 FROM {s}.cell WHERE name = $1"
ASIDE = "UPDATE {s}.job SET aside = true WHERE id = ANY ($1) AND state <= 1 AND NOT aside"
TIME = f"SELECT {CLOCK}"


def _arguments(count: int) -> str:
    return ", ".join(f"${number}" for number in range(1, count + 1))


INSERT = f"SELECT place, lives FROM {{s}}.insert_v1({_arguments(25)})"
EXCHANGE = f"SELECT * FROM {{s}}.exchange_v1({_arguments(26)}, $27::int, $28::int, $29, $30)"
NEXT_DUE = """SELECT (SELECT due FROM {s}.job WHERE state = 0 AND NOT aside AND due >= $1 ORDER BY due LIMIT 1),
    (SELECT due FROM {s}.job WHERE state = 0 AND aside ORDER BY due LIMIT 1)"""
QUEUES = "SELECT queue, paused FROM {s}.queues_v1($1, $2, $3, $4)"
BACKLOG = f"""WITH open_ AS (
        SELECT queue FROM unnest($1::text[]) AS given (queue) WHERE queue NOT IN (SELECT queue FROM {{s}}.paused)),
    early AS MATERIALIZED (
        (SELECT queue, due FROM {{s}}.job WHERE state = 0 AND NOT aside AND due <= $2 ORDER BY due LIMIT $3)
        UNION ALL (SELECT queue, due FROM {{s}}.job WHERE state = 0 AND aside AND due <= $2 ORDER BY due LIMIT $3))
    SELECT count(*), min(due) FROM (
        SELECT due FROM early WHERE queue NOT IN (SELECT queue FROM {{s}}.paused)
            AND ($4::int = 1 OR queue IN (SELECT queue FROM open_))
        UNION ALL SELECT j.due FROM open_ o CROSS JOIN LATERAL (SELECT due FROM {{s}}.job
            WHERE state = 1 AND lane IS NULL AND queue = o.queue ORDER BY aside, {LINE}, rank, due, id LIMIT $3) AS j
        UNION ALL SELECT j.due FROM open_ o CROSS JOIN LATERAL (SELECT due FROM {{s}}.job
            WHERE state = 1 AND lane IS NOT NULL AND queue = o.queue LIMIT $3) AS j
        LIMIT $3) AS found"""

# Lanes

_PLACED = "uuid_send(id), rank, due, since > due, queue, task, lane"
_BAND = "(rank > 0)::int - (rank < 0)::int"
_LANED = f"FROM {{s}}.job WHERE state = 1 AND lane IS NOT NULL AND queue = $1 AND {_BAND} = $2::int"


def _open_line(late: bool) -> str:
    columns = "SELECT id, rank, due, since, queue, task, lane FROM {s}.job"
    line = f"{columns} WHERE state = 1 AND lane IS NULL AND queue = $1 AND {LINE} = {int(late)} + 2 * $2::int"
    return f"""(SELECT {_PLACED} FROM (
        ({line} AND NOT aside AND rank = $2 ORDER BY due, id LIMIT $3)
        UNION ALL ({line} AND aside ORDER BY rank, due, id LIMIT $3)) AS line
        ORDER BY rank, due, id LIMIT $3)"""


OPEN_LINES = f"{_open_line(True)} UNION ALL {_open_line(False)}"
"""The late ones, then those on time; of each those in line and those aside."""
TASKS = f"""WITH RECURSIVE found (task) AS (
    (SELECT task {_LANED} ORDER BY task LIMIT 1)
    UNION ALL
    SELECT (SELECT task {_LANED} AND task > found.task ORDER BY task LIMIT 1) FROM found WHERE task IS NOT NULL)
    SELECT task FROM found WHERE task IS NOT NULL"""
_LANES = f"""WITH RECURSIVE found (lane, n) AS (
    (SELECT lane, 1 {_LANED} AND task = $3 AND lane {{first}} $4 ORDER BY lane LIMIT 1)
    UNION ALL
    SELECT (SELECT lane {_LANED} AND task = $3 AND lane > found.lane ORDER BY lane LIMIT 1), n + 1
    FROM found WHERE lane IS NOT NULL AND n < $5::int)
    SELECT f.lane, coalesce(l.running, 0), coalesce(l.next, 0), true
    FROM found f LEFT JOIN {{s}}.level l ON l.name = 'each:' || $3 || chr(31) || f.lane
    WHERE f.lane IS NOT NULL ORDER BY f.n"""
_OPEN = f"""WITH RECURSIVE found (lane, n) AS (
    (SELECT lane, 1 {{open}} AND lane {{first}} $4 ORDER BY lane LIMIT 1)
    UNION ALL
    SELECT (SELECT lane {{open}} AND lane > found.lane ORDER BY lane LIMIT 1), n + 1
    FROM found WHERE lane IS NOT NULL AND n < $5::int)
    SELECT f.lane, coalesce(l.running, 0), coalesce(l.next, 0),
        EXISTS (SELECT {_LANED} AND task = $3 AND lane = f.lane)
    FROM found f LEFT JOIN {{s}}.level l ON l.name = 'each:' || $3 || chr(31) || f.lane
    WHERE f.lane IS NOT NULL ORDER BY f.n""".replace(
    "{open}", "FROM {s}.lane WHERE again IS NULL AND queue = $1 AND band = -$2::int AND task = $3"
)
OPEN_FROM = _OPEN.replace("{first}", ">=")
OPEN_AFTER = _OPEN.replace("{first}", ">")
LANES_FROM = _LANES.replace("{first}", ">=")
LANES_AFTER = _LANES.replace("{first}", ">")
LINES = f"""SELECT found.* FROM unnest($4, $5) WITH ORDINALITY AS w (name, most, n)
    CROSS JOIN LATERAL (
        SELECT {_PLACED} {_LANED} AND task = $3 AND lane = w.name ORDER BY rank, due, id LIMIT w.most) AS found
    ORDER BY w.n"""
LEVELS_THERE = (
    "INSERT INTO {s}.level SELECT name, 0, 0 FROM unnest($1) AS n (name) ORDER BY name ON CONFLICT DO NOTHING"
)
LEVELS = "SELECT name, running, next, turn FROM {s}.level WHERE name = ANY ($1) ORDER BY name FOR UPDATE"
LEVELS_SEEN = "SELECT name, running, next FROM {s}.level WHERE name = ANY ($1)"
RAISE_LEVELS = """INSERT INTO {s}.level AS l (name, running, next) SELECT * FROM unnest($1, $2, $3)
    ON CONFLICT (name) DO UPDATE SET running = l.running + excluded.running, next = excluded.next"""
SAVE_TURNS = "UPDATE {s}.level l SET turn = t.turn FROM unnest($1, $2) AS t (name, turn) WHERE l.name = t.name"
TAKE = """UPDATE {s}.job j SET state = 2, owner = $2, epoch = j.epoch + 1, since = $3,
    holds = CASE WHEN j.unique_for < 0 THEN 0 ELSE j.holds END
    WHERE j.id = ANY (ARRAY(SELECT r.id FROM {s}.job r WHERE r.id = ANY ($1) AND r.state = 1 FOR UPDATE SKIP LOCKED))
    RETURNING uuid_send(j.id), j.task, j.body, j.queue, -j.rank, j.due, j.epoch, j.failures, j.losses, j.expires,
    j.key, j.note, j.unique_for, j.holds, j.lane, j.headers, j.progress"""
_COUNTED = """WITH running AS (SELECT queue, task, lane, count(*) AS n FROM {s}.job WHERE state = 2 GROUP BY 1, 2, 3),
    named AS (
        SELECT 'queue:' || queue AS name, n FROM running
        UNION ALL SELECT 'task:' || task, n FROM running WHERE lane IS NOT NULL
        UNION ALL SELECT 'each:' || task || chr(31) || lane, n FROM running WHERE lane IS NOT NULL),
    counted AS (SELECT name, sum(n)::bigint AS n FROM named
        WHERE split_part(name, chr(31), 1) IN (SELECT name FROM {s}.limits) GROUP BY name)"""
MISCOUNTED = f"""{_COUNTED} SELECT coalesce(l.name, c.name) FROM counted c FULL JOIN (
        SELECT name, running FROM {{s}}.level
        WHERE split_part(name, chr(31), 1) IN (SELECT name FROM {{s}}.limits)) AS l ON l.name = c.name
    WHERE coalesce(l.running, 0) <> coalesce(c.n, 0)"""
"""One statement sees levels and jobs as they were at one moment, so no lock is needed to know."""
LOCK_LEVELS = "SELECT FROM {s}.level WHERE name = ANY ($1) ORDER BY starts_with(name, 'each:'), name FOR UPDATE"
RECOUNT = f"""{_COUNTED} UPDATE {{s}}.level l SET running = coalesce((SELECT n FROM counted c WHERE c.name = l.name), 0)
    WHERE l.name = ANY ($1) AND l.running <> coalesce((SELECT n FROM counted c WHERE c.name = l.name), 0)"""
LIMITS = "SELECT name, value FROM {s}.limits ORDER BY name"
LIMITS_OF = "SELECT name, value FROM {s}.limits WHERE name = ANY ($1)"
PAUSED = "SELECT queue FROM {s}.paused"
NOBODY_ELSE = """SET LOCAL lock_timeout = '50ms'; LOCK TABLE {s}.limits IN ACCESS EXCLUSIVE MODE;
    SET LOCAL lock_timeout TO DEFAULT"""
"""Every claim, change and insert reads the limits, so none is under way and none begins: what runs can be counted.
While it waits for those that are under way nobody else begins either, so it waits only for a moment."""
CHANGE_LIMIT = "UPDATE {s}.limits SET value = $2 WHERE name = $1"
SET_LIMIT = "INSERT INTO {s}.limits VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
LIFT_LIMIT = "DELETE FROM {s}.limits WHERE name = $1"
UNUSED = """UPDATE {s}.level SET running = 0, next = CASE WHEN $2 THEN 0 ELSE next END
    WHERE name = $1 OR starts_with(name, $1 || chr(31))"""
INTO_LANES = "UPDATE {s}.job SET lane = '' WHERE lane IS NULL AND state < 3 AND task = $1"
RUNNING_IN = {
    True: "SELECT queue, task, lane FROM {s}.job WHERE state = 2 AND queue = $1",
    False: "SELECT queue, task, lane FROM {s}.job WHERE state = 2 AND task = $1",
}
RUNNING_NOW = """INSERT INTO {s}.level AS l (name, running, next)
    SELECT name, running, 0 FROM unnest($1, $2) AS n (name, running)
    ON CONFLICT (name) DO UPDATE SET running = excluded.running"""


@lru_cache(maxsize=256)
def at(statement: str, schema: str) -> str:
    """The statement on the tables of that schema."""
    return statement.replace("{s}", schema)
