"""The embedded store's statements. A priority is kept as its negative, `rank`, so that indexes run upwards."""

from tarry.store.base import HIGH, LOW, NORMAL

COLUMNS = """id, task, body, queue, -rank, due, state, epoch, failures, losses, ifnull(owner, ''),
    since, until, expires, key, note"""
INSERT = """INSERT INTO job
    (id, task, body, queue, rank, due, state, epoch, failures, losses, since, until, expires, key, note)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING"""
_READY = """SELECT n, id, task, body, queue, -rank, due, epoch + 1, failures, losses, expires, key, note
    FROM job INDEXED BY ready WHERE state = 1 AND queue = ? AND rank {} 0 ORDER BY rank, due, id LIMIT ? OFFSET ?"""
READY = {HIGH: _READY.format("<"), NORMAL: _READY.format("="), LOW: _READY.format(">")}
_ANY_READY = "SELECT 1 FROM job INDEXED BY ready WHERE state = 1 AND queue = ? AND rank {} 0 LIMIT 1"
ANY_READY = {HIGH: _ANY_READY.format("<"), NORMAL: _ANY_READY.format("="), LOW: _ANY_READY.format(">")}
PROMOTE = """UPDATE job SET state = 1, since = ?1 WHERE n IN
    (SELECT n FROM job INDEXED BY scheduled WHERE state = 0 AND due <= ?1 ORDER BY due, id LIMIT ?2)"""
READY_QUEUES = """WITH RECURSIVE found (queue) AS (
    SELECT min(queue) FROM job INDEXED BY ready WHERE state = 1
    UNION ALL
    SELECT (SELECT min(queue) FROM job INDEXED BY ready WHERE state = 1 AND queue > found.queue)
    FROM found WHERE queue IS NOT NULL)
    SELECT queue FROM found WHERE queue IS NOT NULL"""
NEXT_DUE = "SELECT min(due) FROM job INDEXED BY scheduled WHERE state = 0"
CLAIM = """UPDATE job SET state = 2, owner = ?, epoch = epoch + 1, since = ?
    WHERE n IN (SELECT value FROM carray(?))"""
LEASE = """INSERT INTO owner (name, until) VALUES (?1, ?2)
    ON CONFLICT (name) DO UPDATE SET until = ?2 WHERE until < ?3"""
SET = """SET state = ?, owner = NULL, since = ?, due = ifnull(?, due), failures = ?, losses = ?, until = ?, note = ?,
    queue = ifnull(?, queue), rank = ifnull(?, rank), expires = ifnull(?, expires)"""
CHANGE = f"UPDATE OR IGNORE job {SET} WHERE id = ? AND state = ? AND epoch = ? RETURNING id"
CHANGE_GROUP = f"""UPDATE OR IGNORE job {SET}
    WHERE id IN (SELECT value FROM carray(?)) AND state = ? AND epoch = ? RETURNING id"""
FORGET = "DELETE FROM job WHERE id = ? AND state = ? AND epoch = ? RETURNING id"
HOLDER = "SELECT id FROM job WHERE task = ? AND key = ? AND state < 3"
OVERDUE = f"""SELECT {COLUMNS} FROM job INDEXED BY running WHERE state = 2
    AND owner NOT IN (SELECT name FROM owner WHERE until > ?) ORDER BY id LIMIT ?"""
HELD_BY = f"SELECT {COLUMNS} FROM job INDEXED BY running WHERE state = 2 AND owner = ? ORDER BY id LIMIT ?"
HOLD = """INSERT INTO hold (name, owner, until) VALUES (?1, ?2, ?3)
    ON CONFLICT (name) DO UPDATE SET owner = ?2, until = ?3 WHERE owner = ?2 OR until <= ?4 RETURNING name"""
TALLY = """SELECT queue, task, state, count(*), min(due), sum(length(body) + length(note))
    FROM job GROUP BY queue, task, state"""
PRUNE = """DELETE FROM job WHERE n IN
    (SELECT n FROM job INDEXED BY finished WHERE state >= 3 AND until <= ? ORDER BY until, id LIMIT ?)"""
WEIGHTS = """SELECT queue, sum(length(body) + length(note)) FROM job INDEXED BY finished
    WHERE state >= 3 GROUP BY queue"""
FIRST_FINISHED = """SELECT n, length(body) + length(note) FROM job INDEXED BY finished
    WHERE state >= 3 AND queue = ? ORDER BY until, id LIMIT ?"""
