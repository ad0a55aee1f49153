"""A job as the bytes that the Redis store keeps; `lua/record.lua` describes and reads them."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from struct import Struct as Form
from typing import Any

from tarry.model.job import LABEL_MARK, Job, State
from tarry.model.lifecycle import is_late
from tarry.store.rules.base import band
from tarry.store.shared.columns import TAIL, ColumnKind, compile_function
from tarry.store.shared.state_codes import CODE, STATES

# A byte has no sign, and 6 means in a change that its job is deleted.
STATE_BYTE = CODE | {State.BLOCKED: 7}
"""The first byte of a record."""
STATE_OF_BYTE = dict(enumerate(STATES[:-1])) | {7: State.BLOCKED}
BANDS = {1: "h", 0: "n", -1: "l"}
CLAIM_ORDER, STATE_SINCE, FAILED, KEEP_UNTIL, NOTE = 1, 2, 4, 8, 16
LANE = next(column.tail for column in TAIL if column.field == "lane")
"""The flag of a tail that has a lane."""
LONG = 255
"""The first byte of names if one of them is too long for a length of one byte."""

HEAD = Form(">BIQB")
TIME, _FAILED, LENGTH, _SHORT, NAMES = Form(">Q"), Form(">II"), Form(">I"), Form(">H"), Form(">BHH")
NUMBER = Form(">q")
# The middle of what six bytes hold, so that those of negative priorities fit too.
MIDDLE = 2**47
_names: dict[tuple[str, str], bytes] = {}
names_seen: dict[bytes, tuple[str, str]] = {}
# Names come from users: without a bound the memory of a process that sees many would grow for ever.
_REMEMBERED = 10_000


def claim_order_bytes(priority: int) -> bytes:
    """Six bytes that sort a higher priority first."""
    return (MIDDLE - priority).to_bytes(6, "big")


def time_bytes(time: int) -> bytes:
    """Eight bytes that sort as times do."""
    return TIME.pack(time)


def epoch_bytes(epoch: int) -> bytes:
    """Four bytes."""
    # A negative epoch, which no job has, must match none and not raise.
    return epoch.to_bytes(4, "big", signed=epoch < 0)


def join_names(queue: str, task: str) -> bytes:
    """Queue and task in one text, as in records and in the names of counts."""
    found = _names.get((queue, task))
    if found is None:
        first, second = queue.encode(), task.encode()
        # The queue's length comes first: there 255 is the mark of long names.
        short = len(first) < LONG and len(second) <= LONG
        lengths = bytes((len(first), len(second))) if short else NAMES.pack(LONG, len(first), len(second))
        if len(_names) > _REMEMBERED:
            _names.clear()
        found = _names[queue, task] = lengths + first + second
    return found


def split_names(names: bytes) -> tuple[str, str]:
    """Queue and task of a text that `join_names` made."""
    found = names_seen.get(names)
    if found is None:
        at, queue = (5, NAMES.unpack_from(names)[1]) if names[0] == LONG else (2, names[0])
        if len(names_seen) > _REMEMBERED:
            names_seen.clear()
        found = names_seen[names] = (
            names[at : at + queue].decode(errors="replace"),
            names[at + queue :].decode(errors="replace"),
        )
    return found


def pack_job(job: Job) -> bytes:
    """The record; it has neither the id nor an owner."""
    # Most jobs have none of the other fields: this way is quicker.
    if _is_usual(job):
        flags, since = (0, b"") if job.state_since == job.due else (STATE_SINCE, TIME.pack(job.state_since))
        head = HEAD.pack(STATE_BYTE[job.state], job.epoch, job.due, flags)
        return b"%b%b\0%b%b" % (head, since, join_names(job.queue, job.task), job.body)
    if job.lane is not None and _is_usual_in_lane(job):
        flags, since = (0, b"") if job.state_since == job.due else (STATE_SINCE, TIME.pack(job.state_since))
        head = HEAD.pack(STATE_BYTE[job.state], job.epoch, job.due, flags)
        return b"%b%b%c%b%b%b" % (head, since, LANE, _pack_text(job.lane), join_names(job.queue, job.task), job.body)
    flags, middle = 0, b""
    if job.priority:
        flags, middle = CLAIM_ORDER, claim_order_bytes(job.priority)
    if job.state_since != job.due:
        flags, middle = flags | STATE_SINCE, middle + TIME.pack(job.state_since)
    if job.failures or job.crashes:
        flags, middle = flags | FAILED, middle + _FAILED.pack(job.failures, job.crashes)
    if job.keep_until:
        flags, middle = flags | KEEP_UNTIL, middle + TIME.pack(job.keep_until)
    if job.note:
        flags, middle = flags | NOTE, middle + LENGTH.pack(len(job.note)) + job.note
    return b"".join((HEAD.pack(STATE_BYTE[job.state], job.epoch, job.due, flags), middle, *_tail(job)))


def _is_set(field: str, usual: object) -> str:
    """The expression that says whether a job has something unusual there."""
    return f"job.{field} is not None" if usual is None else f"job.{field}"


_SELDOM = ("priority", "note", "failures", "crashes", "keep_until")
_unusual = [_is_set(field, 0) for field in _SELDOM] + [
    _is_set(column.field, column.default) for column in TAIL if column.field != "lane"
]
_is_usual_in_lane: Callable[[Job], bool] = compile_function(f"def made(job): return not ({' or '.join(_unusual)})")
"""Whether it has only the fields that every job has, and perhaps a lane."""
_is_usual: Callable[[Job], bool] = compile_function(
    f"def made(job): return not (job.lane is not None or {' or '.join(_unusual)})"
)
"""Whether it has only the fields that every job has."""


def is_plain(job: Job) -> bool:
    """Whether storing it only adds it to its line, if it has one: it waits, and has no key, no lane and no labels."""
    if job.key is not None or job.lane is not None or (job.headers and LABEL_MARK in job.headers):
        return False
    return job.state in (State.READY, State.SCHEDULED, State.BLOCKED)


def _pack_text(text: str) -> bytes:
    data = text.encode()
    return _SHORT.pack(len(data)) + data


_PACK: Mapping[ColumnKind, Callable[[Any], bytes]] = {
    ColumnKind.NUMBER: NUMBER.pack,
    ColumnKind.NAME: _pack_text,
    ColumnKind.OPTIONAL: _pack_text,
    ColumnKind.BLOB: lambda data: LENGTH.pack(len(data)) + data,
}
_PARTS = [
    f"""
    if {" or ".join(_is_set(column.field, column.default) for column in columns)}:
        flags |= {flag}
        parts += ({" ".join(f"pack_{column.kind.name}(job.{column.field})," for column in columns)})"""
    for flag, grouped in itertools.groupby(TAIL, key=lambda column: column.tail)
    for columns in [list(grouped)]
]
_pack_unusual: Callable[[Job], tuple[int, list[bytes]]] = compile_function(
    f"def made(job):\n    flags, parts = 0, []{''.join(_PARTS)}\n    return flags, parts",
    **{f"pack_{kind.name}": pack for kind, pack in _PACK.items()},
)
"""The flags of the tail, and the columns that they say."""


def _tail(job: Job) -> Iterator[bytes]:
    # Flags first: a reader must know which parts follow.
    flags, parts = _pack_unusual(job)
    yield bytes((flags,))
    yield from parts
    yield join_names(job.queue, job.task)
    yield job.body


def place_in_line(job: Job) -> tuple[int, int, bytes]:
    """The order of the ready jobs in one line, and of the jobs that a claim answers."""
    return -job.priority, job.due, job.id


def line_name(job: Job) -> str:
    """The line in which a ready or scheduled job without a lane waits; a capital letter is a line of late jobs."""
    if job.state is State.SCHEDULED:
        return "due"
    letter = BANDS[band(job.priority)]
    return f"{letter.upper() if is_late(job.due, job.state_since) else letter}:{job.queue}"


def line_entries(jobs: Sequence[Job]) -> list[bytes]:
    """The entries of jobs of one state and priority in their line."""
    # In the normal band all ready jobs have priority 0, and scheduled jobs are in the order of their due time alone.
    ranked_first = jobs[0].priority and jobs[0].state is State.READY
    claim_order = claim_order_bytes(jobs[0].priority) if ranked_first else b""
    packed = TIME.pack
    return [claim_order + packed(job.due) + job.id for job in jobs]


def size_of(job: Job) -> int:
    """The bytes of a job that count towards what its queue may keep."""
    return job.size
