"""What is sampled once a minute: how many jobs of a queue are ready, and how old the oldest of them is.

A sample stands in the cells of the history, in place of a task: minute by minute for a day. An hour and a day keep the
last sample, and of each number the highest. The cell of no queue has all queues together; it is there for each minute
that was sampled, so a queue without a cell in that minute had no ready job.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tarry.store.rules.history.sums import LENGTH, OTHERS, Place, Sums, decode, encode

ALL_QUEUES = OTHERS
NO_TASK = OTHERS
"""The task of the cells that have samples. No task has an empty name."""
MOST_SAMPLED = 500
"""So many queues have samples of their own."""


class QueueSample(NamedTuple):
    """A queue, or all of them, at one moment."""

    ready: int
    oldest: int
    """For how long the oldest ready job has been due; microseconds."""


class Gauge(NamedTuple):
    """The samples of a minute, an hour or a day. Stored in this order: never change it."""

    ready: int
    """The last sample."""
    oldest: int
    ready_most: int
    """The highest one."""
    oldest_most: int


def gauge_of(sums: Sums) -> Gauge | None:
    """What was sampled; None: nothing."""
    return Gauge(*sums.gauge) if sums.gauge else None


def is_sampled(minute: Mapping[Place, bytes]) -> bool:
    """Whether a minute has been sampled. minute: its cells."""
    return any(not place.queue and not place.task and decode(cell).gauge for place, cell in minute.items())


def sampled_cells(samples: Mapping[str, QueueSample], second: int, there: Mapping[Place, bytes]) -> dict[Place, bytes]:
    """The cells that change with these samples, by queue. second: since the epoch. there: all cells of that minute,
    hour and day."""
    queues = {*sorted(samples)[:MOST_SAMPLED], *(place.queue for place in there if place.task == NO_TASK)} - {
        ALL_QUEUES
    }
    found = {queue: samples.get(queue, QueueSample(0, 0)) for queue in queues} | {ALL_QUEUES: _together(samples)}
    starts = [(resolution, second // length * length) for resolution, length in LENGTH.items()]
    places = [Place(*start, queue, NO_TASK) for start in starts for queue in found]
    changed: dict[Place, bytes] = {}
    for place in places:
        sums = decode(there[place]) if place in there else Sums()
        # A queue that had no ready job all the time needs no cell.
        if sums.gauge or any(found[place.queue]) or place.queue == ALL_QUEUES:
            changed[place] = encode(_with_sample(sums, found[place.queue]))
    return changed


def _with_sample(sums: Sums, sample: QueueSample) -> Sums:
    sums.gauge = [*followed_by(gauge_of(sums), Gauge(*sample, *sample))]
    return sums


def _together(samples: Mapping[str, QueueSample]) -> QueueSample:
    values = samples.values()
    return QueueSample(sum(one.ready for one in values), max((one.oldest for one in values), default=0))


def side_by_side(gauges: Iterable[Sequence[int]]) -> list[int]:
    """The gauges of several queues, or of several stores, as one: the highest of all is at most the sum of these."""
    found = [Gauge(*gauge) for gauge in gauges if gauge]
    if not found:
        return []
    return [
        sum(one.ready for one in found),
        max(one.oldest for one in found),
        sum(one.ready_most for one in found),
        max(one.oldest_most for one in found),
    ]


def followed_by(before: Gauge | None, now: Gauge) -> Gauge:
    """The gauges of two times, one after the other, as one."""
    if before is None:
        return now
    most = max(before.ready_most, now.ready_most), max(before.oldest_most, now.oldest_most)
    return Gauge(now.ready, now.oldest, *most)
