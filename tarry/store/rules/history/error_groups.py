"""Errors in groups: what a history keeps of each kind of error, and for how long.

A group stands in the cells of the history, by queue and fingerprint: so who may see some queues only sees their errors.
Its counts are as exact as all others: what a call counts of errors is appended with the rest of its record.
"""

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from tarry.model.checks.decoders import msgpack_decoder
from tarry.model.checks.unreadable import UNREADABLE
from tarry.model.job import StoredCount, StoredTime
from tarry.store.rules.history.sums import ERRORS, OTHERS, Place

log = logging.getLogger("tarry.store")

MOST_TASKS = 20
"""Tasks of a group that are counted by name."""
_MOST_HOURS, _MOST_DAYS = 48, 31
_Counts = Annotated[dict[StoredCount, StoredCount], Meta(max_length=1000)]


class ErrorGroup(Struct, array_like=True):
    """The errors of one kind in one queue. Times are microseconds since the epoch."""

    type: str = ""
    """These three as `ErrorKind` has them."""
    message: str = ""
    place: str = ""
    count: StoredCount = 0
    first: StoredTime = 0
    last: StoredTime = 0
    began: str = ""
    """The worker in which the first one happened."""
    job: bytes = b""
    """The id of a job that had it lately."""
    tasks: Annotated[dict[str, StoredCount], Meta(max_length=1000)] = {}
    hours: _Counts = {}
    """How many in each of the last hours, by its start in seconds; and days."""
    days: _Counts = {}
    is_muted: bool = False
    """Somebody wants no alerts about it."""
    is_muted_in_all: bool = False
    """That was somebody who may do so in all queues: it is so too in those where the error is not seen yet."""

    def add(self, other: "ErrorGroup") -> None:
        """Adds what was counted of the same kind elsewhere, or later."""
        if other.first and (not self.first or other.first < self.first):
            self.first, self.began = other.first, other.began
        if other.last >= self.last:
            self.last, self.job = other.last, other.job
        self.count += other.count
        self.is_muted = self.is_muted or other.is_muted
        self.is_muted_in_all = self.is_muted_in_all or other.is_muted_in_all
        self.tasks = _with_most_tasks(Counter(self.tasks) + Counter(other.tasks))
        self.hours = _newest(Counter(self.hours) + Counter(other.hours), _MOST_HOURS)
        self.days = _newest(Counter(self.days) + Counter(other.days), _MOST_DAYS)


def _newest(counts: Mapping[int, int], most: int) -> dict[int, int]:
    return dict(sorted(counts.items())[-most:])


def _with_most_tasks(counts: Mapping[str, int]) -> dict[str, int]:
    if len(counts) <= MOST_TASKS:
        return dict(counts)
    ordered = sorted(((number, task) for task, number in counts.items() if task), reverse=True)
    named = {task: number for number, task in ordered[: MOST_TASKS - 1]}
    return named | {OTHERS: sum(counts.values()) - sum(named.values())}


encode_group = msgspec.msgpack.Encoder().encode
_decode = msgpack_decoder(ErrorGroup).decode


def decode_group(cell: bytes) -> ErrorGroup:
    """The group of a cell; an empty one if it cannot be read."""
    try:
        return _decode(cell)
    except UNREADABLE as error:
        # Else nothing could be summed up any more, and the journal would grow for ever.
        log.error("a group of errors cannot be read and begins anew: %s", error)
        return ErrorGroup()


def sum_groups(groups: Iterable[ErrorGroup]) -> ErrorGroup:
    """What several stores have of one kind in one queue."""
    first, *others = groups
    for other in others:
        first.add(other)
    return first


def sum_cells(cells: Iterable[bytes]) -> bytes:
    """The same of their cells."""
    return encode_group(sum_groups(map(decode_group, cells)))


def sum_queues(groups: Collection[ErrorGroup]) -> ErrorGroup:
    """What several queues have of one kind: it is muted if it is so in each, or for all."""
    is_muted = all(group.is_muted for group in groups) or any(group.is_muted_in_all for group in groups)
    total = sum_groups(groups)
    total.is_muted = is_muted
    return total


def group_place(queue: str, fingerprint: str) -> Place:
    """Where a group is kept."""
    return Place(ERRORS, 0, queue, fingerprint)
