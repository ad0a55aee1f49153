"""The history as people and programs see it: figures by time, and by queue and task."""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from tarry.model.history.buckets import percentile
from tarry.model.history.counting import KINDS
from tarry.store.history.gauges import ALL_QUEUES, Gauge, side_by_side
from tarry.store.history.history import TAKEN_AT_ONCE, StoreHistory
from tarry.store.history.sums import LENGTH, TOTALS, Place, Sums, decode

MOST_POINTS = 1500
"""A series has so many minutes, hours or days at most."""
_ROUNDS = 20
_SECOND = 1_000_000


class Percentiles(Struct, frozen=True):
    """Seconds, each to within an eighth (12.5 %)."""

    p50: float
    p95: float
    p99: float


class Figures(Struct, frozen=True, kw_only=True):
    """What was counted."""

    put: int = 0
    """New jobs."""
    done: int = 0
    failed: int = 0
    """Attempts that failed and after which their job comes again."""
    dead: int = 0
    cancelled: int = 0
    expired: int = 0
    """Jobs that could not start in time."""
    waited: Percentiles | None = None
    """From when jobs were due to the start of the attempts that ended; null: none ended."""
    ran: Percentiles | None = None
    """How long these attempts ran."""
    statuses: dict[int, int] = {}
    """How many deliveries were answered with which HTTP status."""


class HistoryPoint(Figures, frozen=True, kw_only=True):
    """The figures of a minute, an hour or a day."""

    start: int
    """Seconds since the epoch."""
    ready: int | None = None
    """How many jobs were ready at the last sample, one of which is taken each minute; up to 10,000 are counted of each
    queue and band. Null: none was taken, or only a task is asked for."""
    ready_most: int | None = None
    """The same at the highest sample; of several queues the sum of their highest ones, if they are not all queues."""
    oldest: float | None = None
    """How long the oldest ready job had been due then, in seconds. Jobs of paused queues do not count."""
    oldest_most: float | None = None


class TaskFigures(Figures, frozen=True, kw_only=True):
    """The figures of a queue and task."""

    queue: str
    """Empty, with an empty task: all those that were too many to be counted by name."""
    task: str


class Totals(Struct, frozen=True):
    """The figures of all time: each queue and task, and all together."""

    tasks: list[TaskFigures]
    total: Figures


class Period(Struct, frozen=True):
    """From when to when, in seconds since the epoch, and in which resolution (`sums.LENGTH`)."""

    resolution: int
    start: int
    end: int

    @classmethod
    def last(cls, resolution: int, count: int, now: int) -> "Period":
        """The last so many minutes, hours or days, with the one that is not over yet. now: microseconds."""
        length = LENGTH[resolution]
        end = (now // _SECOND // length + 1) * length
        return cls(resolution, end - count * length, end)

    @property
    def starts(self) -> range:
        """The start of each minute, hour or day."""
        length = LENGTH[self.resolution]
        return range(self.start // length * length, self.end, length) if self.start < self.end else range(0)


class HistoryView(Struct, frozen=True):
    """The figures of a period: each point of time, each queue and task, and all together."""

    points: list[HistoryPoint]
    tasks: list[TaskFigures]
    total: Figures


def bring_up_to_date(history: StoreHistory, now: int) -> None:
    """Sums up what was counted by now, so that what is read is of this moment. Bounded: where nobody has done that for
    long, the rest is left to the keeper."""
    for _ in range(_ROUNDS):
        if history.sum_up(now) < TAKEN_AT_ONCE:
            return


def view(
    history: StoreHistory,
    period: Period,
    wanted: Callable[[str, str], bool] = lambda queue, task: True,
    sampled: Callable[[str], bool] | None = lambda queue: True,
) -> HistoryView:
    """The figures of a period. wanted: whether a queue and task are part of them; sampled: whether the samples of a
    queue are (of an empty name: whether those of all queues are, and then only these); None: no samples are."""
    length = LENGTH[period.resolution]
    cells = history.read(period.resolution, period.start // length * length, period.end) if period.starts else {}
    decoded = {place: decode(cell) for place, cell in cells.items()}
    found = {place: sums for place, sums in decoded.items() if _counts(place, sums) and wanted(place.queue, place.task)}
    samples = {} if sampled is None else _samples(decoded, sampled)
    points = {start: Sums() for start in period.starts}
    for place, sums in found.items():
        points[place.start].add(sums)
    all_of_it = _totals(found)
    return HistoryView(
        [HistoryPoint(start=start, **_figures(sums), **samples.get(start, {})) for start, sums in points.items()],
        all_of_it.tasks,
        all_of_it.total,
    )


def _counts(place: Place, sums: Sums) -> bool:
    """Whether it is a cell of what was counted."""
    return bool(place.task or sums.kinds)


def _samples(decoded: Mapping[Place, Sums], sampled: Callable[[str], bool]) -> dict[int, dict[str, Any]]:
    """What points of time have of samples, by their start."""
    all_of_them = sampled(ALL_QUEUES)
    found: dict[int, list[list[int]]] = {}
    for place, sums in decoded.items():
        if not place.task and sums.gauge:
            gauges = found.setdefault(place.start, [])
            if place.queue == ALL_QUEUES if all_of_them else place.queue != ALL_QUEUES and sampled(place.queue):
                gauges.append(sums.gauge)
    return {start: _sample_figures(Gauge(*(side_by_side(gauges) or (0,) * 4))) for start, gauges in found.items()}


def _sample_figures(gauge: Gauge) -> dict[str, Any]:
    oldest = {"oldest": gauge.oldest / _SECOND, "oldest_most": gauge.oldest_most / _SECOND}
    return {"ready": gauge.ready, "ready_most": gauge.ready_most, **oldest}


def totals(history: StoreHistory, wanted: Callable[[str, str], bool] = lambda queue, task: True) -> Totals:
    """The figures of all time. While no shard is away, none of their counts ever goes down. wanted: as for `view`."""
    cells = history.read(TOTALS, 0, 1)
    return _totals({place: decode(cell) for place, cell in cells.items() if wanted(place.queue, place.task)})


def _totals(found: Mapping[Place, Sums]) -> Totals:
    tasks: dict[tuple[str, str], Sums] = {}
    total = Sums()
    for place, sums in found.items():
        for target in (tasks.setdefault((place.queue, place.task), Sums()), total):
            target.add(sums)
    figures = [TaskFigures(queue=queue, task=task, **_figures(sums)) for (queue, task), sums in sorted(tasks.items())]
    return Totals(figures, Figures(**_figures(total)))


def _figures(sums: Sums) -> dict[str, Any]:
    kinds = {KINDS[kind]: number for kind, number in sums.kinds.items() if kind in KINDS}
    return {**kinds, "waited": _percentiles(sums.waited), "ran": _percentiles(sums.ran), "statuses": sums.statuses}


def _percentiles(buckets: Mapping[int, int]) -> Percentiles | None:
    if not buckets:
        return None
    return Percentiles(*((percentile(buckets, share) or 0) / _SECOND for share in (0.5, 0.95, 0.99)))
