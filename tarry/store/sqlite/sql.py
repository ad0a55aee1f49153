"""The embedded store's statements."""
# INDEXED BY makes a statement fail if its index cannot serve it; otherwise SQLite would silently read the whole table.

import re

from tarry.model import job as model
from tarry.model.job import MOST_EPOCH
from tarry.store.rules.base import HIGH, LOW, NORMAL
from tarry.store.rules.name_pattern import translate
from tarry.store.shared.columns import BLOBS, CLAIMED, STORED
from tarry.store.sql.columns import COLUMN_OF, column_list
from tarry.store.sql.sql_store import SqlStatements, distinct_scan
from tarry.store.sql.waiting import WaitingDialect, count_of_lane

_COLUMNS = column_list(expressions={"priority": "-claim_order", "owner": "ifnull(owner, '')"})
_PLACES = ", ".join("?" * len(STORED))
INSERT = f"INSERT INTO tarry_job ({column_list(STORED)}) VALUES ({_PLACES}) ON CONFLICT (id) DO NOTHING"
LABEL = "INSERT OR IGNORE INTO tarry_label VALUES (?, ?, ?)"
TO_JOURNAL = "INSERT INTO tarry_journal (record) VALUES (?)"
# One statement is a transaction by itself, which takes less time than a transaction of several. As it writes two tables
# it is an insert into a view of the connection's own. It also looks for limits: so no other process can set one in
# between.
INSERT_UNLIMITED = f"INSERT INTO temp.tarry_put ({column_list(STORED)}, record) VALUES ({_PLACES}, ?)"
"""Stores a job and counts it, unless there are limits or it is there. For a connection that has run PUT_VIEW."""
_NEW = ", ".join(f"new.{COLUMN_OF[field]}" for field in STORED)
PUT_VIEW = (
    f"CREATE TEMP VIEW tarry_put AS SELECT {column_list(STORED)}, x'' AS record FROM tarry_job",
    f"""CREATE TEMP TRIGGER tarry_put_one INSTEAD OF INSERT ON tarry_put BEGIN
    INSERT INTO tarry_job ({column_list(STORED)})
        SELECT {_NEW} WHERE NOT EXISTS (SELECT 1 FROM tarry_limit) ON CONFLICT (id) DO NOTHING;
    INSERT INTO tarry_journal (record) SELECT new.record WHERE changes() = 1; END""",
)
_NEXT_EPOCH = f"min(epoch, {MOST_EPOCH - 1}) + 1"
_RUNNING = {"priority": "-claim_order", "epoch": _NEXT_EPOCH, "key_held_until": "iif(key_ttl < 0, 0, key_held_until)"}
CLAIM_COLUMNS = f"n, {column_list(CLAIMED, _RUNNING)}"
"""The columns of a job as it is after its claim: its number, then CLAIMED."""
PLACE = {field: place for place, field in enumerate(CLAIMED, 1)}
"""The place of each field in such a row."""
_LINE = """FROM tarry_job INDEXED BY tarry_ready
    WHERE state = 1 AND lane IS NULL AND queue = ? AND (state_since > due) = ? AND claim_order {} 0"""
# One statement for each band: with a bound for the priority SQLite reads one range of the index, in its order.
_BANDS = {HIGH: _LINE.format("<"), NORMAL: _LINE.format("="), LOW: _LINE.format(">")}
READY = {
    band: f"SELECT {CLAIM_COLUMNS} {line} ORDER BY claim_order, due, id LIMIT ? OFFSET ?"
    for band, line in _BANDS.items()
}
ANY_READY = {band: f"SELECT 1 {line} LIMIT 1" for band, line in _BANDS.items()}
_LANED = "FROM tarry_job INDEXED BY tarry_laned WHERE state = 1 AND lane IS NOT NULL"
_IN_BAND = f"{_LANED} AND queue = ?1 AND (claim_order > 0) - (claim_order < 0) = ?2"
ANY_LANED = f"SELECT 1 {_LANED} LIMIT 1"
ANY_LANED_IN = f"SELECT 1 {_IN_BAND} LIMIT 1"
_IN_OPEN_LINE = "SELECT 1 FROM tarry_job INDEXED BY tarry_ready WHERE state = 1 AND lane IS NULL AND queue = ?1"
_LOOKS = {
    band: (
        " OR ".join(
            f"EXISTS ({_IN_OPEN_LINE} AND (state_since > due) = {late} AND claim_order {sign} 0)" for late in (1, 0)
        ),
        f"EXISTS (SELECT 1 {_LANED} AND queue = ?1 AND (claim_order > 0) - (claim_order < 0) = {-band})",
    )
    for band, sign in ((HIGH, "<"), (NORMAL, "="), (LOW, ">"))
}
LOOKED_AT = tuple(_LOOKS)
"""The bands of LOOK, in its order."""
LOOK = f"SELECT {', '.join(look for looks in _LOOKS.values() for look in looks)}"
"""For each band of a queue: whether jobs without a lane wait there, and whether jobs in lanes do."""
_FOUND = "SELECT value FROM found WHERE value IS NOT NULL"
TASKS = f"{distinct_scan('task', _IN_BAND)} {_FOUND}"
# `x''`: a blob sorts after every text, so a missing last lane is no bound.
_LANES = f"{_IN_BAND} AND task = ?3 AND lane <= ifnull(?6, x'')"
LANES_FROM = f"{distinct_scan('lane', _LANES, 'AND lane >= ?4', '?5')} {_FOUND}"
LANES_AFTER = f"{distinct_scan('lane', _LANES, 'AND lane > ?4', '?5')} {_FOUND}"
# A subquery, since json_each has columns named as those of a job.
LANE_FRONTS = f"""SELECT {CLAIM_COLUMNS}, state_since > due FROM (SELECT value AS name FROM json_each(?4)) AS l
    CROSS JOIN tarry_job WHERE n IN (SELECT n {_IN_BAND} AND task = ?3 AND lane = l.name
        ORDER BY claim_order, due, id LIMIT ?5)"""
"""The first jobs of each of these lanes, at most so many, in no order."""
LANE_FRONT = f"""SELECT {CLAIM_COLUMNS}, state_since > due {_IN_BAND} AND task = ?3 AND lane = ?4
    ORDER BY claim_order, due, id LIMIT ?5"""
"""The first jobs of one lane, in its order."""
INTO_LANES = """UPDATE tarry_job SET lane = '' WHERE id IN (SELECT value FROM carray(?)) AND lane IS NULL AND state < 2
    AND EXISTS (SELECT 1 FROM tarry_limit WHERE name IN ('task:' || task, 'each:' || task))"""
# One for each state, by its index: whoever sets a limit reads no finished jobs, of which there may be a million.
TASK_INTO_LANES = [
    f"UPDATE tarry_job INDEXED BY {index} SET lane = '' WHERE state = {state} AND lane IS NULL AND task = ?"
    for state, index in enumerate(("tarry_scheduled", "tarry_ready", "tarry_running"))
]
_ENDING = "FROM tarry_job WHERE id IN (SELECT value FROM carray(?)) AND state = 2"
COUNTED = f"SELECT id, queue, task, lane {_ENDING}"
COUNTED_ALIKE = f"SELECT queue, task, lane, count(*) {_ENDING} GROUP BY queue, task, lane"
COUNTED_EACH = f"SELECT queue, task, lane {_ENDING}"
RUNNING_NOW = """INSERT INTO tarry_level (name, running, next) VALUES (?1, ?2, 0)
    ON CONFLICT (name) DO UPDATE SET running = ?2"""
PROMOTE = """UPDATE tarry_job SET state = 1, state_since = ?1 WHERE n IN
    (SELECT n FROM tarry_job INDEXED BY tarry_scheduled WHERE state = 0 AND due <= ?1 ORDER BY due, id LIMIT ?2)"""
PROMOTED = f"{PROMOTE} RETURNING queue, claim_order, task, lane"
_UNLANED = "FROM tarry_job INDEXED BY tarry_ready WHERE state = 1 AND lane IS NULL"
READY_QUEUES = f"{distinct_scan('queue', _UNLANED)} {_FOUND}"
LANED_QUEUES = f"{distinct_scan('queue', _LANED)} {_FOUND}"
_FIRST_READY = """SELECT due FROM tarry_job INDEXED BY tarry_ready
    WHERE state = 1 AND lane IS NULL AND queue = ? AND (state_since > due) = {} ORDER BY claim_order, due, id LIMIT ?"""
_FIRST_LANED = """SELECT due FROM tarry_job INDEXED BY tarry_laned
    WHERE state = 1 AND lane IS NOT NULL AND queue = ? LIMIT ?"""
FIRST_READY = (_FIRST_READY.format(1), _FIRST_READY.format(0), _FIRST_LANED)
"""When the first ready jobs of a queue were due: late ones, those on time, those in lanes."""
_WAITING = """SELECT {0} FROM tarry_job INDEXED BY tarry_ready WHERE state = 1 AND lane IS NULL AND queue = ?1
    UNION ALL SELECT {0} FROM tarry_job INDEXED BY tarry_laned WHERE state = 1 AND lane IS NOT NULL AND queue = ?1
    UNION ALL SELECT {0} FROM tarry_job INDEXED BY tarry_scheduled WHERE state = 0 AND queue = ?1"""
COUNT_WAITING = f"SELECT count(*) FROM ({_WAITING.format('1')} LIMIT ?2)"
_BY_BAND = "iif(state = 0, 2, (claim_order < 0) - (claim_order > 0)), due, id"
OLDEST_WAITING = f"""SELECT {_COLUMNS} FROM tarry_job WHERE n IN (SELECT n FROM (
    {_WAITING.format("n, state, claim_order, due, id")}) ORDER BY {_BY_BAND} LIMIT ?2) ORDER BY {_BY_BAND}"""
SET_CELL = "INSERT INTO tarry_cell VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
REMOVE_CELLS = "DELETE FROM tarry_cell WHERE name IN (SELECT value FROM json_each(?)) RETURNING name, value"
LEASED_UNTIL = "SELECT until FROM tarry_owner WHERE name = ?"
NEXT_DUE = "SELECT min(due) FROM tarry_job INDEXED BY tarry_scheduled WHERE state = 0"
CLAIM = f"""UPDATE tarry_job SET state = 2, owner = ?, epoch = {_NEXT_EPOCH}, state_since = ?
    WHERE n IN (SELECT value FROM carray(?))"""
LET_GO = "UPDATE tarry_job SET key_held_until = 0 WHERE n IN (SELECT value FROM carray(?)) AND key_ttl < 0"
# The last condition saves the write where the lease still runs for long enough.
LEASE = """INSERT INTO tarry_owner (name, until) VALUES (?1, ?2)
    ON CONFLICT (name) DO UPDATE SET until = ?2 WHERE until < ?3"""
SET = """SET state = ?, owner = NULL, state_since = ?, due = ifnull(?, due), failures = ?, crashes = ?, keep_until = ?,
    note = ?, queue = ifnull(?, queue), claim_order = ifnull(?, claim_order), expires = ifnull(?, expires),
    key_held_until = ifnull(?, key_held_until), body = ifnull(?, body), attempts = ifnull(?, attempts)"""
# OR IGNORE: where another job holds the key, the unique index makes the change invalid, and the others still happen.
CHANGE = f"UPDATE OR IGNORE tarry_job {SET} WHERE id = ? AND state = ? AND epoch = ? AND owner IS ? RETURNING id"
CHANGE_GROUP = f"""UPDATE OR IGNORE tarry_job {SET}
    WHERE id IN (SELECT value FROM carray(?)) AND state = ? AND epoch = ? AND owner IS ?"""
CHANGE_GROUP_AND_TELL = f"{CHANGE_GROUP} RETURNING id"
FORGET = "DELETE FROM tarry_job WHERE id = ? AND state = ? AND epoch = ? AND owner IS ? RETURNING id"
IF_TIMES = "AND due = ? AND expires = ? RETURNING id"
CHANGE_IF_TIMES = CHANGE.replace("RETURNING id", IF_TIMES)
FORGET_IF_TIMES = FORGET.replace("RETURNING id", IF_TIMES)
LIMIT = "SELECT value FROM tarry_limit WHERE name = ?"
FEW_LIMITS = "SELECT name, value, running, next, turn FROM tarry_limit LEFT JOIN tarry_level USING (name) LIMIT ?"
# Changes nothing, but takes the write lock, so that the following statements read the latest state.
TAKE_LOCK = "DELETE FROM tarry_cell WHERE 0"
HOLDER = "SELECT id FROM tarry_job INDEXED BY tarry_key WHERE task = ? AND key = ? AND key_held_until > 0"
# SQLite uses the partial index only if the statement repeats its condition word by word: "key_held_until > 0".
OUTLIVED = """UPDATE tarry_job INDEXED BY tarry_key SET key_held_until = 0
    WHERE task = ?2 AND key = ?3 AND key_held_until > 0 AND key_held_until <= ?1"""
OUTLIVED_BY = """UPDATE tarry_job INDEXED BY tarry_key SET key_held_until = 0
    WHERE (task, key) = (SELECT task, key FROM tarry_job WHERE id = ?2 AND state = ?3 AND epoch = ?4)
    AND key IS NOT NULL AND key_held_until > 0 AND key_held_until <= ?1"""
MARK = "UPDATE tarry_job SET progress = ? WHERE id = ? AND state = 2 AND epoch = ? AND owner = ? RETURNING 1"
_OWNERS = distinct_scan("owner", "FROM tarry_job INDEXED BY tarry_running WHERE state = 2")
_SIZE = " + ".join(f"length({column})" for column in BLOBS)
# The nodes of a flow, kept until HELD, go with it.
_FINISHED = f"""FROM tarry_job INDEXED BY tarry_finished
    WHERE state >= 3 AND (keep_until, id) > (?1, ?2) AND keep_until < {model.HELD}"""
ANY_FINISHED = "SELECT 1 FROM tarry_job INDEXED BY tarry_finished WHERE state >= 3 LIMIT 1"
FORGET_FINISHED = "DELETE FROM tarry_job WHERE id = ?1 AND keep_until = ?2 AND state >= 3"
HELD = "SELECT id, epoch FROM tarry_job INDEXED BY tarry_running WHERE state = 2 AND owner = ?"


def _glob_pattern(pattern: str) -> str:
    return translate(pattern, "*", lambda part: re.sub(r"([*?[])", r"[\1]", part))


# The same expression as in the index `tarry_laned`, or SQLite would not use it.
_LANE_HAS_JOBS = """EXISTS (SELECT 1 FROM tarry_job j INDEXED BY tarry_laned WHERE j.state = 1 AND j.lane IS NOT NULL
    AND j.queue = o.queue AND (j.claim_order > 0) - (j.claim_order < 0) = -o.band AND j.task = o.task
    AND j.lane = o.lane)"""
STATEMENTS = SqlStatements(
    tables="tarry_",
    # Its LIKE takes capitals for small letters.
    fits="{} GLOB {}",
    pattern=_glob_pattern,
    jobs=f"SELECT {_COLUMNS} FROM tarry_job",
    tally=f"SELECT queue, task, state, count(*), min(due), sum({_SIZE}) FROM tarry_job GROUP BY queue, task, state",
    expiring=f"""SELECT {_COLUMNS} FROM tarry_job INDEXED BY tarry_finished
        WHERE state >= 3 AND keep_until >= ?1 AND keep_until < ?2 ORDER BY keep_until, id LIMIT ?3""",
    held_by=f"""SELECT {_COLUMNS} FROM tarry_job INDEXED BY tarry_running
        WHERE state = 2 AND owner = ?1 ORDER BY id LIMIT ?2""",
    overdue=f"""{_OWNERS} SELECT {_COLUMNS} FROM tarry_job INDEXED BY tarry_running WHERE state = 2
        AND owner IN (SELECT value FROM found WHERE value NOT IN (SELECT name FROM tarry_owner WHERE until > ?1))
        ORDER BY id LIMIT ?2""",
    owners=f"{_OWNERS} {_FOUND}",
    hold="""INSERT INTO tarry_hold (name, owner, until) VALUES (?1, ?2, ?3)
        ON CONFLICT (name) DO UPDATE SET owner = ?2, until = ?3
        WHERE owner = ?2 OR until <= ?4 OR until > ?4 + 86400000000""",
    next_due=NEXT_DUE,
    due="""SELECT queue, due FROM tarry_job INDEXED BY tarry_scheduled
        WHERE state = 0 AND due <= ?1 ORDER BY due, id LIMIT ?2""",
    finished=f"""SELECT keep_until, id, queue, {_SIZE}, key_held_until <= ?3 {_FINISHED}
        ORDER BY keep_until, id LIMIT ?4""",
    weights=f"""SELECT queue, sum(size) FROM (
        SELECT queue, {_SIZE} AS size {_FINISHED} ORDER BY keep_until, id LIMIT ?3) GROUP BY queue""",
    last_weighed=f"SELECT keep_until, id {_FINISHED} ORDER BY keep_until, id LIMIT 1 OFFSET ?3",
    levels="""SELECT name, running = 0 AND next <= ?2 FROM tarry_level
        WHERE name > ?1 AND name < 'each;' ORDER BY name LIMIT ?3""",  # names of keys' levels begin with "each:"
    drop_level="DELETE FROM tarry_level WHERE name = ?1 AND running = 0 AND next <= ?2",
    lanes=f"""SELECT queue, band, task, lane, NOT {_LANE_HAS_JOBS} FROM tarry_lane o INDEXED BY tarry_open
        WHERE again IS NULL AND (queue, band, task, lane) > (?1, ?2, ?3, ?4)
        ORDER BY queue, band, task, lane LIMIT ?5""",
    drop_lane=f"""DELETE FROM tarry_lane AS o WHERE queue = ?1 AND band = ?2 AND task = ?3 AND lane = ?4
        AND again IS NULL AND NOT {_LANE_HAS_JOBS}""",
)


_SCHEDULED_JOBS = "tarry_job INDEXED BY tarry_scheduled WHERE state = 0"
WAITING = WaitingDialect(
    ready=(
        """tarry_job INDEXED BY tarry_ready
            WHERE state = 1 AND lane IS NULL AND queue = ?1 AND (state_since > due) = {late} AND claim_order {range}""",
    ),
    laned="""tarry_job INDEXED BY tarry_laned
        WHERE state = 1 AND lane IS NOT NULL AND queue = ?1 AND (claim_order > 0) - (claim_order < 0) = {sign}""",
    scheduled=(_SCHEDULED_JOBS,),
    scheduled_with_queue=(_SCHEDULED_JOBS,),
)
COUNT_KEY = count_of_lane(WAITING, "?")
IS_STORED = "SELECT 1 FROM tarry_job WHERE id = ?"
