"""Statements, with their values as `link.literals` writes them. `claim_order`: see `columns`."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from tarry.model.job import HELD, LABEL_MARK, MOST_EPOCH, Job, State
from tarry.model.lifecycle import held_when_claimed
from tarry.store.mysql.link.literals import blob_or_null, chunks, id_table, raw, text, text_or_null
from tarry.store.rules.base import HIGH, LOW, NORMAL
from tarry.store.shared import columns
from tarry.store.shared.state_codes import CODE, state_of
from tarry.store.sql import columns as sql_columns
from tarry.store.sql.columns import SET_BY_A_CLAIM, column_list, value_of
from tarry.store.sql.sql_store import SqlStatements
from tarry.store.sql.waiting import WaitingDialect, count_of_lane

_DONE = CODE[State.DONE]
COLUMN_OF = sql_columns.COLUMN_OF | {"key": "`key`"}
"""`key` is a reserved word."""

# Most tasks return nothing, and then the column is NULL: changing a row that keeps its size costs half as much.
NOTHING = b"null"
"""The result of a task that returns None."""
SIZE = " + ".join(
    f"IFNULL(LENGTH({{0}}.{blob}), IF({{0}}.state = 3, 4, 0))" if blob == "note" else f"IFNULL(LENGTH({{0}}.{blob}), 0)"
    for blob in columns.BLOBS
)
_NUMBERS = tuple(
    c
    for c in columns.COLUMNS
    if c.kind in (columns.ColumnKind.NUMBER, columns.ColumnKind.COUNT, columns.ColumnKind.STATE)
)
_TEXTS = tuple(column for column in columns.COLUMNS if column.stored and column not in _NUMBERS)
_OF_JOB = {column.field: f"j.{COLUMN_OF[column.field]}" for column in columns.COLUMNS} | {"priority": "-j.claim_order"}
# The numbers are one column, since the driver takes a microsecond for each column of each row.
_WHAT = (
    f"SELECT {column_list((column.field for column in _TEXTS), _OF_JOB)},"
    f" CONCAT_WS(' ', {column_list((column.field for column in _NUMBERS), _OF_JOB)})"
)
PAYLOAD = f"{_WHAT} FROM tarry_job j FORCE INDEX (PRIMARY) WHERE j.state = 1 AND j.id IN ({{}})"
"""The columns of the jobs that a claim gives."""
_WHOLE = f"{_WHAT}, (SELECT r.owner FROM tarry_running r WHERE r.id = j.id)"
JOBS = f"{_WHOLE} FROM tarry_job j FORCE INDEX (PRIMARY)"
JOBS_OF = f"{_WHOLE} FROM ({{}}) f STRAIGHT_JOIN tarry_job j FORCE INDEX (PRIMARY) ON j.id = f.id"
"""The jobs that a query at {} lists as f."""
INSERT = f"INSERT INTO tarry_job ({column_list(columns.STORED, COLUMN_OF)}, settings) VALUES "
READY = "INSERT INTO tarry_ready (queue, late, claim_order, due, id) VALUES "
LANED = "INSERT INTO tarry_laned (queue, band, task, lane, claim_order, due, id, late) VALUES "
SCHEDULED = "INSERT INTO tarry_scheduled (due, id) VALUES "
RUNNING = "INSERT INTO tarry_running (id, owner, epoch) VALUES "
RUNNING_ANYWAY = " ON DUPLICATE KEY UPDATE owner = VALUES(owner), epoch = VALUES(epoch)"
"""Behind RUNNING, for jobs that are locked and wait: what says that they run has been left behind."""
MARK = """UPDATE tarry_running r STRAIGHT_JOIN tarry_job j ON j.id = r.id SET j.progress = {}
    WHERE r.id = {} AND r.epoch = {} AND r.owner = {}"""
LABELS = "INSERT IGNORE INTO tarry_label (name, value, job) VALUES "
KEYS = "INSERT INTO tarry_key (digest, id, key_held_until) VALUES "

_LATE = "IF(j.state_since > j.due, 1, 0)"
"""As `lifecycle.is_late`, from a row of tarry_job."""
BANDS = {HIGH: "claim_order < 0", NORMAL: "claim_order = 0", LOW: "claim_order > 0"}

# Leaving a place and coming to another, for jobs that `id_table` lists. Jobs leave before their row changes, and come
# after it: the row says where the job is. With a list in an IN the planner may read the whole table if it is small, and
# then it waits for every row that another transaction has locked. With a list that is a table of its own it goes to
# each row by its key.
_BY_KEY = "FORCE INDEX (PRIMARY) ON"
_LEAVE = f"""DELETE p FROM {{{{}}}} STRAIGHT_JOIN tarry_job j {_BY_KEY} j.id = UNHEX(v.i)
    STRAIGHT_JOIN tarry_{{}} p {_BY_KEY} {{}}"""
LEAVE_READY = _LEAVE.format(
    "ready",
    f"p.queue = j.queue AND p.late = {_LATE} AND p.claim_order = j.claim_order AND p.due = j.due AND p.id = j.id",
)
LEAVE_LANED = _LEAVE.format(
    "laned",
    "p.queue = j.queue AND p.band = SIGN(j.claim_order) AND p.task = j.task AND p.lane = j.lane"
    " AND p.claim_order = j.claim_order AND p.due = j.due AND p.id = j.id",
)
LEAVE_SCHEDULED = _LEAVE.format("scheduled", "p.due = j.due AND p.id = j.id")
LEAVE_FINISHED = _LEAVE.format("finished", "p.keep_until = j.keep_until AND p.id = j.id")
LEAVE_RUNNING = f"DELETE p FROM {{}} STRAIGHT_JOIN tarry_running p {_BY_KEY} p.id = UNHEX(v.i)"
LEAVE_FRONT = f"""DELETE p FROM {{}} STRAIGHT_JOIN tarry_ready p {_BY_KEY} p.queue = {{}} AND p.late = {{}}
    AND p.claim_order = {{}} AND p.due = v.d AND p.id = UNHEX(v.i)"""
"""As LEAVE_READY, for a caller that knows queue, lateness, priority and due times; takes `id_and_due_table`."""
LEAVE_DUE = f"""DELETE p FROM {{}} STRAIGHT_JOIN tarry_scheduled p {_BY_KEY} p.due = v.d AND p.id = UNHEX(v.i)"""
"""As LEAVE_SCHEDULED, likewise."""
LOSE_KEYS = _LEAVE.format("key", "p.digest = UNHEX(SHA2(CONCAT(j.task, 0x00, j.key), 256)) AND p.id = j.id")
DROP_KEYS = f"DELETE p FROM {{}} STRAIGHT_JOIN tarry_key p {_BY_KEY} p.digest = UNHEX(v.i)"
FORGET = f"DELETE j FROM {{}} STRAIGHT_JOIN tarry_job j {_BY_KEY} j.id = UNHEX(v.i)"
_UNLABEL = "DELETE p FROM {} STRAIGHT_JOIN tarry_label p FORCE INDEX (job) ON p.job = UNHEX(v.i)"
HAS_LABELS = f"INSTR({{}}.headers, X'{LABEL_MARK.hex()}') > 0"
"""Of a row of tarry_job; NULL or 0: it has none."""
LOCK_JOBS = f"SELECT {{}} FROM {{}} STRAIGHT_JOIN tarry_job j {_BY_KEY} j.id = UNHEX(v.i)"
LOCK_KEYS = (
    f"SELECT p.digest, p.id, p.key_held_until FROM {{}} STRAIGHT_JOIN tarry_key p {_BY_KEY} p.digest = UNHEX(v.i)"
    " FOR UPDATE"
)
# The place may have such a row already, which was left behind: the job's own row says where the job is.
_COME = "INSERT IGNORE INTO"
COME_READY = f"""{_COME} tarry_ready (queue, late, claim_order, due, id)
    SELECT j.queue, {_LATE}, j.claim_order, j.due, j.id FROM tarry_job j FORCE INDEX (PRIMARY)
    WHERE j.id IN ({{}}) AND j.state = 1 AND j.lane IS NULL"""
COME_LANED = f"""{_COME} tarry_laned (queue, band, task, lane, claim_order, due, id, late)
    SELECT j.queue, SIGN(j.claim_order), j.task, j.lane, j.claim_order, j.due, j.id, {_LATE}
    FROM tarry_job j FORCE INDEX (PRIMARY) WHERE j.id IN ({{}}) AND j.state = 1 AND j.lane IS NOT NULL"""
COME_SCHEDULED = f"{_COME} tarry_scheduled SELECT due, id FROM tarry_job FORCE INDEX (PRIMARY) WHERE id IN ({{}})"
COME_FINISHED = f"""{_COME} tarry_finished SELECT keep_until, id, queue, {SIZE.format("j")} FROM tarry_job j
    FORCE INDEX (PRIMARY) WHERE id IN ({{}})"""
END_ONCE = COME_FINISHED.replace(_COME, "INSERT INTO", 1)
"""As COME_FINISHED, for jobs that were not looked at: a row that is there says that the job had ended before."""


DIFFERING = "INSERT INTO tarry_job (id, {0}) VALUES "
ALREADY = " ON DUPLICATE KEY UPDATE "
"""DIFFERING and ALREADY together change existing rows, each to values of its own, in one statement."""

_WAITING = """SELECT id, -SIGN(claim_order) AS band, due FROM tarry_ready FORCE INDEX (PRIMARY) WHERE queue = ?1
    UNION ALL SELECT id, -SIGN(claim_order), due FROM tarry_laned FORCE INDEX (PRIMARY) WHERE queue = ?1
    UNION ALL SELECT s.id, 2, s.due FROM tarry_scheduled s STRAIGHT_JOIN tarry_job j FORCE INDEX (PRIMARY)
        ON j.id = s.id WHERE j.queue = ?1"""
COUNT_WAITING = f"SELECT COUNT(*) FROM ({_WAITING} LIMIT ?2) w"
OLDEST_WAITING = JOBS_OF.format(f"SELECT id FROM ({_WAITING}) w ORDER BY band, due, id LIMIT ?2")
NEXT_DUE = "SELECT due FROM tarry_scheduled ORDER BY due LIMIT 1"
LEASE = "INSERT INTO tarry_owner (name, until) VALUES ({}, {}) ON DUPLICATE KEY UPDATE until = VALUES(until)"
ANY_LANED = "SELECT 1 FROM tarry_laned LIMIT 1"

# Only for the columns of the answer, never for comparing: texts that differ may compare as equal, and bytes do not.
_NAME = "CONVERT({} USING utf8mb4)"
"""A name as text."""
_LAPSED = "NOT IN (SELECT name FROM tarry_owner WHERE until > ?1)"
# HEX hides its part from the planner, which would otherwise read both parts of the OR separately.
# The nodes of a flow, kept until HELD, go with it.
_FINISHED = f"""FROM tarry_finished f FORCE INDEX (PRIMARY)
    WHERE f.keep_until >= ?1 AND (f.keep_until > ?1 OR HEX(f.id) > HEX(?2)) AND f.keep_until < {HELD}
    ORDER BY f.keep_until, f.id LIMIT"""
STATEMENTS = SqlStatements(
    tables="tarry_",
    jobs=JOBS,
    key=COLUMN_OF["key"],
    name=_NAME,
    insert_new="INSERT IGNORE INTO {}",
    tally=f"""SELECT {_NAME.format("j.queue")}, {_NAME.format("j.task")}, j.state, COUNT(*), MIN(j.due),
        CAST(SUM({SIZE.format("j")}) AS SIGNED) FROM tarry_job j GROUP BY j.queue, j.task, j.state""",
    expiring=JOBS_OF.format(
        "SELECT keep_until, id FROM tarry_finished WHERE keep_until >= ?1 AND keep_until < ?2"
        " ORDER BY keep_until, id LIMIT ?3"
    )
    + " ORDER BY f.keep_until, f.id",
    held_by=JOBS_OF.format("SELECT id FROM tarry_running WHERE owner = ?1 ORDER BY id LIMIT ?2") + " ORDER BY f.id",
    overdue=JOBS_OF.format(f"SELECT id FROM tarry_running WHERE owner {_LAPSED} ORDER BY id LIMIT ?2")
    + " ORDER BY f.id",
    owners=f"SELECT {_NAME.format('owner')} FROM (SELECT DISTINCT owner FROM tarry_running) o",
    next_due=NEXT_DUE,
    due=f"""SELECT {_NAME.format("j.queue")}, d.due FROM (
        SELECT due, id FROM tarry_scheduled WHERE due <= ?1 ORDER BY due, id LIMIT ?2) d
        STRAIGHT_JOIN tarry_job j ON j.id = d.id""",
    finished=f"""SELECT f.keep_until, f.id, {_NAME.format("f.queue")}, f.size, j.key_held_until <= ?3
        FROM (SELECT f.keep_until, f.id, f.queue, f.size {_FINISHED} ?4) f STRAIGHT_JOIN tarry_job j ON j.id = f.id
        ORDER BY f.keep_until, f.id""",
    weights=f"""SELECT {_NAME.format("queue")}, CAST(SUM(size) AS SIGNED)
        FROM (SELECT f.queue, f.size {_FINISHED} ?3) s GROUP BY queue""",
    last_weighed=f"SELECT f.keep_until, f.id {_FINISHED} ?3, 1",
    levels=f"""SELECT {_NAME.format("name")}, running = 0 AND next <= ?2 FROM tarry_level
        WHERE name > ?1 AND name < 'each;' ORDER BY name LIMIT ?3""",  # names of keys' levels begin with "each:"
    drop_level="DELETE FROM tarry_level WHERE name = ?1 AND running = 0 AND next <= ?2",
    lanes=f"""SELECT {_NAME.format("o.queue")}, o.band, {_NAME.format("o.task")}, {_NAME.format("o.lane")},
        NOT EXISTS (SELECT 1 FROM tarry_laned l WHERE l.queue = o.queue AND l.band = o.band AND l.task = o.task
            AND l.lane = o.lane)
        FROM (SELECT DISTINCT queue, band, task, lane FROM tarry_open FORCE INDEX (PRIMARY) WHERE queue > ?1
            OR (queue = ?1 AND (band > ?2 OR (band = ?2 AND (task > ?3 OR (task = ?3 AND lane > ?4)))))
            ORDER BY queue, band, task, lane LIMIT ?5) o""",
)


def note_literal(value: bytes, state: State) -> str:
    """A note as a literal, for a job of that state; `note_of` reads it."""
    if state is State.DONE:
        return "NULL" if value == NOTHING else raw(value)
    return blob_or_null(value)


def note_of(value: bytes | None, state: int) -> bytes:
    """The note that `note_literal` wrote."""
    if value is None:
        return NOTHING if state == _DONE else b""
    return value


def digest(task: str, key: str) -> bytes:
    """A digest of fixed length for a task's key of any length; the same as in LOSE_KEYS."""
    return hashlib.sha256(f"{task}\0{key}".encode()).digest()


_LITERALS = {
    columns.ColumnKind.ID: "{{raw({})}}",
    columns.ColumnKind.NAME: "{{text({})}}",
    columns.ColumnKind.OPTIONAL: "{{text_or_null({})}}",
    columns.ColumnKind.BLOB: "{{blob_or_null({})}}",
}
_literals = [
    "{note_literal(job.note, job.state)}"
    if one.field == "note"
    else _LITERALS.get(one.kind, "{{{}}}").format(value_of(one))
    for one in columns.COLUMNS
    if one.stored
]
row: Callable[[Job, int], str] = columns.compile_function(
    f"def made(job, settings): return f'({','.join(_literals)},{{settings}})'",
    raw=raw, text=text, text_or_null=text_or_null, blob_or_null=blob_or_null, note_literal=note_literal, CODE=CODE,
)  # fmt: skip
"""A new job's row, for INSERT. settings: the number of the settings by which its lane was chosen."""


class Names(dict[bytes, str]):
    """A cache of texts for the bytes of names, which come again and again."""

    def __missing__(self, name: bytes) -> str:
        # Bounded, since a program may make up names without end.
        if len(self) > 10_000:
            self.clear()
        self[name] = found = name.decode(errors="replace")
        return found


_names = Names()


def text_of(name: bytes | None) -> str | None:
    """The text of a column that may be NULL."""
    # What another program has written may be no UTF-8; a claim must not fail over it.
    return None if name is None else name.decode(errors="replace")


_PARTS = {
    columns.ColumnKind.NAME: "names[{}]",
    columns.ColumnKind.OPTIONAL: "text_of({})",
    columns.ColumnKind.BLOB: "{} or b''",
}
_PARSED = {one.field: _PARTS.get(one.kind, "{}").format(one.field) for one in columns.COLUMNS}
_READ = """def made({arguments}row):
    {texts}, numbers{more} = row
    {numbers} = map(int, numbers.split())
    {also}return Job({job})"""


def _reader(arguments: str, more: str, also: str, fields: dict[str, str]) -> Any:
    """A function from a row to a job. fields: what stands for these fields."""
    text = _READ.format(
        arguments=arguments,
        texts=", ".join(column.field for column in _TEXTS),
        more=more,
        numbers=", ".join(column.field for column in _NUMBERS),
        also=also,
        job=", ".join((_PARSED | fields)[field] for field in columns.FIELDS),
    )
    return columns.compile_function(
        text, Job=Job, RUNNING=State.RUNNING, names=_names, text_of=text_of, note_of=note_of, state_of=state_of,
        held_when_claimed=held_when_claimed, raised=MOST_EPOCH - 1,
    )  # fmt: skip


job: Callable[[Sequence[Any]], Job] = _reader(
    "", ", owner", "", {"state": "state_of(state)", "owner": "text_of(owner) or ''", "note": "note_of(note, state)"}
)
"""The job of a row of JOBS."""
# After the claim `state_since` no longer tells which jobs were late.
_claimed = _reader(
    "owner, now, late, ",
    "",
    "if state_since > due: late.add(id)\n    ",
    SET_BY_A_CLAIM
    | {"epoch": "min(epoch, raised) + 1", "key_held_until": "held_when_claimed(key_ttl, key_held_until)"},
)


def claimed(owner: str, now: int, late: set[bytes]) -> Callable[[Sequence[Any]], Job]:
    """A function from a row of PAYLOAD to the job as it is once this owner has claimed it. late: gets the ids of late
    jobs."""
    return partial(_claimed, owner, now, late)


WAITING = WaitingDialect(
    ready=("tarry_ready FORCE INDEX (PRIMARY) WHERE queue = ?1 AND late = {late} AND claim_order {range}",),
    laned="tarry_laned FORCE INDEX (PRIMARY) WHERE queue = ?1 AND band = {sign}",
    scheduled=("tarry_scheduled FORCE INDEX (PRIMARY) WHERE 1 = 1",),
    scheduled_with_queue=(
        """(SELECT s.due, j.queue FROM tarry_scheduled s STRAIGHT_JOIN tarry_job j FORCE INDEX (PRIMARY)
            ON j.id = s.id) d WHERE 1 = 1""",
    ),
    queue="CONVERT(queue USING utf8mb4)",
    name=_NAME,
    has_distinct_scan=False,
)
COUNT_KEY = count_of_lane(WAITING, "?")


def unlabel(ids: Sequence[bytes]) -> Iterator[str]:
    """The statements that take these jobs out of the index of labels."""
    return (_UNLABEL.format(id_table(part)) for part in chunks(ids))
