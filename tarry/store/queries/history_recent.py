"""The last minutes of a history: rates and times of each queue, and what each minute had, from one bounded read."""

from collections.abc import Mapping

from msgspec import Struct

from tarry.model.duration import SECOND
from tarry.model.history.counting import KINDS
from tarry.store.queries.history_reading import Percentiles, Period, percentiles
from tarry.store.rules.history.gauges import ALL_QUEUES, NO_TASK
from tarry.store.rules.history.sums import LENGTH, MINUTES, OTHERS, Place, Sums, decode

MINUTES_READ = 30
RATED = 5
"""Rates and times are those of so many minutes, with the one that is not over yet."""
_KEPT_UP = 3
"""A keeper samples each minute. In a minute in which all its tries fail, others sum up."""
_MINUTE = LENGTH[MINUTES]
_ENDS = ("done", "dead", "cancelled", "expired")


class MinuteFigures(Struct, frozen=True):
    """What was counted in a minute."""

    start: int
    """Seconds since the epoch."""
    put: int
    ended: int
    """Jobs that were done, dead, cancelled or expired."""
    failed: int
    """Attempts, also those of jobs that are dead after them."""


class RecentFigures(Struct, frozen=True):
    """The last minutes of a queue, or of all: numbers per minute, as in `MinuteFigures`."""

    put: float = 0.0
    ended: float = 0.0
    failed: float = 0.0
    waited: Percentiles | None = None
    """From when jobs were due to the start of the attempts that ended; null: none ended."""
    ran: Percentiles | None = None


class RecentHistory(Struct, frozen=True):
    """The last minutes: by queue, of all queues, and minute by minute."""

    queues: dict[str, RecentFigures]
    """Those of which anything was counted. What was counted of too many tasks to be kept by name is in `total` only."""
    total: RecentFigures
    minutes: list[MinuteFigures]


def recent_period(now: int) -> Period:
    """What `recent_figures` needs of the history. now: microseconds."""
    return Period.last(MINUTES, MINUTES_READ, now)


def recent_figures(found: Mapping[Place, bytes], now: int) -> RecentHistory | None:
    """The last minutes; None: no keeper sums up what was counted, so nobody knows. found: the cells of the period."""
    period = recent_period(now)
    cells = {place: decode(cell) for place, cell in found.items()}
    return _add_up(cells, period, now) if _is_kept_up(cells, period.end) else None


def _is_kept_up(cells: Mapping[Place, Sums], end: int) -> bool:
    starts = range(end - _KEPT_UP * _MINUTE, end, _MINUTE)
    return any(cells.get(Place(MINUTES, start, ALL_QUEUES, NO_TASK), Sums()).gauge for start in starts)


def _add_up(cells: Mapping[Place, Sums], period: Period, now: int) -> RecentHistory:
    rated = period.end - RATED * _MINUTE
    # A store that is quiet has samples: before the first cell nobody counted, and of the last minute a part is over.
    first = min((place.start for place in cells if place.start >= rated), default=rated)
    minutes = max(1, now // SECOND - first) / _MINUTE
    queues: dict[str, Sums] = {}
    starts = {start: Sums() for start in period.starts}
    for place, sums in cells.items():
        starts[place.start].add(sums)
        if place.start >= rated and sums.kinds:
            queues.setdefault(place.queue, Sums()).add(sums)
    total = Sums()
    for sums in queues.values():
        total.add(sums)
    return RecentHistory(
        {queue: _figures(sums, minutes) for queue, sums in queues.items() if queue != OTHERS},
        _figures(total, minutes),
        [MinuteFigures(start, *_numbers(sums)) for start, sums in starts.items()],
    )


def _figures(sums: Sums, minutes: float) -> RecentFigures:
    put, ended, failed = (number / minutes for number in _numbers(sums))
    return RecentFigures(put, ended, failed, percentiles(sums.waited), percentiles(sums.ran))


def _numbers(sums: Sums) -> tuple[int, int, int]:
    """Jobs that were put, that ended, and attempts that failed."""
    by_name = {name: sums.kinds.get(kind, 0) for kind, name in KINDS.items()}
    return by_name["put"], sum(by_name[name] for name in _ENDS), by_name["failed"] + by_name["dead"]
