"""The records of the journal: what one call of a store counted.

A store appends a record in the transaction of the call: one for the whole call, so that many jobs at once cost hardly
more than one, and only an append, so that calls side by side do not wait for each other. A record has, for each job of
the call, the place of its count; and if attempts failed, for each job the place of its error, too. A store that learns
only in the server which jobs count puts a text of 1 and 0 before it, one digit a job; without that text all count.
"""

import logging
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import Struct

from tarry.model.change import DEAD, FAILED, Change
from tarry.model.checks.decoders import msgpack_decoder
from tarry.model.checks.unreadable import UNREADABLE
from tarry.model.flow.own_queues import counted_queue
from tarry.model.history.counting import Count, count_changes, count_new, count_of_change, count_of_new
from tarry.model.job import Job, State, StoredTime
from tarry.model.moving import is_parked

if TYPE_CHECKING:
    from tarry.model.history.error_kind import ErrorKind

log = logging.getLogger("tarry.store")

MOST_KINDS = 50
"""So many kinds of errors of one task are told apart in one call, so that neither a record nor who reads many of them
grows large; the others are only counted, without any name."""
_OTHER = "", "", ""
_ALL = b"\0"
"""Ends the digits; a record without digits begins with it."""
_encode = msgspec.msgpack.Encoder().encode


class ErrorsSeen(Struct, frozen=True, array_like=True):
    """Errors of one kind in one call. The first four are those of `ErrorKind`."""

    fingerprint: str
    type: str
    message: str
    place: str
    queue: str
    task: str
    job: bytes
    """One that had it."""
    owner: str
    """The worker."""
    at: StoredTime
    """When the first one was seen; microseconds since the epoch."""


class _JournalRecord(Struct, array_like=True):
    counts: list[Count]
    which: list[int]
    errors: list[ErrorsSeen] = []
    which_errors: list[int] = []


class Recorded(NamedTuple):
    """What a record has: how often each count occurs, and each error."""

    counts: Counter[Count]
    errors: list[tuple[ErrorsSeen, int]]


_decode = msgpack_decoder(_JournalRecord).decode


def record_of_new(jobs: Sequence[Job]) -> bytes:
    """The record of new jobs, without digits; empty if none of them counts."""
    if len(jobs) == 1 and not is_parked(jobs[0]) and jobs[0].state is not State.BLOCKED:
        return _record_of_one(count_of_new(jobs[0]))
    return _record(*count_new(jobs))


def record_of_changes(changes: Sequence[Change]) -> bytes:
    """The record of changes, without digits; empty if none of them counts."""
    if len(changes) == 1:
        job = changes[0].job
        if job is None:
            return b""
        count = count_of_change(changes[0], job)
        return _record_with_errors([count], [1], changes) if _is_error(count) else _record_of_one(count)
    counts, which = count_changes(changes)
    return _record_with_errors(counts, which, changes) if any(map(_is_error, counts)) else _record(counts, which)


def record_of_valid(changes: Sequence[Change], valid: Sequence[bool]) -> bytes:
    """The record of those changes that were made; empty if none of them counts."""
    if all(valid):
        return record_of_changes(changes)
    return record_of_changes([change for change, good in zip(changes, valid, strict=True) if good])


def _record(counts: list[Count], which: list[int]) -> bytes:
    return _ALL + _encode((counts, which)) if counts else b""


def _is_error(count: Count) -> bool:
    return count[3] in (FAILED, DEAD)


def _error(kind: "ErrorKind", queue: str, job: Job, change: Change) -> ErrorsSeen:
    texts = kind.fingerprint, kind.type, kind.message, kind.place
    return ErrorsSeen(*texts, queue, job.task, job.id, job.owner, max(0, change.state_since))


def _record_with_errors(counts: list[Count], which: list[int], changes: Sequence[Change]) -> bytes:
    from tarry.model.history.error_kind import error_kind  # noqa: PLC0415 - most processes meet no error

    errors: dict[tuple[str, str, str], tuple[int, ErrorsSeen]] = {}
    # Of many jobs that fail alike the text is looked through once.
    kind_of = lru_cache(maxsize=100)(error_kind)
    which_errors: list[int] = []
    kinds: Counter[str] = Counter()
    for place, change in zip(which, changes, strict=True):
        job = change.job
        if not place or job is None or not change.note or not _is_error(counts[place - 1]):
            which_errors.append(0)
            continue
        kind, queue = kind_of(job.task, change.note), counted_queue(job.queue)
        error = _error(kind, queue, job, change)
        name = kind.fingerprint, queue, job.task
        if name not in errors and kinds[job.task] >= MOST_KINDS:
            name, error = _OTHER, ErrorsSeen("", "", "", "", "", "", b"", "", error.at)
        kinds[job.task] += name not in errors
        which_errors.append(errors.setdefault(name, (len(errors) + 1, error))[0])
    return _ALL + _encode((counts, which, [error for _, error in errors.values()], which_errors))


# Jobs that are put or that end one at a time mostly count as one a moment ago.
@lru_cache(maxsize=1000)
def _record_of_one(count: Count) -> bytes:
    return _record([count], [1])


def read_record(record: bytes) -> Recorded:
    """What a record has of the jobs that count."""
    digits, _, text = record.partition(_ALL)
    try:
        found = _decode(text)
        counts = {found.counts[place - 1]: number for place, number in _places(found.which, digits)}
        errors = [(found.errors[place - 1], number) for place, number in _places(found.which_errors, digits)]
        return Recorded(Counter(counts), errors)
    except (*UNREADABLE, IndexError) as error:
        # It cannot be read later either, and all that came after it would have to wait for it.
        log.error("a record of the history cannot be read and is left out: %s", error)
        return Recorded(Counter(), [])


def _places(which: Sequence[int], digits: bytes) -> list[tuple[int, int]]:
    """Each place but 0, and how often it occurs, of the jobs that count."""
    if digits and which:
        which = [place for place, digit in zip(which, digits, strict=True) if digit == ord("1")]
    return [(place, number) for place, number in Counter(which).items() if place]
