"""Statements, and how values are written in them. Only digits, NULL, names of ours and hexadecimal ever go into one, so
there is nothing to escape. A priority is kept as its negative, `grade`, so that keys run upwards."""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from tarry.model.job import Job, State
from tarry.store.base import HIGH, LOW, NORMAL

STATES = (State.SCHEDULED, State.READY, State.RUNNING, State.DONE, State.DEAD, State.CANCELLED)
CODE = {state: code for code, state in enumerate(STATES)}
_DONE = CODE[State.DONE]
AT_ONCE = 2**20
"""Bytes that one statement may grow to, unless one job alone takes more."""

NOTHING = b"null"
"""The result of a task that returns none; by far the most do, and then NULL stands for it: a row that keeps its size
is changed at half the cost."""
SIZE = """(IFNULL(LENGTH({0}.body), 0) + IFNULL(LENGTH({0}.note), IF({0}.state = 3, 4, 0))
    + IFNULL(LENGTH({0}.headers), 0) + IFNULL(LENGTH({0}.progress), 0))"""
_NUMBERS = "-j.grade, j.due, j.epoch, j.failures, j.losses, j.expires, j.unique_for, j.holds, j.since, j.until, j.state"
PAYLOAD = f"""SELECT j.id, j.task, j.body, j.queue, CONCAT_WS(' ', {_NUMBERS}), j.job_key, j.note, j.lane, j.headers,
    j.progress FROM tarry_job j FORCE INDEX (PRIMARY) WHERE j.state = 1 AND j.id IN ({{}})"""
"""What a claim gives. The driver takes a microsecond for each column of each row, so the numbers are one."""
WHOLE = f"""SELECT j.id, j.task, j.body, j.queue, CONCAT_WS(' ', {_NUMBERS}), j.job_key, j.note, j.lane, j.headers,
    j.progress, r.owner FROM tarry_job j {{hint}} LEFT JOIN tarry_running r ON r.id = j.id WHERE {{where}}
    ORDER BY j.id"""
INSERT = """INSERT INTO tarry_job (id, state, epoch, failures, losses, grade, due, since, until, expires, unique_for,
    holds, settings, queue, task, lane, job_key, body, note, headers, progress) VALUES """
READY = "INSERT INTO tarry_ready (queue, late, grade, due, id) VALUES "
LANED = "INSERT INTO tarry_laned (queue, band, task, lane, grade, due, id, late) VALUES "
SCHEDULED = "INSERT INTO tarry_scheduled (due, id) VALUES "
RUNNING = "INSERT INTO tarry_running (id, owner, epoch) VALUES "
MARK = """UPDATE tarry_running r STRAIGHT_JOIN tarry_job j ON j.id = r.id SET j.progress = {}
    WHERE r.id = {} AND r.epoch = {} AND r.owner = {}"""
KEYS = "INSERT INTO tarry_key (digest, id, holds) VALUES "

_LATE = "IF(j.since > j.due, 1, 0)"
"""As `lifecycle.is_late`, from a row of tarry_job."""
BANDS = {HIGH: "grade < 0", NORMAL: "grade = 0", LOW: "grade > 0"}

# Leaving a place and coming to another, for jobs that `among` lists. While they leave, their row still says where they
# are; when they come, it says so already. To a list in an IN a planner may prefer to read a whole table if it is small,
# and then it waits for every row that somebody else has locked; from a list that is a table of its own it goes to each
# row by its key.
_BY_KEY = "FORCE INDEX (PRIMARY) ON"
_LEAVE = f"""DELETE p FROM {{{{}}}} STRAIGHT_JOIN tarry_job j {_BY_KEY} j.id = UNHEX(v.i)
    STRAIGHT_JOIN tarry_{{}} p {_BY_KEY} {{}}"""
LEAVE_READY = _LEAVE.format(
    "ready",
    f"p.queue = j.queue AND p.late = {_LATE} AND p.grade = j.grade AND p.due = j.due AND p.id = j.id",
)
LEAVE_LANED = _LEAVE.format(
    "laned",
    "p.queue = j.queue AND p.band = SIGN(j.grade) AND p.task = j.task AND p.lane = j.lane AND p.grade = j.grade"
    " AND p.due = j.due AND p.id = j.id",
)
LEAVE_SCHEDULED = _LEAVE.format("scheduled", "p.due = j.due AND p.id = j.id")
LEAVE_FINISHED = _LEAVE.format("finished", "p.until = j.until AND p.id = j.id")
LEAVE_RUNNING = f"DELETE p FROM {{}} STRAIGHT_JOIN tarry_running p {_BY_KEY} p.id = UNHEX(v.i)"
LEAVE_FRONT = f"""DELETE p FROM {{}} STRAIGHT_JOIN tarry_ready p {_BY_KEY} p.queue = {{}} AND p.late = {{}}
    AND p.grade = {{}} AND p.due = v.d AND p.id = UNHEX(v.i)"""
"""The same as LEAVE_READY where it is known which are late and when each was due: takes `among_moments`."""
LOSE_KEYS = _LEAVE.format("key", "p.digest = UNHEX(SHA2(CONCAT(j.task, 0x00, j.job_key), 256)) AND p.id = j.id")
DROP_KEYS = f"DELETE p FROM {{}} STRAIGHT_JOIN tarry_key p {_BY_KEY} p.digest = UNHEX(v.i)"
FORGET = f"DELETE j FROM {{}} STRAIGHT_JOIN tarry_job j {_BY_KEY} j.id = UNHEX(v.i)"
LOCK_JOBS = f"SELECT {{}} FROM {{}} STRAIGHT_JOIN tarry_job j {_BY_KEY} j.id = UNHEX(v.i)"
LOCK_KEYS = (
    f"SELECT p.digest, p.id, p.holds FROM {{}} STRAIGHT_JOIN tarry_key p {_BY_KEY} p.digest = UNHEX(v.i) FOR UPDATE"
)
COME_READY = f"""{READY.removesuffix("VALUES ")} SELECT j.queue, {_LATE}, j.grade, j.due, j.id
    FROM tarry_job j FORCE INDEX (PRIMARY) WHERE j.id IN ({{}}) AND j.lane IS NULL"""
COME_LANED = f"""{LANED.removesuffix("VALUES ")} SELECT j.queue, SIGN(j.grade), j.task, j.lane, j.grade, j.due, j.id,
    {_LATE} FROM tarry_job j FORCE INDEX (PRIMARY) WHERE j.id IN ({{}}) AND j.lane IS NOT NULL"""
COME_SCHEDULED = "INSERT INTO tarry_scheduled SELECT due, id FROM tarry_job FORCE INDEX (PRIMARY) WHERE id IN ({})"
COME_FINISHED = f"""INSERT INTO tarry_finished SELECT until, id, queue, {SIZE.format("j")} FROM tarry_job j
    FORCE INDEX (PRIMARY) WHERE id IN ({{}})"""
DIFFERING = "INSERT INTO tarry_job (id, {0}) VALUES "
ALREADY = " ON DUPLICATE KEY UPDATE "
"""Together they change rows that are there, each otherwise, in one statement."""

NEXT_DUE = "SELECT due FROM tarry_scheduled ORDER BY due LIMIT 1"
LEASE = "INSERT INTO tarry_owner (name, until) VALUES ({}, {}) ON DUPLICATE KEY UPDATE until = VALUES(until)"
ANY_LANED = "SELECT 1 FROM tarry_laned LIMIT 1"


def raw(value: bytes) -> str:
    """Bytes as a literal."""
    return f"X'{value.hex()}'"


def text(value: str) -> str:
    """Text as a literal."""
    return f"X'{value.encode().hex()}'"


def given(value: bytes) -> str:
    """Bytes as a literal; none take no room."""
    return f"X'{value.hex()}'" if value else "NULL"


def noted(value: bytes, state: State) -> str:
    """A note as a literal, for a job of that state; `note_of` reads it."""
    if state is State.DONE:
        return "NULL" if value == NOTHING else raw(value)
    return given(value)


def note_of(value: bytes | None, state: int) -> bytes:
    """The note that `noted` wrote."""
    if value is None:
        return NOTHING if state == _DONE else b""
    return value


def maybe(value: str | None) -> str:
    """Text as a literal, or NULL."""
    return "NULL" if value is None else text(value)


def listed(ids: Iterable[bytes]) -> str:
    """Ids for an IN, sorted, so that all lock rows in the same order."""
    return "X'" + "',X'".join([id.hex() for id in sorted(ids)]) + "'"


_TABLE = "JSON_TABLE('[{}]', '$[*]' COLUMNS ({})) v"
_ONE, _TWO = "i CHAR(64) PATH '$'", "d BIGINT PATH '$[0]', i CHAR(64) PATH '$[1]'"
_JSON_TABLE = re.compile(r"JSON_TABLE\('([^']*)', '\$\[\*\]' COLUMNS \([^']*'\$(?:\[0\]', [^']*'\$\[1\])?'\)\) v")


def among(ids: Iterable[bytes]) -> str:
    """Ids, sorted, as the table v with the column i, which is hexadecimal."""
    return _TABLE.format('"' + '","'.join([id.hex() for id in sorted(ids)]) + '"', _ONE)


def among_moments(pairs: Iterable[tuple[bytes, int]]) -> str:
    """The same, and in the column d when each was due."""
    return _TABLE.format(",".join([f'[{due},"{id.hex()}"]' for id, due in sorted(pairs)]), _TWO)


def for_older(statement: str) -> str:
    """The same for a server that has no JSON_TABLE: a union of rows, which is slower to read."""
    return _JSON_TABLE.sub(_union, statement)


def _union(found: "re.Match[str]") -> str:
    rows = [row if isinstance(row, list) else [row] for row in msgspec.json.decode(found[1])]
    first = [f"'{value}' AS i" if isinstance(value, str) else f"{value} AS d" for value in rows[0]]
    rest = [", ".join(f"'{value}'" if isinstance(value, str) else str(value) for value in row) for row in rows[1:]]
    return "(SELECT " + " UNION ALL SELECT ".join([", ".join(first), *rest]) + ") v"


def some(ids: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """As many at once as a statement is to name."""
    return (ids[start : start + 1000] for start in range(0, len(ids), 1000))


def digest(task: str, key: str) -> bytes:
    """What stands for a key of a task, however long it is; as LOSE_KEYS reckons it too."""
    return hashlib.sha256(f"{task}\0{key}".encode()).digest()


def filled(head: str, values: Iterable[str], tail: str = "") -> Iterator[str]:
    """As many statements as it takes, each of a bounded size."""
    rows: list[str] = []
    size = 0
    for row in values:
        if rows and size + len(row) > AT_ONCE:
            yield head + ",".join(rows) + tail
            rows, size = [], 0
        rows.append(row)
        size += len(row) + 1
    if rows:
        yield head + ",".join(rows) + tail


def row(job: Job, settings: int) -> str:
    """A new job's row, for INSERT. settings: the number of those by which its lane was chosen."""
    numbers = (
        f"{CODE[job.state]},{job.epoch},{job.failures},{job.losses},{-job.priority},{job.due},{job.since},{job.until},"
        f"{job.expires},{job.unique},{job.holds},{settings}"
    )
    return (
        f"({raw(job.id)},{numbers},{text(job.queue)},{text(job.task)},{maybe(job.lane)},{maybe(job.key)},"
        f"{given(job.body)},{noted(job.note, job.state)},{given(job.headers)},{given(job.progress)})"
    )


class Names(dict[bytes, str]):
    """Text for the bytes of names that come again and again."""

    def __missing__(self, name: bytes) -> str:
        if len(self) > 10_000:
            self.clear()
        self[name] = found = name.decode()
        return found


_names = Names()


def job(row: Sequence[Any]) -> Job:
    """The job of a row of WHOLE."""
    id, task, body, queue, numbers, key, note, lane, headers, progress, owner = row
    priority, due, epoch, failures, losses, expires, unique, holds, since, until, state = map(int, numbers.split())
    return Job(
        id, _names[task], body or b"", _names[queue], priority, due, STATES[state], epoch, failures, losses,
        "" if owner is None else owner.decode(), since, until, expires, None if key is None else key.decode(),
        note_of(note, state), unique, holds, None if lane is None else lane.decode(), headers or b"", progress or b"",
    )  # fmt: skip


def claimed(owner: str, now: int, late: set[bytes]) -> Callable[[Sequence[Any]], Job]:
    """The job of a row of PAYLOAD, once that owner has claimed it. late: takes the ids of those that were late, which
    their `since` no longer tells."""
    names, running = _names, State.RUNNING

    def job(row: Sequence[Any]) -> Job:
        id, task, body, queue, numbers, key, note, lane, headers, progress = row
        priority, due, epoch, failures, losses, expires, unique, holds, since, _, _ = map(int, numbers.split())
        if since > due:
            late.add(id)
        return Job(
            id, names[task], body or b"", names[queue], priority, due, running, epoch + 1, failures, losses, owner, now,
            0, expires, None if key is None else key.decode(), note or b"", unique, 0 if unique < 0 else holds,
            None if lane is None else lane.decode(), headers or b"", progress or b"",
        )  # fmt: skip

    return job
