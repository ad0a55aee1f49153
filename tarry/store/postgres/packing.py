"""Packs jobs and changes as arrays in PostgreSQL's binary form, and unpacks its rows.

The fields that many jobs or changes of a batch have in common are sent once, as a *kind*; each job or change has the
number of its kind.
"""

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any

from msgspec.structs import replace

from tarry.model.change import Change
from tarry.model.job import Job
from tarry.store.postgres.job_columns import OF_KIND, OWN, PLAIN, USUAL
from tarry.store.postgres.link.connection import (
    BigIntArray,
    ByteaArray,
    IntArray,
    PostgresConnection,
    SmallIntArray,
    TextArray,
    UuidArray,
)
from tarry.store.postgres.sql import for_schema
from tarry.store.shared.columns import COLUMNS, ColumnKind
from tarry.store.shared.state_codes import CODE
from tarry.store.sql.columns import Row, claim_reader, values_of

_head = struct.Struct(">iiiii").pack
_small, _int, _big, _size = (struct.Struct(form).pack for form in (">ih", ">ii", ">iq", ">i"))
_NULL = b"\xff\xff\xff\xff"
_OF_16 = b"\0\0\0\x10"


def _array(parts: Sequence[bytes], oid: int) -> bytes:
    if not parts:
        return _head(0, 0, oid, 0, 0)[:12]  # an empty array has no dimension, so the last two numbers are left out
    return _head(1, 1, oid, len(parts), 1) + b"".join(parts)


def uuids(values: Sequence[bytes]) -> UuidArray:
    """Values of 16 bytes."""
    if not values:
        return UuidArray(_array((), 2950))
    # All elements have the same size, so one join makes the array.
    return UuidArray(_head(1, 0, 2950, len(values), 1) + _OF_16 + _OF_16.join(values))


def small_ints(values: Iterable[int | None]) -> SmallIntArray:
    """Values of 16 bits; None is NULL."""
    return SmallIntArray(_array([_NULL if value is None else _small(2, value) for value in values], 21))


def ints(values: Iterable[int]) -> IntArray:
    """Values of 32 bits."""
    return IntArray(_array([_int(4, value) for value in values], 23))


def big_ints(values: Iterable[int | None]) -> BigIntArray:
    """Values of 64 bits; None is NULL."""
    return BigIntArray(_array([_NULL if value is None else _big(8, value) for value in values], 20))


def texts(values: Iterable[str | None]) -> TextArray:
    """None is NULL."""
    return TextArray(_array([_NULL if value is None else _with_size(value.encode()) for value in values], 25))


def blobs(values: Iterable[bytes | None]) -> ByteaArray:
    """None is NULL."""
    return ByteaArray(_array([_NULL if value is None else _size(len(value)) + value for value in values], 17))


def _with_size(data: bytes) -> bytes:
    return _size(len(data)) + data


_Pack = Callable[[Iterable[Any]], Any]
_BY_KIND: Mapping[ColumnKind, _Pack] = {
    ColumnKind.NUMBER: big_ints, ColumnKind.COUNT: ints, ColumnKind.STATE: small_ints, ColumnKind.NAME: texts,
    ColumnKind.OPTIONAL: texts, ColumnKind.BLOB: blobs,
}  # fmt: skip
_OWN = [(_BY_KIND.get(column.kind, uuids), attrgetter(column.field)) for column in OWN]
_OF_KIND = [_BY_KIND[column.kind] for column in OF_KIND]
_job_kind = values_of(OF_KIND)
# The order of the arguments of the SQL functions. `_change_kind` has the same order.
_CHANGE_KINDS: tuple[_Pack, ...] = (
    small_ints, ints, small_ints, big_ints, big_ints, ints, ints, big_ints, texts, big_ints, big_ints, big_ints, blobs,
    texts, blobs,
)  # fmt: skip


def new_jobs(jobs: Sequence[Job]) -> list[Any]:
    """The first arguments of `insert_v1`: columns of the jobs (p_*), then columns of their kinds (k_*)."""
    kinds: dict[Row, int] = {}
    # Kinds have numbers from 1, as PostgreSQL's arrays have.
    which = [kinds.setdefault(_job_kind(job), len(kinds) + 1) for job in jobs]
    return [
        ints(which),
        *(pack([*map(value, jobs)]) for pack, value in _OWN),
        *(pack(column) for pack, column in zip(_OF_KIND, zip(*kinds, strict=True), strict=True)),
    ]


_usual_part = attrgetter(*(column.field for column in USUAL))
_USUAL = tuple(column.default for column in USUAL)


def is_plain(job: Job) -> bool:
    """Whether `sql.INSERT_PLAIN` can store it: it is new, and has no key."""
    return _usual_part(job) == _USUAL


plain_job = values_of(column for field in PLAIN for column in COLUMNS if column.field == field)
"""The values of `sql.INSERT_PLAIN`."""


def changes(batch: Sequence[Change]) -> list[Any]:
    """The arguments of `apply_v1`, without now_."""
    if not batch:
        return _NO_CHANGES
    kinds: dict[Row, int] = {}
    which = [kinds.setdefault(_change_kind(change), len(kinds) + 1) for change in batch]
    ids = [change.id for change in batch]
    # One statement for all changes does not see its own rows. So they are made one by one if another job may hold the
    # key by now, or if several changes of one job have an order.
    singly = len(set(ids)) < len(ids) or any(change.key_held_until for change in batch)
    return [
        uuids(ids),
        ints(which),
        blobs([change.note for change in batch]),
        *(pack(column) for pack, column in zip(_CHANGE_KINDS, zip(*kinds, strict=True), strict=True)),
        singly,
    ]


def _change_kind(change: Change) -> Row:
    priority = change.priority
    return (
        CODE[change.was], change.epoch, None if change.to is None else CODE[change.to], change.state_since, change.due,
        change.failures, change.crashes, change.keep_until, change.queue, None if priority is None else -priority,
        change.expires, change.key_held_until, change.body, change.owner or None, change.attempts,
    )  # fmt: skip


_NO_CHANGES: list[Any] = [uuids(()), ints(()), blobs(()), *(pack(()) for pack in _CHANGE_KINDS), False]


unpack_claimed = claim_reader()
"""The jobs in rows of `exchange_v1`, in the order to run them."""


def valid(made: list[int] | None, count: int) -> list[bool]:
    """For each of `count` changes whether it was made. made: the places of the changes that were made, from 1."""
    if made is not None and len(made) == count:
        return [True] * count
    valid = [False] * count
    for place in made or ():
        valid[place - 1] = True
    return valid


# Few changes name times, so `exchange_v1` knows nothing of them: it is called in a transaction that first locks their
# jobs, in one order, so that two transactions do not wait for each other, and looks.
_LOCK = "SELECT id, due, expires FROM {s}.job WHERE id = ANY ($1) ORDER BY id FOR UPDATE"
_NO_EPOCH = -1


def depend_on_times(changes: Sequence[Change]) -> bool:
    """Whether one of the changes names the times that its job must still have."""
    return any(change.seen_times is not None for change in changes)


def split_changes(changes: Sequence[Change], most: int) -> Iterator[Sequence[Change]]:
    """The changes in parts of at most so many. Where times matter a part has a job only once: they are compared
    before any change of the part is made."""
    if not depend_on_times(changes):
        yield from (changes[start : start + most] for start in range(0, len(changes), most))
        return
    part: dict[bytes, Change] = {}
    for change in changes:
        if change.id in part or len(part) == most:
            yield list(part.values())
            part = {}
        part[change.id] = change
    yield list(part.values())


def lock_and_compare(connection: PostgresConnection, schema: str, changes: Sequence[Change]) -> Sequence[Change]:
    """The changes; those whose jobs have other times by now as changes that are not valid. To be called in the
    transaction that makes them."""
    ids = [change.id for change in changes if change.seen_times is not None]
    if not ids:
        return changes
    rows = connection.rows(for_schema(_LOCK, schema), (uuids(ids),))
    times = {id.bytes: (due, expires) for id, due, expires in rows}
    # They keep their place: the answer is by place.
    return [
        change if change.seen_times in (None, times.get(change.id)) else replace(change, epoch=_NO_EPOCH)
        for change in changes
    ]
