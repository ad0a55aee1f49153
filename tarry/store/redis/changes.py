"""Changes as the bytes that `lua/apply.lua` reads. Most changes of a batch differ only in their job, so they share one
description."""

from collections.abc import Iterator, Sequence
from operator import attrgetter
from struct import Struct as Form

from msgspec import Struct

from tarry.model.change import Change
from tarry.store.redis.flow_effects import pack_effects, touching_flows
from tarry.store.redis.link.base import Word
from tarry.store.redis.record import FAILED, KEEP_UNTIL, NOTE, STATE_BYTE, STATE_SINCE, claim_order_bytes, time_bytes
from tarry.store.rules.history.journal import record_of_changes

GONE = 6
DUE, RANKED, EXPIRES, KEY_HOLD, QUEUE, BODY, ATTEMPTS, KEEPS_PLACES = 1, 2, 4, 8, 16, 32, 64, 128
SEEN_TIMES, RATE_CORRECTION = 256, 512
_HEAD, _FAILED, _LENGTH, _SHORT, _SIGNED = Form(">BBiBHQI"), Form(">II"), Form(">I"), Form(">H"), Form(">q")
_in_order = attrgetter("keep_until", "id")


class PackedChanges(Struct, frozen=True):
    """Changes of different jobs."""

    ids: list[bytes]
    descriptions: list[bytes]
    numbers: bytes
    """For each job the number of its description, from 1, two bytes each; empty if there is only one description."""
    record: bytes
    """What the changes count as, for the journal; empty: as nothing."""
    effects: Sequence[Word] = ()
    """What they do to flows and signals, as `exchange_nodes` reads it; empty: nothing."""


def split_rounds(changes: Sequence[Change], most: int) -> Iterator[Sequence[Change]]:
    """The changes in parts of at most so many."""
    # The script takes changes of different jobs. The changes of one job keep their order, each in a later round.
    rounds: list[list[Change]] = [[]]
    seen: dict[bytes, int] = {}
    for change in changes:
        number = seen[change.id] = seen.get(change.id, -1) + 1
        if number == len(rounds):
            rounds.append([])
        rounds[number].append(change)
    for part in rounds:
        for start in range(0, len(part), most):
            yield part[start : start + most]


def pack_changes(changes: Sequence[Change]) -> PackedChanges:
    """The changes packed; each must be of a different job."""
    kinds: dict[tuple[object, ...], int] = {}
    texts: list[bytes] = []
    numbers: list[int] = []
    # In the order in which finished jobs are forgotten: the script then adds them to their line as one sorted run.
    ordered = sorted(changes, key=_in_order)
    for change in ordered:
        # Changes that are equal in this share a description.
        kind = change.effect
        number = kinds.get(kind)
        if number is None:
            number = kinds[kind] = len(texts)
            texts.append(_describe(change))
        numbers.append(number)
    which = Form(f">{len(numbers)}H").pack(*[n + 1 for n in numbers]) if len(texts) > 1 else b""
    ids = [change.id for change in ordered]
    touching = touching_flows(changes)
    return PackedChanges(ids, texts, which, record_of_changes(ordered), pack_effects(touching, ids) if touching else ())


def _describe(change: Change) -> bytes:
    flags, fields = STATE_SINCE, time_bytes(change.state_since)
    if change.failures or change.crashes:
        flags, fields = flags | FAILED, fields + _FAILED.pack(change.failures, change.crashes)
    finished = change.to is not None and change.to.finished
    if change.keep_until and finished:
        flags, fields = flags | KEEP_UNTIL, fields + time_bytes(change.keep_until)
    if change.note:
        flags, fields = flags | NOTE, fields + _LENGTH.pack(len(change.note)) + change.note
    to = GONE if change.to is None else STATE_BYTE[change.to]
    parts = [*_modified_fields(change), *([(KEEPS_PLACES, b"")] if change.keeps_places else ())]
    head = _HEAD.pack(
        STATE_BYTE[change.was], to, change.epoch, flags, sum(flag for flag, _ in parts), change.keep_until, len(fields)
    )
    return b"".join((head, fields, *(part for _, part in parts), change.owner.encode()))


def _modified_fields(change: Change) -> Iterator[tuple[int, bytes]]:
    # In the order in which `parse_change` in `lua/apply.lua` takes them.
    if change.due is not None:
        yield DUE, time_bytes(change.due)
    if change.priority is not None:
        yield RANKED, claim_order_bytes(change.priority)
    if change.expires is not None:
        yield EXPIRES, time_bytes(change.expires)
    if change.key_held_until is not None:
        yield KEY_HOLD, time_bytes(change.key_held_until)
    if change.queue is not None:
        queue = change.queue.encode()
        yield QUEUE, _SHORT.pack(len(queue)) + queue
    if change.body is not None:
        yield BODY, _LENGTH.pack(len(change.body)) + change.body
    if change.attempts is not None:
        yield ATTEMPTS, _LENGTH.pack(len(change.attempts)) + change.attempts
    if change.seen_times is not None:
        yield SEEN_TIMES, b"".join(map(time_bytes, change.seen_times))
    if change.rate_correction:
        yield RATE_CORRECTION, _SIGNED.pack(change.rate_correction)
