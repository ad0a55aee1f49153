"""The records of the journal: what one call of a store counted.

A store appends a record in the transaction of the call: one for the whole call, so that many jobs at once cost hardly
more than one, and only an append, so that calls side by side do not wait for each other. A record has, for each job of
the call, the place of its count. A store that learns only in the server which jobs count puts a text of 1 and 0 before
it, one digit a job; without that text all count.
"""

import logging
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

import msgspec

from tarry.model.change import Change
from tarry.model.checks.decoders import msgpack_decoder
from tarry.model.checks.unreadable import UNREADABLE
from tarry.model.history.counting import Count, count_changes, count_new, count_of_change, count_of_new
from tarry.model.job import Job, State
from tarry.model.moving import is_parked

log = logging.getLogger("tarry.store")

_ALL = b"\0"
"""Ends the digits; a record without digits begins with it."""
_encode = msgspec.msgpack.Encoder().encode
_decode = msgpack_decoder(tuple[list[Count], list[int]]).decode


def record_of_new(jobs: Sequence[Job]) -> bytes:
    """The record of new jobs, without digits; empty if none of them counts."""
    if len(jobs) == 1 and not is_parked(jobs[0]) and jobs[0].state is not State.BLOCKED:
        return _record_of_one(count_of_new(jobs[0]))
    return _record(*count_new(jobs))


def record_of_changes(changes: Sequence[Change]) -> bytes:
    """The record of changes, without digits; empty if none of them counts."""
    if len(changes) == 1:
        job = changes[0].job
        return b"" if job is None else _record_of_one(count_of_change(changes[0], job))
    return _record(*count_changes(changes))


def record_of_valid(changes: Sequence[Change], valid: Sequence[bool]) -> bytes:
    """The record of those changes that were made; empty if none of them counts."""
    if all(valid):
        return record_of_changes(changes)
    return record_of_changes([change for change, good in zip(changes, valid, strict=True) if good])


def _record(counts: list[Count], which: list[int]) -> bytes:
    return _ALL + _encode((counts, which)) if counts else b""


# Jobs that are put or that end one at a time mostly count as one a moment ago.
@lru_cache(maxsize=1000)
def _record_of_one(count: Count) -> bytes:
    return _record([count], [1])


def read_record(record: bytes) -> Counter[Count]:
    """How often each count occurs in a record, of the jobs that count."""
    digits, _, text = record.partition(_ALL)
    try:
        counts, which = _decode(text)
        if digits:
            which = [place for place, digit in zip(which, digits, strict=True) if digit == ord("1")]
        return Counter({counts[place - 1]: number for place, number in Counter(which).items() if place})
    except (*UNREADABLE, IndexError) as error:
        # It cannot be read later either, and all that came after it would have to wait for it.
        log.error("a record of the history cannot be read and is left out: %s", error)
        return Counter()
