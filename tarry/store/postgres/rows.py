"""Jobs and changes on their way to the server, as arrays in its binary form, which is a join of bytes in Python.

What many jobs or changes of a batch have in common is sent once: each names its *kind*, the number of a row of that.
"""

import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tarry.model.change import Change
from tarry.model.job import Job, State
from tarry.store.postgres.link import BigInts, Blobs, Ints, Row, SmallInts, Texts, Uuids

STATES = (State.SCHEDULED, State.READY, State.RUNNING, State.DONE, State.DEAD, State.CANCELLED)
CODE = {state: code for code, state in enumerate(STATES)}
RUNNING = State.RUNNING

_head = struct.Struct(">iiiii").pack
_small, _int, _big, _size = (struct.Struct(form).pack for form in (">ih", ">ii", ">iq", ">i"))
_NULL = b"\xff\xff\xff\xff"
_OF_16 = b"\0\0\0\x10"


def _packed(parts: Sequence[bytes], oid: int) -> bytes:
    if not parts:
        return _head(0, 0, oid, 0, 0)[:12]  # no dimension, so nothing about it follows
    return _head(1, 1, oid, len(parts), 1) + b"".join(parts)


def uuids(values: Sequence[bytes]) -> Uuids:
    """Of 16 bytes each."""
    if not values:
        return Uuids(_packed((), 2950))
    return Uuids(_head(1, 0, 2950, len(values), 1) + _OF_16 + _OF_16.join(values))


def small_ints(values: Iterable[int | None]) -> SmallInts:
    """None is NULL."""
    return SmallInts(_packed([_NULL if value is None else _small(2, value) for value in values], 21))


def ints(values: Iterable[int]) -> Ints:
    """Of 32 bits."""
    return Ints(_packed([_int(4, value) for value in values], 23))


def big_ints(values: Iterable[int | None]) -> BigInts:
    """Of 64 bits; None is NULL."""
    return BigInts(_packed([_NULL if value is None else _big(8, value) for value in values], 20))


def texts(values: Iterable[str | None]) -> Texts:
    """None is NULL."""
    return Texts(_packed([_NULL if value is None else _sized(value.encode()) for value in values], 25))


def blobs(values: Iterable[bytes | None]) -> Blobs:
    """None is NULL."""
    return Blobs(_packed([_NULL if value is None else _size(len(value)) + value for value in values], 17))


def _sized(data: bytes) -> bytes:
    return _size(len(data)) + data


_Pack = Callable[[Iterable[Any]], Any]
_JOB_KINDS: tuple[_Pack, ...] = (
    texts, texts, big_ints, small_ints, ints, ints, ints, big_ints, big_ints, texts, blobs, big_ints, big_ints, texts,
    blobs, blobs,
)  # fmt: skip
_CHANGE_KINDS: tuple[_Pack, ...] = (
    small_ints, ints, small_ints, big_ints, big_ints, ints, ints, big_ints, texts, big_ints, big_ints, big_ints, blobs,
    texts,
)  # fmt: skip


def new_jobs(jobs: Sequence[Job]) -> list[Any]:
    """The first arguments of `insert_v1`."""
    kinds: dict[Row, int] = {}
    which = [kinds.setdefault(_job_kind(job), len(kinds) + 1) for job in jobs]
    return [
        uuids([job.id for job in jobs]),
        ints(which),
        big_ints([job.due for job in jobs]),
        big_ints([job.since for job in jobs]),
        blobs([job.body for job in jobs]),
        *(pack(column) for pack, column in zip(_JOB_KINDS, zip(*kinds, strict=True), strict=True)),
    ]


def _job_kind(job: Job) -> Row:
    return (
        job.task, job.queue, -job.priority, CODE[job.state], job.epoch, job.failures, job.losses, job.until,
        job.expires, job.key, job.note, job.unique, job.holds, job.lane, job.headers, job.progress,
    )  # fmt: skip


def changes(made: Sequence[Change]) -> list[Any]:
    """The arguments of `apply_v1` that say what to change."""
    if not made:
        return _NO_CHANGES
    kinds: dict[Row, int] = {}
    which = [kinds.setdefault(_change_kind(change), len(kinds) + 1) for change in made]
    ids = [change.id for change in made]
    # A key that is to be held may be another's by now, and changes of one job go in their order: then one by one.
    singly = len(set(ids)) < len(ids) or any(change.holds for change in made)
    return [
        uuids(ids),
        ints(which),
        blobs([change.note for change in made]),
        *(pack(column) for pack, column in zip(_CHANGE_KINDS, zip(*kinds, strict=True), strict=True)),
        singly,
    ]


def _change_kind(change: Change) -> Row:
    priority = change.priority
    return (
        CODE[change.was], change.epoch, None if change.to is None else CODE[change.to], change.since, change.due,
        change.failures, change.losses, change.until, change.queue, None if priority is None else -priority,
        change.expires, change.holds, change.body, change.owner or None,
    )  # fmt: skip


_NO_CHANGES: list[Any] = [uuids(()), ints(()), blobs(()), *(pack(()) for pack in _CHANGE_KINDS), False]


def claimed(rows: Iterable[Row], owner: str, now: int) -> list[Job]:
    """The jobs of `exchange_v1`, in the order to run them."""
    jobs = [
        Job(
            id, task, body, queue, priority, due, RUNNING, epoch, failures, losses, owner, now, 0, expires, key, note,
            unique, holds, lane, headers, progress,
        )
        for id, task, body, queue, priority, due, epoch, failures, losses, expires, key, note, unique, holds, lane,
            headers, progress in rows
    ]  # fmt: skip
    jobs.sort(key=_place)
    return jobs


def _place(job: Job) -> tuple[int, int, bytes]:
    return (-job.priority, job.due, job.id)


def job(row: Row) -> Job:
    """A row of `postgres.sql.COLUMNS`."""
    return Job(*row[:6], STATES[row[6]], *row[7:])  # type: ignore[call-arg]
