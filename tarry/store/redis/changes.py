"""Changes as the bytes that `lua/apply.lua` reads. Most changes of a batch differ only in their job, and so share one
description."""

from collections.abc import Iterator, Sequence
from operator import attrgetter
from struct import Struct as Form

from msgspec import Struct
from msgspec.structs import astuple

from tarry.model.change import Change
from tarry.store.redis.record import CODE, FAILED, NOTE, SINCE, UNTIL, ranked, timed

GONE = 6
DUE, RANKED, EXPIRES, HOLDS, QUEUE, BODY = 1, 2, 4, 8, 16, 32
_HEAD, _FAILED, _LENGTH, _SHORT = Form(">BBiBBQI"), Form(">II"), Form(">I"), Form(">H")
_in_order = attrgetter("until", "id")


class Packed(Struct, frozen=True):
    """Changes of different jobs."""

    ids: list[bytes]
    descriptions: list[bytes]
    numbers: bytes
    """Which description is whose, two bytes each; nothing if there is only one."""


def rounds(changes: Sequence[Change], most: int) -> Iterator[Sequence[Change]]:
    """Parts of at most so many changes; those of one job in their order, each in a part of its own."""
    turns: list[list[Change]] = [[]]
    seen: dict[bytes, int] = {}
    for change in changes:
        turn = seen[change.id] = seen.get(change.id, -1) + 1
        if turn == len(turns):
            turns.append([])
        turns[turn].append(change)
    for part in turns:
        for start in range(0, len(part), most):
            yield part[start : start + most]


def packed(changes: Sequence[Change]) -> Packed:
    """In the order in which finished jobs are forgotten, so that they can be put in line as they come."""
    kinds: dict[tuple[object, ...], int] = {}
    texts: list[bytes] = []
    numbers: list[int] = []
    ordered = sorted(changes, key=_in_order)
    for change in ordered:
        kind = astuple(change)[1:]
        number = kinds.get(kind)
        if number is None:
            number = kinds[kind] = len(texts)
            texts.append(_described(change))
        numbers.append(number)
    which = Form(f">{len(numbers)}H").pack(*[n + 1 for n in numbers]) if len(texts) > 1 else b""
    return Packed([change.id for change in ordered], texts, which)


def _described(change: Change) -> bytes:
    flags, fields = SINCE, timed(change.since)
    if change.failures or change.losses:
        flags, fields = flags | FAILED, fields + _FAILED.pack(change.failures, change.losses)
    finished = change.to is not None and change.to.finished
    if change.until and finished:
        flags, fields = flags | UNTIL, fields + timed(change.until)
    if change.note:
        flags, fields = flags | NOTE, fields + _LENGTH.pack(len(change.note)) + change.note
    to = GONE if change.to is None else CODE[change.to]
    parts = list(_modified(change))
    head = _HEAD.pack(
        CODE[change.was], to, change.epoch, flags, sum(flag for flag, _ in parts), change.until, len(fields)
    )
    return b"".join((head, fields, *(part for _, part in parts), change.owner.encode()))


def _modified(change: Change) -> Iterator[tuple[int, bytes]]:
    if change.due is not None:
        yield DUE, timed(change.due)
    if change.priority is not None:
        yield RANKED, ranked(change.priority)
    if change.expires is not None:
        yield EXPIRES, timed(change.expires)
    if change.holds is not None:
        yield HOLDS, timed(change.holds)
    if change.queue is not None:
        queue = change.queue.encode()
        yield QUEUE, _SHORT.pack(len(queue)) + queue
    if change.body is not None:
        yield BODY, _LENGTH.pack(len(change.body)) + change.body
