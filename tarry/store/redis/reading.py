"""Jobs from the bytes that `redis.record` writes and the Redis store keeps."""

import struct
from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from tarry.model.checks.unreadable import UNREADABLE
from tarry.model.job import MOST_EPOCH, Job, State
from tarry.model.outcome import record_note
from tarry.store.redis.record import (
    CLAIM_ORDER,
    FAILED,
    HEAD,
    KEEP_UNTIL,
    LANE,
    LENGTH,
    LONG,
    MIDDLE,
    NAMES,
    NOTE,
    STATE_OF_BYTE,
    STATE_SINCE,
    TIME,
    names_seen,
    split_names,
)
from tarry.store.shared.columns import TAIL, ColumnKind, compile_function

_ENTRY = 18
"""Bytes of an entry among the running jobs, before the lengths and the owner."""
HAS_LANE = 128
"""In the first byte of the size in such an entry: its job has a lane, which stands before the names."""
_UNREADABLE = (*UNREADABLE, IndexError, struct.error)


class _ReplyReader:
    """Reads one field after the other."""

    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at = data, at

    def bytes(self, size: int) -> bytes:
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, size: int) -> int:
        return int.from_bytes(self.bytes(size), "big")

    def signed_number(self) -> int:
        return int.from_bytes(self.bytes(8), "big", signed=True)

    def text(self) -> str:
        return self.bytes(self.number(2)).decode(errors="replace")


def parse_job(id: bytes, data: bytes, running: bytes | None) -> Job:
    """The job of a record. running: its entry among the running jobs, if it runs."""
    code, epoch, due, flags = HEAD.unpack_from(data)
    read = _ReplyReader(data, HEAD.size)
    fields: dict[str, Any] = {"state": STATE_OF_BYTE.get(code, State.DEAD), "epoch": epoch, "due": due}
    fields["priority"] = MIDDLE - read.number(6) if flags & CLAIM_ORDER else 0
    fields["state_since"] = read.number(8) if flags & STATE_SINCE else due
    if flags & FAILED:
        fields["failures"], fields["crashes"] = read.number(4), read.number(4)
    if flags & KEEP_UNTIL:
        fields["keep_until"] = read.number(8)
    if flags & NOTE:
        fields["note"] = read.bytes(read.number(4))
    if running:
        # A claim leaves the record alone (`store`): what it changed is in the entry.
        epoch, since = LENGTH.unpack_from(running)[0], TIME.unpack_from(running, 4)[0]
        fields |= {"state": State.RUNNING, "epoch": epoch, "state_since": since, "owner": _owner(running)}
        fields["keep_until"] = 0
    fields |= _read_unusual(read)
    queue, task = split_names(read.bytes(_names_size(data, read.at)))
    return Job(id, task, data[read.at :], queue, **fields)


def _owner(entry: bytes) -> str:
    at = 16
    if entry[12] & HAS_LANE:
        at += 2 + int.from_bytes(entry[16:18], "big")
    return entry[at + 2 + entry[at] + entry[at + 1] :].decode(errors="replace")


_READ = {
    ColumnKind.NUMBER: "signed_number()",
    ColumnKind.NAME: "text()",
    ColumnKind.OPTIONAL: "text()",
    ColumnKind.BLOB: "bytes(read.number(4))",
}
_parts = (f"\n    if flags & {column.tail}: fields['{column.field}'] = read.{_READ[column.kind]}" for column in TAIL)
_read_unusual: Callable[[_ReplyReader], dict[str, Any]] = compile_function(
    f"def made(read):\n    flags, fields = read.number(1), {{}}{''.join(_parts)}\n    return fields"
)
"""The fields of the tail that most jobs lack."""


def _names_size(data: bytes, at: int) -> int:
    if data[at] == LONG:
        _, queue, task = NAMES.unpack_from(data, at)
        return int(NAMES.size + queue + task)
    return 2 + data[at] + data[at + 1]


def parse_jobs(flat: Sequence[bytes | None]) -> list[Job]:
    """The jobs of ids, records and entries in turn. A job without a record is left out."""
    found = zip(flat[::3], flat[1::3], flat[2::3], strict=True)
    return [_read_job(id, data, running) for id, data, running in found if id and data]


def _read_job(id: bytes, data: bytes, running: bytes | None) -> Job:
    """The job of a record; of one that another program has written, a dead job without a task, or a running one."""
    try:
        return parse_job(id, data, running)
    except _UNREADABLE as error:
        job = Job(id, "", b"", "", state=State.DEAD, note=record_note(error))
        if running is None or len(running) < _ENTRY:
            return job
        return replace(job, state=State.RUNNING, epoch=LENGTH.unpack_from(running)[0], owner=_owner(running))


def parse_claimed(flat: Sequence[bytes], owner: str, now: int) -> list[Job]:
    """The jobs of ids and records in turn, as this owner has claimed them. The records are from before the claim."""
    # Built as the script builds it, so that `parse_job` reads the job as claimed.
    entry = TIME.pack(now) + bytes(6) + owner.encode()
    found: list[Job] = []
    running, raised = State.RUNNING, MOST_EPOCH - 1
    head, length, known = HEAD.unpack_from, LENGTH.pack, names_seen
    for id, data in zip(flat[::2], flat[1::2], strict=True):
        _, epoch, due, flags = head(data)
        at, lane = 14 if not flags else 22 if flags == STATE_SINCE else 0, None
        if at and data[at] == LANE:
            # The lane stands before the names: then they are what follows it.
            start, at = at + 3, at + 2 + int.from_bytes(data[at + 1 : at + 3], "big")
            lane = data[start : at + 1].decode(errors="replace")
            is_quick = at + 2 < len(data)
        else:
            is_quick = bool(at) and not data[at]
        # Most jobs have nothing unusual but perhaps a lane, and come this way, which is quicker than a reader.
        end = at + 3 + data[at + 1] + data[at + 2] if is_quick else 0
        names = known.get(data[at + 1 : end])
        if names is None:
            found.append(_read_job(id, data, length(min(epoch, raised) + 1) + entry))
            continue
        queue, task = names
        found.append(
            Job(
                id,
                task,
                data[end:],
                queue,
                due=due,
                state=running,
                epoch=min(epoch, raised) + 1,
                owner=owner,
                state_since=now,
                lane=lane,
            )
        )
    return found
