"""The embedded store's statements. A priority is kept as its negative, `rank`, so that indexes run upwards."""

from tarry.store.base import HIGH, LOW, NORMAL

COLUMNS = """id, task, body, queue, -rank, due, state, epoch, failures, losses, ifnull(owner, ''),
    since, until, expires, key, note, unique_for, holds, lane, headers, progress"""
INSERT = """INSERT INTO tarry_job
    (id, task, body, queue, rank, due, state, epoch, failures, losses, since, until, expires, key, note,
    unique_for, holds, lane, headers, progress)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING"""
CLAIMED = """n, id, task, body, queue, -rank, due, epoch + 1, failures, losses, expires, key, note,
    unique_for, holds, lane, headers, progress"""
_LINE = """FROM tarry_job INDEXED BY tarry_ready
    WHERE state = 1 AND lane IS NULL AND queue = ? AND (since > due) = ? AND rank {} 0"""
_BANDS = {HIGH: _LINE.format("<"), NORMAL: _LINE.format("="), LOW: _LINE.format(">")}
READY = {band: f"SELECT {CLAIMED} {line} ORDER BY rank, due, id LIMIT ? OFFSET ?" for band, line in _BANDS.items()}
ANY_READY = {band: f"SELECT 1 {line} LIMIT 1" for band, line in _BANDS.items()}
_LANED = "FROM tarry_job INDEXED BY tarry_laned WHERE state = 1 AND lane IS NOT NULL"
_IN_BAND = f"{_LANED} AND queue = ? AND (rank > 0) - (rank < 0) = ?"
ANY_LANED = f"SELECT 1 {_LANED} LIMIT 1"
NEXT_TASK = f"SELECT task {_IN_BAND} AND task > ? ORDER BY task LIMIT 1"
FIRST_LANE = f"SELECT lane {_IN_BAND} AND task = ? ORDER BY lane LIMIT 1"
NEXT_LANE = f"SELECT lane {_IN_BAND} AND task = ? AND lane > ? ORDER BY lane LIMIT 1"
LANE = f"SELECT {CLAIMED}, since > due {_IN_BAND} AND task = ? AND lane = ? ORDER BY rank, due, id LIMIT ?"
ANY_IN_LANE = f"SELECT 1 {_IN_BAND} AND task = ? AND lane = ? LIMIT 1"
INTO_LANES = """UPDATE tarry_job SET lane = '' WHERE id IN (SELECT value FROM carray(?)) AND lane IS NULL AND state < 2
    AND EXISTS (SELECT 1 FROM tarry_limit WHERE name IN ('task:' || task, 'each:' || task))"""
COUNTED = "SELECT id, queue, task, lane FROM tarry_job WHERE id IN (SELECT value FROM carray(?)) AND state = 2"
LEVEL = """INSERT INTO tarry_level (name, running, next) VALUES (?1, ?2, ?3)
    ON CONFLICT (name) DO UPDATE SET running = ?2, next = ?3"""
TURN = """INSERT INTO tarry_level (name, running, next, turn) VALUES (?1, 0, 0, ?2)
    ON CONFLICT (name) DO UPDATE SET turn = ?2"""
SET_LIMIT = "INSERT INTO tarry_limit VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
UNUSED = """UPDATE tarry_level SET running = 0, next = iif(?2, 0, next)
    WHERE name = ?1 OR (name > ?1 || char(31) AND name < ?1 || char(32))"""
_RUNNING_BY = "SELECT queue, task, lane FROM tarry_job WHERE state = 2 AND {} = ?"
RUNNING_BY = {True: _RUNNING_BY.format("queue"), False: _RUNNING_BY.format("task")}
ALL_RUNNING = "SELECT queue, task, lane FROM tarry_job INDEXED BY tarry_running WHERE state = 2"
RUNNING_NOW = """INSERT INTO tarry_level (name, running, next) VALUES (?1, ?2, 0)
    ON CONFLICT (name) DO UPDATE SET running = ?2"""
SOME_LEVELS = """SELECT name, running = 0 AND next <= ?2 FROM tarry_level
    WHERE name > ?1 AND name < 'each;' ORDER BY name LIMIT ?3"""
"""Of keys of tasks: their names begin with each:, and ; is the next character."""
DROP_LEVEL = "DELETE FROM tarry_level WHERE name = ? AND running = 0 AND next <= ?"
PROMOTE = """UPDATE tarry_job SET state = 1, since = ?1 WHERE n IN
    (SELECT n FROM tarry_job INDEXED BY tarry_scheduled WHERE state = 0 AND due <= ?1 ORDER BY due, id LIMIT ?2)"""
PROMOTED = f"{PROMOTE} RETURNING queue, rank, task, lane"
_READY_QUEUES = """WITH RECURSIVE found (queue) AS (
    SELECT min(queue) FROM tarry_job INDEXED BY {0} WHERE state = 1 AND lane IS {1}
    UNION ALL
    SELECT (SELECT min(queue) FROM tarry_job INDEXED BY {0} WHERE state = 1 AND lane IS {1} AND queue > found.queue)
    FROM found WHERE queue IS NOT NULL)
    SELECT queue FROM found WHERE queue IS NOT NULL"""
READY_QUEUES = _READY_QUEUES.format("tarry_ready", "NULL")
LANED_QUEUES = _READY_QUEUES.format("tarry_laned", "NOT NULL")
_FIRST_READY = """SELECT due FROM tarry_job INDEXED BY tarry_ready
    WHERE state = 1 AND lane IS NULL AND queue = ? AND (since > due) = {} ORDER BY rank, due, id LIMIT ?"""
FIRST_LATE, FIRST_ON_TIME = _FIRST_READY.format(1), _FIRST_READY.format(0)
FIRST_LANED = """SELECT due FROM tarry_job INDEXED BY tarry_laned
    WHERE state = 1 AND lane IS NOT NULL AND queue = ? LIMIT ?"""
DUE = """SELECT queue, due FROM tarry_job INDEXED BY tarry_scheduled
    WHERE state = 0 AND due <= ? ORDER BY due, id LIMIT ?"""
NEXT_DUE = "SELECT min(due) FROM tarry_job INDEXED BY tarry_scheduled WHERE state = 0"
CLAIM = """UPDATE tarry_job SET state = 2, owner = ?, epoch = epoch + 1, since = ?
    WHERE n IN (SELECT value FROM carray(?))"""
LET_GO = "UPDATE tarry_job SET holds = 0 WHERE n IN (SELECT value FROM carray(?)) AND unique_for < 0"
LEASE = """INSERT INTO tarry_owner (name, until) VALUES (?1, ?2)
    ON CONFLICT (name) DO UPDATE SET until = ?2 WHERE until < ?3"""
SET = """SET state = ?, owner = NULL, since = ?, due = ifnull(?, due), failures = ?, losses = ?, until = ?, note = ?,
    queue = ifnull(?, queue), rank = ifnull(?, rank), expires = ifnull(?, expires), holds = ifnull(?, holds),
    body = ifnull(?, body)"""
CHANGE = f"UPDATE OR IGNORE tarry_job {SET} WHERE id = ? AND state = ? AND epoch = ? AND owner IS ? RETURNING id"
CHANGE_GROUP = f"""UPDATE OR IGNORE tarry_job {SET}
    WHERE id IN (SELECT value FROM carray(?)) AND state = ? AND epoch = ? AND owner IS ? RETURNING id"""
FORGET = "DELETE FROM tarry_job WHERE id = ? AND state = ? AND epoch = ? AND owner IS ? RETURNING id"
LIMITS = "SELECT name, value FROM tarry_limit"
LIMIT = "SELECT value FROM tarry_limit WHERE name = ?"
ANY_LIMIT = "SELECT 1 FROM tarry_limit LIMIT 1"
LIMITS_AND_LEVELS = """SELECT name, value, ifnull(running, 0), ifnull(next, 0)
    FROM tarry_limit LEFT JOIN tarry_level USING (name) ORDER BY name"""
TAKE_LOCK = "DELETE FROM tarry_cell WHERE 0"
"""Changes nothing, but has the write lock from then on, so that what is read next is the latest there is."""
HOLDER = "SELECT id FROM tarry_job INDEXED BY tarry_key WHERE task = ? AND key = ? AND holds > 0"
# "holds > 0", in these very words, is what lets SQLite use an index that has only those.
OUTLIVED = """UPDATE tarry_job INDEXED BY tarry_key SET holds = 0
    WHERE task = ?2 AND key = ?3 AND holds > 0 AND holds <= ?1"""
OUTLIVED_BY = """UPDATE tarry_job INDEXED BY tarry_key SET holds = 0
    WHERE (task, key) = (SELECT task, key FROM tarry_job WHERE id = ?2 AND state = ?3 AND epoch = ?4)
    AND key IS NOT NULL AND holds > 0 AND holds <= ?1"""
MARK = "UPDATE tarry_job SET progress = ? WHERE id = ? AND state = 2 AND epoch = ? AND owner = ?"
CELLS = "SELECT name, value FROM tarry_cell WHERE name >= ? AND name < ? ORDER BY name"
WRITE = "INSERT INTO tarry_cell VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
_OWNERS = """WITH RECURSIVE found (owner) AS (
    SELECT min(owner) FROM tarry_job INDEXED BY tarry_running WHERE state = 2
    UNION ALL
    SELECT (SELECT min(owner) FROM tarry_job INDEXED BY tarry_running WHERE state = 2 AND owner > found.owner)
    FROM found WHERE owner IS NOT NULL)"""
OWNERS = f"{_OWNERS} SELECT owner FROM found WHERE owner IS NOT NULL"
OVERDUE = f"""{_OWNERS} SELECT {COLUMNS} FROM tarry_job INDEXED BY tarry_running WHERE state = 2
    AND owner IN (SELECT owner FROM found WHERE owner NOT IN (SELECT name FROM tarry_owner WHERE until > ?))
    ORDER BY id LIMIT ?"""
HELD_BY = f"""SELECT {COLUMNS} FROM tarry_job INDEXED BY tarry_running
    WHERE state = 2 AND owner = ? ORDER BY id LIMIT ?"""
HOLD = """INSERT INTO tarry_hold (name, owner, until) VALUES (?1, ?2, ?3)
    ON CONFLICT (name) DO UPDATE SET owner = ?2, until = ?3 WHERE owner = ?2 OR until <= ?4 RETURNING name"""
SIZE = "length(body) + length(note) + length(headers) + length(progress)"
TALLY = f"""SELECT queue, task, state, count(*), min(due), sum({SIZE})
    FROM tarry_job GROUP BY queue, task, state"""
LEAVING = f"""SELECT {COLUMNS} FROM tarry_job INDEXED BY tarry_finished
    WHERE state >= 3 AND until >= ? AND until < ? ORDER BY until, id LIMIT ?"""
_FINISHED = "FROM tarry_job INDEXED BY tarry_finished WHERE state >= 3 AND (until, id) > (?1, ?2)"
FINISHED = f"SELECT until, id, queue, {SIZE}, holds <= ?3 {_FINISHED} ORDER BY until, id LIMIT ?4"
WEIGHTS = f"""SELECT queue, sum(size) FROM (SELECT queue, {SIZE} AS size {_FINISHED} ORDER BY until, id LIMIT ?3)
    GROUP BY queue"""
LAST_WEIGHED = f"SELECT until, id {_FINISHED} ORDER BY until, id LIMIT 1 OFFSET ?3 - 1"
FORGET_FINISHED = "DELETE FROM tarry_job WHERE id = ? AND until = ? AND state >= 3 RETURNING 1"
ANY_FINISHED = "SELECT 1 FROM tarry_job INDEXED BY tarry_finished WHERE state >= 3 LIMIT 1"
