"""The history as people and programs see it: figures by time, and by queue and task."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from tarry.model.duration import SECOND
from tarry.model.history.buckets import LAST, lower_end, percentile
from tarry.model.history.counting import KINDS
from tarry.store.rules.history.gauges import ALL_QUEUES, NO_TASK, Gauge, followed_by, side_by_side
from tarry.store.rules.history.history import TAKEN_AT_ONCE, StoreHistory
from tarry.store.rules.history.sums import LENGTH, TOTALS, Place, Sums, decode
from tarry.store.rules.partial_result import made_of

MOST_POINTS = 1500
"""A series has so many minutes, hours or days at most."""
_ROUNDS = 20


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

    @property
    def left(self) -> int:
        """How many jobs ended."""
        return self.done + self.dead + self.cancelled + self.expired


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
    step: int = 0
    """How long a point is, in seconds: several minutes, hours or days; 0: one."""

    @classmethod
    def last(cls, resolution: int, count: int, now: int, step: int = 0) -> "Period":
        """The last so many points, with the one that is not over yet. now: microseconds."""
        length = step or LENGTH[resolution]
        end = (now // SECOND // length + 1) * length
        return cls(resolution, end - count * length, end, step)

    @property
    def length(self) -> int:
        """How long a point is, in seconds."""
        return self.step or LENGTH[self.resolution]

    def point_of(self, start: int) -> int:
        """The start of the point that has that second."""
        return start // self.length * self.length

    @property
    def starts(self) -> range:
        """The start of each point."""
        length = self.length
        return range(self.point_of(self.start), self.end, length) if self.start < self.end else range(0)


class Bucket(Struct, frozen=True):
    """How many attempts took from `least` seconds to less than `below`; null: or longer."""

    least: float
    below: float | None
    count: int


class Durations(Struct, frozen=True):
    """Histograms of what attempts that ended took, the shortest first: at most 142 buckets each, and none that is
    empty."""

    waited: list[Bucket]
    ran: list[Bucket]


class HistoryView(Struct, frozen=True):
    """The figures of a period: each point of time, each queue and task, and all together."""

    points: list[HistoryPoint]
    tasks: list[TaskFigures]
    total: Figures
    durations: Durations


def bring_up_to_date(history: StoreHistory, now: int) -> None:
    """Sums up what was counted by now, so that what is read is of this moment. Bounded: where nobody has done that for
    long, the rest is left to the keeper."""
    for _ in range(_ROUNDS):
        if history.sum_up(now) < TAKEN_AT_ONCE:
            return


def read_cells(history: StoreHistory, period: Period) -> Mapping[Place, bytes]:
    """The sums of a period, as the store has them; StoreError."""
    starts = period.starts
    return history.read(period.resolution, starts[0], period.end) if starts else {}


def view(
    history: StoreHistory,
    period: Period,
    wanted: Callable[[str, str], bool] = lambda queue, task: True,
    sampled: Callable[[str], bool] | None = lambda queue: True,
) -> HistoryView:
    """The figures of a period; StoreError. wanted, sampled: as for `view_of`."""
    return made_of(lambda: read_cells(history, period), lambda cells: view_of(cells, period, wanted, sampled))


def view_of(
    cells: Mapping[Place, bytes],
    period: Period,
    wanted: Callable[[str, str], bool],
    sampled: Callable[[str], bool] | None = None,
    has_tasks: bool = True,
) -> HistoryView:
    """The figures of a period whose sums are these. wanted: whether a queue and task are part of them; sampled: whether
    the samples of a queue are (of an empty name: whether those of all queues are, and then only these); None: none.
    has_tasks: whether each queue and task is to have its figures, too."""
    samples = {} if sampled is None else _samples(cells, period, sampled)
    points = {start: Sums() for start in period.starts}
    tasks: dict[tuple[str, str], Sums] = {}
    for place, sums in _counted_sums(cells, wanted):
        points[period.point_of(place.start)].add(sums)
        if has_tasks:
            tasks.setdefault((place.queue, place.task), Sums()).add(sums)
    total = _together(points.values())
    return HistoryView(
        [HistoryPoint(start=start, **_figures(sums), **samples.get(start, {})) for start, sums in points.items()],
        _task_figures(tasks),
        Figures(**_figures(total)),
        Durations(_buckets(total.waited), _buckets(total.ran)),
    )


def _counted_sums(cells: Mapping[Place, bytes], wanted: Callable[[str, str], bool]) -> Iterator[tuple[Place, Sums]]:
    """What was counted of these queues and tasks; cells that only have samples are left out."""
    # One at a time: a view of a day has a hundred thousand of them.
    for place, cell in cells.items():
        if wanted(place.queue, place.task):
            sums = decode(cell)
            if place.task or sums.kinds:
                yield place, sums


def _together(sums: Iterable[Sums]) -> Sums:
    total = Sums()
    for each in sums:
        total.add(each)
    return total


def _samples(cells: Mapping[Place, bytes], period: Period, sampled: Callable[[str], bool]) -> dict[int, dict[str, Any]]:
    """What points of time have of samples, by their start."""
    all_of_them = sampled(ALL_QUEUES)
    found: dict[int, list[list[int]]] = {}
    for place, cell in cells.items():
        if place.task == NO_TASK and (gauge := decode(cell).gauge):
            # A queue without a cell at a time that was sampled had no ready job.
            gauges = found.setdefault(place.start, [])
            if place.queue == ALL_QUEUES if all_of_them else place.queue != ALL_QUEUES and sampled(place.queue):
                gauges.append(gauge)
    return {start: _sample_figures(gauge) for start, gauge in _gauge_of_each(period, found).items()}


def _gauge_of_each(period: Period, found: Mapping[int, list[list[int]]]) -> dict[int, Gauge]:
    """What was sampled at each point of the period. found: the gauges of queues, by time."""
    points: dict[int, Gauge] = {}
    for start, gauges in sorted(found.items()):
        point, gauge = period.point_of(start), Gauge(*(side_by_side(gauges) or (0,) * 4))
        points[point] = followed_by(points.get(point), gauge)
    return points


def _sample_figures(gauge: Gauge) -> dict[str, Any]:
    oldest = {"oldest": gauge.oldest / SECOND, "oldest_most": gauge.oldest_most / SECOND}
    return {"ready": gauge.ready, "ready_most": gauge.ready_most, **oldest}


def totals(history: StoreHistory, wanted: Callable[[str, str], bool] = lambda queue, task: True) -> Totals:
    """The figures of all time; StoreError. While no shard is away, none of their counts ever goes down. wanted: as for
    `view`."""
    return made_of(lambda: history.read(TOTALS, 0, 1), lambda cells: totals_of(cells, wanted))


def totals_of(cells: Mapping[Place, bytes], wanted: Callable[[str, str], bool]) -> Totals:
    """The figures of sums. wanted: whether a queue and task are part of them."""
    tasks: dict[tuple[str, str], Sums] = {}
    for place, sums in _counted_sums(cells, wanted):
        tasks.setdefault((place.queue, place.task), Sums()).add(sums)
    return Totals(_task_figures(tasks), Figures(**_figures(_together(tasks.values()))))


def _task_figures(tasks: Mapping[tuple[str, str], Sums]) -> list[TaskFigures]:
    return [TaskFigures(queue=queue, task=task, **_figures(sums)) for (queue, task), sums in sorted(tasks.items())]


def figures_of_each(
    cells: Mapping[Place, bytes], wanted: Callable[[str, str], bool], name: Callable[[Place], str]
) -> dict[str, Figures]:
    """The figures of each task, or each queue. name: which of them a place is part of."""
    sums: dict[str, Sums] = {}
    for place, each in _counted_sums(cells, wanted):
        sums.setdefault(name(place), Sums()).add(each)
    return {named: Figures(**_figures(all_of_it)) for named, all_of_it in sums.items()}


def ended_of_each(
    cells: Mapping[Place, bytes], period: Period, wanted: Callable[[str, str], bool]
) -> dict[str, list[int]]:
    """How many attempts of each task ended, at each point of the period."""
    places = {start: place for place, start in enumerate(period.starts)}
    found: dict[str, list[int]] = {}
    for place, sums in _counted_sums(cells, wanted):
        ended = found.setdefault(place.task, [0] * len(places))
        ended[places[period.point_of(place.start)]] += sum(sums.ran.values())
    return found


def _buckets(numbers: Mapping[int, int]) -> list[Bucket]:
    return [
        Bucket(lower_end(bucket) / SECOND, None if bucket >= LAST else lower_end(bucket + 1) / SECOND, number)
        for bucket, number in sorted(numbers.items())
    ]


def _figures(sums: Sums) -> dict[str, Any]:
    kinds = {KINDS[kind]: number for kind, number in sums.kinds.items() if kind in KINDS}
    return {**kinds, "waited": percentiles(sums.waited), "ran": percentiles(sums.ran), "statuses": sums.statuses}


def percentiles(buckets: Mapping[int, int]) -> Percentiles | None:
    """Of durations in buckets; None: there are none."""
    if not buckets:
        return None
    return Percentiles(*((percentile(buckets, share) or 0) / SECOND for share in (0.5, 0.95, 0.99)))
