"""A job as the bytes that the Redis store keeps of it; `lua/record.lua` says how they are laid out and reads them."""

from collections.abc import Iterator, Sequence
from struct import Struct as Form

from tarry.model.job import Job, State
from tarry.model.lifecycle import is_late
from tarry.store.base import band

STATES = (State.SCHEDULED, State.READY, State.RUNNING, State.DONE, State.DEAD, State.CANCELLED)
CODE = {state: code for code, state in enumerate(STATES)}
BANDS = {1: "h", 0: "n", -1: "l"}
RANK, SINCE, FAILED, UNTIL, NOTE = 1, 2, 4, 8, 16
EXPIRES, HOLDS, LANE, HEADERS, PROGRESS, KEY = 1, 2, 4, 8, 16, 32
LONG = 255
"""The first byte of names of which one is too long for a length of one byte."""

HEAD = Form(">BIQB")
TIME, _FAILED, LENGTH, _SHORT, NAMES = Form(">Q"), Form(">II"), Form(">I"), Form(">H"), Form(">BHH")
HOLDS_FORM = Form(">qQ")
MIDDLE = 2**47
_names: dict[tuple[str, str], bytes] = {}
known_names: dict[bytes, tuple[str, str]] = {}
_REMEMBERED = 10_000


def ranked(priority: int) -> bytes:
    """Six bytes that sort a higher priority first."""
    return (MIDDLE - priority).to_bytes(6, "big")


def timed(time: int) -> bytes:
    """Eight bytes that sort as times do."""
    return TIME.pack(time)


def epoch_bytes(epoch: int) -> bytes:
    """Four bytes; of an epoch that no job can have, some that none has."""
    return epoch.to_bytes(4, "big", signed=epoch < 0)


def named(queue: str, task: str) -> bytes:
    """Queue and task as a record has them, and as what is counted by."""
    found = _names.get((queue, task))
    if found is None:
        first, second = queue.encode(), task.encode()
        short = len(first) < LONG and len(second) <= LONG
        lengths = bytes((len(first), len(second))) if short else NAMES.pack(LONG, len(first), len(second))
        if len(_names) > _REMEMBERED:
            _names.clear()
        found = _names[queue, task] = lengths + first + second
    return found


def called(names: bytes) -> tuple[str, str]:
    """Queue and task of `named`."""
    found = known_names.get(names)
    if found is None:
        at, queue = (5, NAMES.unpack_from(names)[1]) if names[0] == LONG else (2, names[0])
        if len(known_names) > _REMEMBERED:
            known_names.clear()
        found = known_names[names] = names[at : at + queue].decode(), names[at + queue :].decode()
    return found


def record(job: Job) -> bytes:
    """The bytes; they tell neither the id nor an owner."""
    if _is_usual(job):
        flags, since = (0, b"") if job.since == job.due else (SINCE, TIME.pack(job.since))
        head = HEAD.pack(CODE[job.state], job.epoch, job.due, flags)
        return b"%b%b\0%b%b" % (head, since, named(job.queue, job.task), job.body)
    flags, middle = 0, b""
    if job.priority:
        flags, middle = RANK, ranked(job.priority)
    if job.since != job.due:
        flags, middle = flags | SINCE, middle + TIME.pack(job.since)
    if job.failures or job.losses:
        flags, middle = flags | FAILED, middle + _FAILED.pack(job.failures, job.losses)
    if job.until:
        flags, middle = flags | UNTIL, middle + TIME.pack(job.until)
    if job.note:
        flags, middle = flags | NOTE, middle + LENGTH.pack(len(job.note)) + job.note
    return b"".join((HEAD.pack(CODE[job.state], job.epoch, job.due, flags), middle, *_tail(job)))


def _is_usual(job: Job) -> bool:
    """It has nothing but what every job has."""
    return not (
        job.priority or job.expires or job.key is not None or job.lane is not None or job.headers or job.note
        or job.failures or job.losses or job.until or job.unique or job.holds or job.progress
    )  # fmt: skip


def is_plain(job: Job) -> bool:
    """Nothing about it needs more than to be put in its line."""
    return job.key is None and job.lane is None and job.state in (State.READY, State.SCHEDULED)


def _tail(job: Job) -> Iterator[bytes]:
    parts = list(_unusual(job))
    yield bytes((sum(flag for flag, _ in parts),))
    yield from (part for _, part in parts)
    yield named(job.queue, job.task)
    yield job.body


def _unusual(job: Job) -> Iterator[tuple[int, bytes]]:
    if job.expires:
        yield EXPIRES, TIME.pack(job.expires)
    if job.unique or job.holds:
        yield HOLDS, HOLDS_FORM.pack(job.unique, job.holds)
    if job.key is not None:
        key = job.key.encode()
        yield KEY, _SHORT.pack(len(key)) + key
    if job.lane is not None:
        lane = job.lane.encode()
        yield LANE, _SHORT.pack(len(lane)) + lane
    if job.headers:
        yield HEADERS, LENGTH.pack(len(job.headers)) + job.headers
    if job.progress:
        yield PROGRESS, LENGTH.pack(len(job.progress)) + job.progress


def rank(job: Job) -> tuple[int, int, bytes]:
    """Where it stands among ready jobs that are as late, and in what a claim answers."""
    return -job.priority, job.due, job.id


def line(job: Job) -> str:
    """The line that a ready or scheduled job without a lane waits in; that of late ones has a capital letter."""
    if job.state is State.SCHEDULED:
        return "due"
    letter = BANDS[band(job.priority)]
    return f"{letter.upper() if is_late(job.due, job.since) else letter}:{job.queue}"


def entries(jobs: Sequence[Job]) -> list[bytes]:
    """The places of jobs of one state and priority."""
    ranked_first = jobs[0].priority and jobs[0].state is State.READY
    rank = ranked(jobs[0].priority) if ranked_first else b""
    packed = TIME.pack
    return [rank + packed(job.due) + job.id for job in jobs]


def size_of(job: Job) -> int:
    """The bytes that count against what a queue may keep."""
    return len(job.body) + len(job.note) + len(job.headers) + len(job.progress)
