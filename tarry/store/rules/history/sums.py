"""The sums that a history keeps: by minute, hour and day, and of all time, by queue and task."""

import logging
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Self

import msgspec
from msgspec import Struct

from tarry.model.checks.decoders import msgpack_decoder
from tarry.model.checks.unreadable import UNREADABLE
from tarry.model.duration import SECOND
from tarry.model.history.counting import NO_ATTEMPT, Count
from tarry.model.job import StoredCount
from tarry.store.rules.history.journal import Recorded

log = logging.getLogger("tarry.store")

MINUTES, HOURS, DAYS, TOTALS = range(4)
"""Resolutions. Never change a number: every store has them."""
ERRORS = 4
"""In place of a resolution: groups of errors (`error_groups`), whose start is 0."""
LENGTH = {MINUTES: 60, HOURS: 3600, DAYS: 86400}
"""Seconds. Hours and days are those of UTC."""
KEPT = {MINUTES: 86400, HOURS: 31 * 86400, DAYS: 731 * 86400}
"""For how many seconds sums are kept; TOTALS, of all time, for ever: they never go down. Their start is 0."""
# Bounds what a history takes: names of tasks come from outside, too, through the doors.
MOST_NAMES = 500
"""Of so many pairs of queue and task there are sums of their own in a minute, an hour, a day, or of all time."""
GAUGES = 4
"""How many numbers a sample has: see `gauges.Gauge`."""
OTHERS = ""
"""The queue and the task of the sums of all further pairs."""


class Place(NamedTuple):
    """Of what a history keeps a sum. start: of the minute, hour or day, in seconds since the epoch; 0 for TOTALS."""

    resolution: int
    start: int
    queue: str
    task: str


class Sums(Struct, array_like=True):
    """What was counted: by `counting.KINDS`, by bucket of the time waited and of the time run, by HTTP status."""

    kinds: dict[int, StoredCount] = {}
    waited: dict[int, StoredCount] = {}
    ran: dict[int, StoredCount] = {}
    statuses: dict[int, StoredCount] = {}
    gauge: list[StoredCount] = []
    """What was sampled, as `gauges.Gauge`; empty: nothing. It is no count: `add` leaves it alone."""

    def count(self, counted: Count, number: int) -> None:
        """Adds this count so many times."""
        _, _, _, kind, waited, ran, status = counted
        _add(self.kinds, kind, number)
        if waited != NO_ATTEMPT:
            _add(self.waited, waited, number)
            _add(self.ran, ran, number)
        if status:
            _add(self.statuses, status, number)

    def add(self, other: Self) -> None:
        """Adds other sums."""
        for mine, theirs in (
            (self.kinds, other.kinds),
            (self.waited, other.waited),
            (self.ran, other.ran),
            (self.statuses, other.statuses),
        ):
            for name, number in theirs.items():
                # No call for each: views add millions of them.
                mine[name] = mine.get(name, 0) + number


def _add(numbers: dict[int, int], name: int, number: int) -> None:
    numbers[name] = numbers.get(name, 0) + number


encode = msgspec.msgpack.Encoder().encode
_decode = msgpack_decoder(Sums).decode


def decode(cell: bytes) -> Sums:
    """The sums of a cell; none if it cannot be read."""
    try:
        sums = _decode(cell)
    except UNREADABLE as error:
        # Else nothing could be summed up any more, and the journal would grow for ever.
        log.error("sums of the history cannot be read and begin anew: %s", error)
        return Sums()
    sums.gauge = sums.gauge[:GAUGES] if len(sums.gauge) >= GAUGES else []
    return sums


def add_up(records: Iterable[Recorded], now: int) -> dict[Place, Sums]:
    """The sums of these records, at each resolution and of all time. now: microseconds; what a wrong clock put later
    counts as now."""
    latest = now // SECOND
    sums: dict[Place, Sums] = {}
    for record in records:
        for count, number in record.counts.items():
            second = max(0, min(count[0], latest))
            starts = {resolution: second // length * length for resolution, length in LENGTH.items()}
            for resolution, start in (starts | {TOTALS: 0}).items():
                sums.setdefault(Place(resolution, start, count[1], count[2]), Sums()).count(count, number)
    return sums


def merge(added: Mapping[Place, Sums], there: Mapping[Place, bytes]) -> dict[Place, bytes]:
    """The cells that change if these sums are added to those that are there, of the same starts."""
    sums = {place: decode(cell) for place, cell in there.items()}
    names: dict[tuple[int, int], int] = {}
    for place in there:
        if not place.task:
            # What was sampled of a queue, or the others.
            continue
        names[place[:2]] = names.get(place[:2], 0) + 1
    changed: set[Place] = set()
    for place, more in sorted(added.items()):
        target = place
        if place not in sums and names.get(place[:2], 0) >= MOST_NAMES:
            target = place._replace(queue=OTHERS, task=OTHERS)
        elif place not in sums:
            names[place[:2]] = names.get(place[:2], 0) + 1
        sums.setdefault(target, Sums()).add(more)
        changed.add(target)
    return {place: encode(sums[place]) for place in changed}
