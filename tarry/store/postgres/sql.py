"""Statements of the PostgreSQL store outside its functions. `{s}` is the schema."""

from functools import lru_cache

from tarry.model.job import HELD
from tarry.model.overrides import COST_MARK
from tarry.store.postgres.constants import CLOCK, LINE, STORED_WITHIN, in_schema
from tarry.store.postgres.job_columns import NEW_TYPES, PLAIN, USUAL, of_row
from tarry.store.shared.columns import BLOBS, CLAIMED, ColumnKind
from tarry.store.sql.columns import column_list
from tarry.store.sql.sql_store import SqlStatements, distinct_scan
from tarry.store.sql.waiting import WaitingDialect, count_of_lane

_ID = "encode({}, 'hex')::uuid"
_COLUMNS = column_list(expressions={"id": "uuid_send(id)", "priority": "-claim_order", "owner": "coalesce(owner, '')"})
_OWNERS = distinct_scan("owner", "FROM {s}.job WHERE state = 2")
LEASE = """INSERT INTO {s}.owner AS o (name, until) VALUES ($1, $2)
    ON CONFLICT (name) DO UPDATE SET until = excluded.until WHERE o.until < $3"""
LEASED_UNTIL = "SELECT until FROM {s}.owner WHERE name = $1"
LEASED = "SELECT 1 FROM {s}.owner WHERE name = $1 AND until >= $2"
# By id alone: by owner it would read index entries of all jobs that the owner had before.
OWNED = "SELECT uuid_send(id), epoch, state, owner FROM {s}.job WHERE id = ANY ($1)"
_SIZE = " + ".join(f"octet_length({column})" for column in BLOBS)
# The nodes of a flow, kept until HELD, go with it.
_FINISHED = f"FROM {{s}}.job WHERE state >= 3 AND (keep_until, id) > (?1, {_ID.format('?2')}) AND keep_until < {HELD}"
STATEMENTS = SqlStatements(
    tables="{s}.",
    jobs=f"SELECT {_COLUMNS} FROM {{s}}.job",
    id=_ID,
    bytes_of="uuid_send({})",
    tally=f"""SELECT queue, task, state, count(*), min(due), sum({_SIZE})::bigint
        FROM {{s}}.job GROUP BY queue, task, state""",
    expiring=f"""SELECT {_COLUMNS} FROM {{s}}.job
        WHERE state >= 3 AND keep_until >= ?1 AND keep_until < ?2 ORDER BY keep_until, id LIMIT ?3""",
    held_by=f"SELECT {_COLUMNS} FROM {{s}}.job WHERE state = 2 AND owner = ?1 ORDER BY id LIMIT ?2",
    overdue=f"""{_OWNERS} SELECT {_COLUMNS} FROM {{s}}.job WHERE state = 2 AND owner = ANY (ARRAY(
        SELECT value FROM found WHERE value IS NOT NULL AND NOT EXISTS (
            SELECT FROM {{s}}.owner o WHERE o.name = found.value AND o.until > ?1))) ORDER BY id LIMIT ?2""",
    owners=f"{_OWNERS} SELECT value FROM found WHERE value IS NOT NULL",
    lanes="""SELECT o.*, (SELECT true FROM {s}.job j WHERE j.state = 1 AND j.lane IS NOT NULL AND j.queue = o.queue
            AND (j.claim_order > 0)::int - (j.claim_order < 0)::int = -o.band AND j.task = o.task
            AND j.lane = o.lane LIMIT 1) IS NULL
        FROM (SELECT DISTINCT queue, band::int, task, lane FROM {s}.lane
            WHERE again IS NULL AND (queue, band, task, lane) > (?1, ?2::smallint, ?3, ?4)
            ORDER BY queue, band, task, lane LIMIT ?5) o""",
    hold="""INSERT INTO {s}.hold AS h (name, owner, until) VALUES (?1, ?2, ?3)
        ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, until = excluded.until
        WHERE h.owner = excluded.owner OR h.until <= ?4 OR h.until > ?4 + 86400000000""",
    finished=f"""SELECT keep_until, uuid_send(id), queue, ({_SIZE})::bigint, key_held_until <= ?3 {_FINISHED}
        ORDER BY keep_until, id LIMIT ?4""",
    weights=f"""SELECT queue, sum(size)::bigint FROM (
        SELECT queue, {_SIZE} AS size {_FINISHED} ORDER BY keep_until, id LIMIT ?3) AS next_ GROUP BY queue""",
    last_weighed=f"SELECT keep_until, uuid_send(id) {_FINISHED} ORDER BY keep_until, id LIMIT 1 OFFSET ?3",
)
ANY_FINISHED = "SELECT 1 FROM {s}.job WHERE state >= 3 ORDER BY keep_until LIMIT 1"
# Locked in the order of names, so that two callers do not wait for each other.
_LOCK = "JOIN {s}.cell c ON c.name = n.name AND c.value = n.was ORDER BY c.name FOR UPDATE OF c"
INSERT_CELLS = """INSERT INTO {s}.cell (name, value) SELECT n.name, n.value FROM unnest($1, $2) AS n (name, value)
    ORDER BY n.name ON CONFLICT DO NOTHING"""
DELETE_CELLS = f"""WITH seen AS (SELECT c.name FROM unnest($1, $2) AS n (name, was) {_LOCK})
    DELETE FROM {{s}}.cell c USING seen WHERE c.name = seen.name"""
UPDATE_CELLS = f"""WITH seen AS (SELECT c.name, n.value FROM unnest($1, $2, $3) AS n (name, value, was) {_LOCK})
    UPDATE {{s}}.cell c SET value = seen.value FROM seen WHERE c.name = seen.name"""
"""Of many named values at once. names, values, and what they were."""
FORGET_FINISHED = """DELETE FROM {s}.job j USING unnest($1, $2) AS f (id, keep_until)
    WHERE j.id = f.id AND j.keep_until = f.keep_until AND j.state >= 3"""
ALL_BYTES = "SELECT pg_table_size('{s}.job')"
# Levels of keys: their names begin with `each:`, and `;` is the character after the colon. A locked level is in use.
DROP_LEVELS = """WITH next_ AS MATERIALIZED (
        SELECT name FROM {s}.level WHERE name > $1 AND name < 'each;' ORDER BY name LIMIT $3),
    gone AS (
        DELETE FROM {s}.level WHERE name = ANY (ARRAY(SELECT l.name FROM {s}.level l JOIN next_ USING (name)
            WHERE l.running = 0 AND l.next <= $2 FOR UPDATE OF l SKIP LOCKED)))
    SELECT max(name), count(*) FROM next_"""
# `+ 0` hides the index of running jobs from the planner, and ANY makes it use that of ids: planned when there were few,
# the statement would read all running jobs, or all jobs.
SAVE_PROGRESS = """UPDATE {s}.job j SET progress = m.progress FROM unnest($1, $2, $3) AS m (id, epoch, progress)
    WHERE j.id = ANY ($1) AND j.id = m.id AND j.state + 0 = 2 AND j.epoch = m.epoch AND j.owner = $4
    RETURNING j.id, j.epoch"""
SET_ASIDE = "UPDATE {s}.job SET out_of_order = true WHERE id = ANY ($1) AND state <= 1 AND NOT out_of_order"
TIME = f"SELECT {CLOCK}"


def _arguments(count: int) -> str:
    return ", ".join(f"${number}" for number in range(1, count + 1))


_LITERALS = {
    ColumnKind.NUMBER: "0",
    ColumnKind.COUNT: "0",
    ColumnKind.NAME: "''",
    ColumnKind.BLOB: "''",
    ColumnKind.OPTIONAL: "NULL",
}
# A job of a limited task waits in a lane.
_USUAL = {column.field: _LITERALS[column.kind] for column in USUAL} | {
    "lane": "(SELECT '' FROM {s}.limits WHERE name IN ('task:' || $2, 'each:' || $2) LIMIT 1)"
}
# For one job this costs the server a quarter less than `insert_v1`, and the client a third. As there, the job joins the
# lane of a limited task, and the limits are read under the lock that keeps them from being set meanwhile.
INSERT_PLAIN = f"""WITH in_lane AS (
        INSERT INTO {{s}}.lane (queue, band, task, lane)
        SELECT $4, ($5 < 0)::int - ($5 > 0)::int, $2, '' FROM {{s}}.limits WHERE name = 'each:' || $2 AND $6 = 1),
    new AS (INSERT INTO {{s}}.job ({column_list(PLAIN)}, {column_list(_USUAL)}, out_of_order)
    VALUES ({_ID.format("$1")}, $2, $3, $4, $5, $6, $7, $8, $9, $10, {", ".join(_USUAL.values())},
        $7 < {CLOCK} - {STORED_WITHIN} OR ($6 = 1 AND abs($5) > 1))
    ON CONFLICT (id) DO NOTHING RETURNING 1)
    INSERT INTO {{s}}.journal (record) SELECT $11 FROM new"""
INSERT_PLAIN_AND_NOTIFY = f"{INSERT_PLAIN} RETURNING pg_notify($12, $13)"
INSERT = f"SELECT place, lives FROM {{s}}.insert_v1({_arguments(len(NEW_TYPES) + 5)})"
EXCHANGE = f"SELECT * FROM {{s}}.exchange_v1({_arguments(27)}, $28::int, $29::int, $30, $31, $32)"
EXCHANGE_NODES = EXCHANGE.replace("exchange_v1", "exchange_nodes_v1").replace(
    "$32)", f"$32, {', '.join(f'${number}' for number in range(33, 52))})"
)
# Two looks: jobs in order only from the scan start on, so that deleted entries before it are not read.
NEXT_DUE = """SELECT (SELECT due FROM {s}.job WHERE state = 0 AND NOT out_of_order AND due >= $1 ORDER BY due LIMIT 1),
    (SELECT due FROM {s}.job WHERE state = 0 AND out_of_order ORDER BY due LIMIT 1)"""
QUEUES = "SELECT queue, paused FROM {s}.queues_v1($1, $2, $3, $4)"
BACKLOG = f"""WITH open_ AS (
        SELECT queue FROM unnest($1::text[]) AS given (queue) WHERE queue NOT IN (SELECT queue FROM {{s}}.paused)),
    early AS MATERIALIZED (
        (SELECT queue, due FROM {{s}}.job WHERE state = 0 AND NOT out_of_order AND due <= $2 ORDER BY due LIMIT $3)
        UNION ALL
        (SELECT queue, due FROM {{s}}.job WHERE state = 0 AND out_of_order AND due <= $2 ORDER BY due LIMIT $3))
    SELECT count(*), min(due) FROM (
        SELECT due FROM early WHERE queue NOT IN (SELECT queue FROM {{s}}.paused)
            AND ($4::int = 1 OR queue IN (SELECT queue FROM open_))
        UNION ALL SELECT j.due FROM open_ o CROSS JOIN LATERAL (SELECT due FROM {{s}}.job
            WHERE state = 1 AND lane IS NULL AND queue = o.queue
            ORDER BY out_of_order, {LINE}, claim_order, due, id LIMIT $3) AS j
        UNION ALL SELECT j.due FROM open_ o CROSS JOIN LATERAL (SELECT due FROM {{s}}.job
            WHERE state = 1 AND lane IS NOT NULL AND queue = o.queue LIMIT $3) AS j
        LIMIT $3) AS found"""

_WAITING = """SELECT {0} FROM {{s}}.job WHERE state = 1 AND lane IS NULL AND queue = $1
    UNION ALL SELECT {0} FROM {{s}}.job WHERE state = 1 AND lane IS NOT NULL AND queue = $1
    UNION ALL SELECT {0} FROM {{s}}.job WHERE state = 0 AND queue = $1"""
COUNT_WAITING = f"SELECT count(*) FROM ({_WAITING.format('1')} LIMIT $2) AS waiting"
_BY_BAND = "CASE WHEN state = 0 THEN 2 ELSE (claim_order < 0)::int - (claim_order > 0)::int END, due, id"
OLDEST_WAITING = f"""{STATEMENTS.jobs} WHERE id = ANY (ARRAY(
    SELECT id FROM ({_WAITING.format("id, state, claim_order, due")}) AS waiting
    ORDER BY {_BY_BAND} LIMIT $2)) ORDER BY {_BY_BAND}"""
# Before the lock, since a row that is not there cannot be locked.
CELL_THERE = "INSERT INTO {s}.cell VALUES ($1, '') ON CONFLICT DO NOTHING"
LOCK_CELL = "SELECT value FROM {s}.cell WHERE name = $1 FOR UPDATE"
SAVE_CELL = "UPDATE {s}.cell SET value = $2 WHERE name = $1"

# Lanes

_COST = f"CASE WHEN position('\\x{COST_MARK.hex()}'::bytea IN headers) > 0 THEN headers END"
_CANDIDATE = f"uuid_send(id), claim_order, due, state_since > due, queue, task, lane, {_COST}"
_BAND = "(claim_order > 0)::int - (claim_order < 0)::int"
_LANED = f"FROM {{s}}.job WHERE state = 1 AND lane IS NOT NULL AND queue = $1 AND {_BAND} = $2::int"


def _open_line(late: bool) -> str:
    # Two looks, each in the order of its part of the index, so that LIMIT ends both early.
    columns = "SELECT id, claim_order, due, state_since, queue, task, lane, headers FROM {s}.job"
    line = f"{columns} WHERE state = 1 AND lane IS NULL AND queue = $1 AND {LINE} = {int(late)} + 2 * $2::int"
    return f"""(SELECT {_CANDIDATE} FROM (
        ({line} AND NOT out_of_order AND claim_order = $2 ORDER BY due, id LIMIT $3)
        UNION ALL ({line} AND out_of_order ORDER BY claim_order, due, id LIMIT $3)) AS line
        ORDER BY claim_order, due, id LIMIT $3)"""


OPEN_LINES = f"{_open_line(True)} UNION ALL {_open_line(False)}"
"""The first late jobs, then the first jobs on time; each with jobs in order and jobs out of order."""
_OF_LINE = f"FROM {{s}}.job WHERE state = 1 AND lane IS NOT NULL AND queue = w.queue AND {_BAND} = -w.band::int"
TASKS = f"""SELECT w.queue, w.band, f.value, (SELECT true FROM {{s}}.job r WHERE r.state = 1 AND r.lane IS NULL
        AND r.queue = w.queue AND {LINE} BETWEEN -2 * w.band AND 1 - 2 * w.band LIMIT 1) IS NOT NULL
    FROM unnest($1, $2) AS w (queue, band)
    LEFT JOIN LATERAL ({distinct_scan("task", _OF_LINE)} SELECT value FROM found WHERE value IS NOT NULL) AS f ON true
    WHERE (SELECT true FROM {{s}}.paused p WHERE p.queue = w.queue) IS NULL ORDER BY w.queue, w.band, f.value"""
"""For each line that is not paused: the tasks with jobs in its lanes; NULL if there are none. Then whether jobs without
a lane wait in it."""
_OPEN = "FROM {s}.lane WHERE again IS NULL AND queue = $1 AND band = -$2::int"


def _lanes(source: str, has_jobs: str, start: str) -> str:
    return f"""{distinct_scan("lane", f"{source} AND task = $3", start, "$5::int")}
        SELECT f.value, coalesce(l.running, 0), coalesce(l.next, 0), {has_jobs}
        FROM found f LEFT JOIN {{s}}.level l ON l.name = 'each:' || $3 || chr(31) || f.value
        WHERE f.value IS NOT NULL ORDER BY f.n"""


_FROM, _AFTER = "AND lane >= $4", "AND lane > $4"
# No EXISTS: the planner may read all jobs of the task and hash their lanes.
_HAS_JOBS = f"(SELECT true {_LANED} AND task = $3 AND lane = f.value LIMIT 1) IS NOT NULL"
# LIMIT keeps the planner from joining: it would read all lanes.
OPEN_NAMED = f"""SELECT f.value, coalesce(l.running, 0), coalesce(l.next, 0), {_HAS_JOBS}
    FROM (SELECT value FROM unnest($4) AS n (value) WHERE (SELECT true {_OPEN} AND task = $3 AND lane = n.value
        LIMIT 1)) AS f
    LEFT JOIN {{s}}.level l ON l.name = 'each:' || $3 || chr(31) || f.value"""
OPEN_FROM, OPEN_AFTER = _lanes(_OPEN, _HAS_JOBS, _FROM), _lanes(_OPEN, _HAS_JOBS, _AFTER)
LANES_FROM, LANES_AFTER = _lanes(_LANED, "true", _FROM), _lanes(_LANED, "true", _AFTER)
LINES = f"""SELECT found.* FROM unnest($4, $5) WITH ORDINALITY AS w (name, most, n)
    CROSS JOIN LATERAL (
        SELECT {_CANDIDATE} {_LANED} AND task = $3 AND lane = w.name
        ORDER BY claim_order, due, id LIMIT w.most) AS found
    ORDER BY w.n"""
# In the order of names, as `LEVELS` locks them: transactions that meet here wait in turn and do not deadlock.
LEVELS_THERE = (
    "INSERT INTO {s}.level SELECT name, 0, 0 FROM unnest($1) AS n (name) ORDER BY name ON CONFLICT DO NOTHING"
)
LEVELS = "SELECT name, running, next, turn FROM {s}.level WHERE name = ANY ($1) ORDER BY name FOR UPDATE"
RAISE_LEVELS = """INSERT INTO {s}.level AS l (name, running, next) SELECT * FROM unnest($1, $2, $3)
    ON CONFLICT (name) DO UPDATE SET running = l.running + excluded.running, next = excluded.next"""
SAVE_TURNS = "UPDATE {s}.level l SET turn = t.turn FROM unnest($1, $2) AS t (name, turn) WHERE l.name = t.name"
TAKE = """UPDATE {s}.job j SET state = 2, owner = $2, epoch = least(j.epoch, 2147483646) + 1, state_since = $3,
    key_held_until = CASE WHEN j.key_ttl < 0 THEN 0 ELSE j.key_held_until END
    WHERE j.id = ANY (ARRAY(SELECT r.id FROM {s}.job r WHERE r.id = ANY ($1) AND r.state = 1 FOR UPDATE SKIP LOCKED))
    RETURNING """ + of_row("j.", CLAIMED, as_jobs=True)
LOCK_LEVELS = "SELECT FROM {s}.level WHERE name = ANY ($1) ORDER BY starts_with(name, 'each:'), name FOR UPDATE"
LIMITS_OF = "SELECT name, value FROM {s}.limits WHERE name = ANY ($1)"
# Each claim, change and insert reads the limits. So with this lock none runs and none begins, and the running jobs can
# be counted. While this waits for those that run, no other begins: so the time limit is short.
NOBODY_ELSE = """SET LOCAL lock_timeout = '50ms'; LOCK TABLE {s}.limits IN ACCESS EXCLUSIVE MODE;
    SET LOCAL lock_timeout TO DEFAULT"""
# Those who change limits take turns: what one sets follows from what others have set. Who reads limits does not wait.
TURN_TO_LIMIT = "LOCK TABLE {s}.limits IN SHARE ROW EXCLUSIVE MODE"
LOCK_RUNNING = """SELECT uuid_send(id), epoch, owner, queue, task, lane, o.until FROM {s}.job j
    LEFT JOIN {s}.owner o ON o.name = j.owner
    WHERE id = ANY ($1) AND state + 0 = 2 ORDER BY id FOR UPDATE OF j"""
KEEP = "INSERT INTO {s}.cell SELECT * FROM unnest($1, $2) ON CONFLICT DO NOTHING"
# In the order in which ends lock levels.
ADD_RUNNING = """INSERT INTO {s}.level AS l (name, running, next)
    SELECT name, n, 0 FROM unnest($1, $2) AS a (name, n) ORDER BY starts_with(name, 'each:'), name
    ON CONFLICT (name) DO UPDATE SET running = l.running + excluded.running"""
# A row may be gone: that of a key of which nothing runs any more.
SET_NEXT = """INSERT INTO {s}.level AS l (name, running, next)
    SELECT name, 0, next FROM unnest($1, $2) AS n (name, next) ORDER BY starts_with(name, 'each:'), name
    ON CONFLICT (name) DO UPDATE SET next = excluded.next"""
FREE = "DELETE FROM {s}.cell WHERE name = ANY ($1) RETURNING name, value"
ENDED = "SELECT {s}.ended_v1($1, $2, $3, $4, $1, $5)"
RUNNING_NOW = """INSERT INTO {s}.level AS l (name, running, next)
    SELECT name, running, 0 FROM unnest($1, $2) AS n (name, running)
    ON CONFLICT (name) DO UPDATE SET running = excluded.running"""


@lru_cache(maxsize=256)
def for_schema(statement: str, schema: str) -> str:
    """The statement for the tables of that schema. ?1, as the statements of both SQL stores have it, becomes $1."""
    return in_schema(statement, schema).replace("?", "$")


# `out_of_order` comes early in the indexes: jobs that are out of order are read apart.
_ORDERS = ("NOT out_of_order", "out_of_order")
_SCHEDULED_JOBS = tuple(f"{{s}}.job WHERE state = 0 AND {order}" for order in _ORDERS)
WAITING = WaitingDialect(
    ready=tuple(
        f"{{{{s}}}}.job WHERE state = 1 AND lane IS NULL AND queue = $1 AND {order} AND {LINE} = {{line}}"
        for order in _ORDERS
    ),
    laned="""{{s}}.job WHERE state = 1 AND lane IS NOT NULL AND queue = $1
        AND (claim_order > 0)::int - (claim_order < 0)::int = {sign}""",
    scheduled=_SCHEDULED_JOBS,
    scheduled_with_queue=_SCHEDULED_JOBS,
    id="encode(?4, 'hex')::uuid",
)
COUNT_KEY = count_of_lane(WAITING, "$")
STORED_IDS = "SELECT uuid_send(id) FROM {s}.job WHERE id = ANY ($1::uuid[])"
