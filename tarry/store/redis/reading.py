"""Jobs from what the Redis store keeps of them: the other half of `redis.record`."""

from collections.abc import Sequence

from tarry.model.job import Job, State
from tarry.store.redis.record import (
    EXPIRES,
    FAILED,
    HEAD,
    HEADERS,
    HOLDS,
    HOLDS_FORM,
    KEY,
    LANE,
    LENGTH,
    LONG,
    MIDDLE,
    NAMES,
    NOTE,
    PROGRESS,
    RANK,
    SINCE,
    STATES,
    TIME,
    UNTIL,
    called,
    known_names,
)


class _Reader:
    """Reads one thing after the other."""

    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at = data, at

    def bytes(self, size: int) -> bytes:
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, size: int) -> int:
        return int.from_bytes(self.bytes(size), "big")

    def text(self) -> str:
        return self.bytes(self.number(2)).decode()


def job(id: bytes, data: bytes, running: bytes | None) -> Job:
    """The job of a record, and of its entry among those that run."""
    code, epoch, due, flags = HEAD.unpack_from(data)
    read = _Reader(data, HEAD.size)
    priority = MIDDLE - read.number(6) if flags & RANK else 0
    since = read.number(8) if flags & SINCE else due
    failures, losses = (read.number(4), read.number(4)) if flags & FAILED else (0, 0)
    until = read.number(8) if flags & UNTIL else 0
    note = read.bytes(read.number(4)) if flags & NOTE else b""
    state, owner = STATES[code], ""
    if running:
        epoch, since = LENGTH.unpack_from(running)[0], TIME.unpack_from(running, 4)[0]
        state, owner, until = State.RUNNING, _owner(running), 0
    expires, key, unique, holds, lane, headers, progress = _read_unusual(read)
    queue, task = called(read.bytes(_names_size(data, read.at)))
    return Job(
        id, task, data[read.at :], queue, priority, due, state, epoch, failures, losses, owner, since, until, expires,
        key, note, unique, holds, lane, headers, progress,
    )  # fmt: skip


def _owner(entry: bytes) -> str:
    return entry[18 + entry[16] + entry[17] :].decode()


def _read_unusual(read: _Reader) -> tuple[int, str | None, int, int, str | None, bytes, bytes]:
    flags = read.number(1)
    expires = read.number(8) if flags & EXPIRES else 0
    unique, holds = HOLDS_FORM.unpack(read.bytes(HOLDS_FORM.size)) if flags & HOLDS else (0, 0)
    key = read.text() if flags & KEY else None
    lane = read.text() if flags & LANE else None
    headers = read.bytes(read.number(4)) if flags & HEADERS else b""
    progress = read.bytes(read.number(4)) if flags & PROGRESS else b""
    return expires, key, unique, holds, lane, headers, progress


def _names_size(data: bytes, at: int) -> int:
    if data[at] == LONG:
        _, queue, task = NAMES.unpack_from(data, at)
        return int(NAMES.size + queue + task)
    return 2 + data[at] + data[at + 1]


def jobs(flat: Sequence[bytes | None]) -> list[Job]:
    """Of ids, records and entries in turn."""
    found = zip(flat[::3], flat[1::3], flat[2::3], strict=True)
    return [job(id, data, running) for id, data, running in found if id and data]


def claimed(flat: Sequence[bytes], owner: str, now: int) -> list[Job]:
    """Of ids and records in turn, as they were before this owner claimed them."""
    entry = TIME.pack(now) + bytes(6) + owner.encode()
    found: list[Job] = []
    running = State.RUNNING
    head, length, remembered = HEAD.unpack_from, LENGTH.pack, known_names
    for id, data in zip(flat[::2], flat[1::2], strict=True):
        _, epoch, due, flags = head(data)
        at = 14 if not flags else 22 if flags == SINCE else 0
        if not at or data[at]:
            found.append(job(id, data, length(epoch + 1) + entry))
            continue
        # Nothing unusual about it, as with most.
        end = at + 3 + data[at + 1] + data[at + 2]
        names = remembered.get(data[at + 1 : end])
        if names is None:
            found.append(job(id, data, length(epoch + 1) + entry))
            continue
        found.append(Job(id, names[1], data[end:], names[0], 0, due, running, epoch + 1, 0, 0, owner, now))
    return found
