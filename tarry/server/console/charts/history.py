"""What the history says, as the charts and totals of a page."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from tarry.operate.history import is_wanted
from tarry.server.console.charts.deploys import DeployLine, deploy_marks, shown_deploys
from tarry.server.console.charts.drawing import (
    Chart,
    Histogram,
    Series,
    count_bars,
    count_lines,
    duration_lines,
    histogram,
)
from tarry.server.console.charts.ranges import TODAY, RangeName, shown_range, view_span
from tarry.server.history_snapshot import OLDEST
from tarry.server.http.method import ApiCall
from tarry.store.queries.deploys import last_began
from tarry.store.queries.history_reading import Figures, HistoryPoint, HistoryView, totals_of

_PERCENTILES = ("p50", "p95", "p99")
_MOST_STATUSES = 5
"""Statuses with a colour of their own: classes of hundreds."""


class HistoryCharts(Struct, frozen=True, kw_only=True):
    """The charts of a time, and what was counted in it and today."""

    name: RangeName
    names: Sequence[RangeName]
    step: int
    """Seconds of a point."""
    throughput: Chart
    failures: Chart
    waited: Chart
    ran: Chart
    statuses: Chart
    """Deliveries by the first digit of their HTTP status."""
    total: Figures
    today: Figures
    in_all: Figures | None
    """Of all time; None: a part of the store is away."""
    backlog: Chart | None
    """Ready jobs, the most of each point; None: of a task there are no samples."""
    oldest: Chart | None
    """How long the oldest of them had been due, the longest of each point."""
    waited_histogram: Histogram | None
    ran_histogram: Histogram | None


def history_charts(call: ApiCall, name: RangeName, queue: str | None = None, task: str | None = None) -> HistoryCharts:
    """The charts of that queue or task, or of all; StoreError."""
    deploys, now = shown_deploys(call), call.client.clock.now()
    shown = shown_range(name, last_began(deploys, now), now)
    found = view_span(call, shown.span, queue, task, shown.since)
    starts = _starts(found, shown.span.step)
    draw = partial(_add_marks, deploy_marks(deploys, starts))
    return HistoryCharts(
        name=shown.name,
        names=shown.names,
        step=shown.span.step,
        throughput=draw(count_lines(starts, list(_counts(found, "put", "done")))),
        failures=draw(count_bars(starts, list(_counts(found, "failed", "dead")))),
        waited=draw(duration_lines(starts, list(_durations(found, "waited")))),
        ran=draw(duration_lines(starts, list(_durations(found, "ran")))),
        statuses=draw(count_bars(starts, list(_statuses(found.points)))),
        total=found.total,
        today=view_span(call, TODAY, queue, task).total,
        in_all=_in_all(call, queue, task),
        backlog=None if task is not None else draw(count_lines(starts, [_backlog(found.points)])),
        oldest=None if task is not None else draw(duration_lines(starts, [_oldest(found.points)])),
        waited_histogram=histogram(found.durations.waited),
        ran_histogram=histogram(found.durations.ran),
    )


def _add_marks(marks: Mapping[int, DeployLine], chart: Chart) -> Chart:
    return replace(chart, marks=marks)


def _starts(found: HistoryView, step: int) -> range:
    return range(found.points[0].start, found.points[-1].start + step, step)


def _counts(found: HistoryView, *names: str) -> Iterator[Series]:
    for name in names:
        yield Series(name, [getattr(point, name) for point in found.points], getattr(found.total, name))


def _durations(found: HistoryView, name: str) -> Iterator[Series]:
    total = getattr(found.total, name)
    each = [getattr(point, name) for point in found.points]
    for share in _PERCENTILES:
        values = [None if one is None else getattr(one, share) for one in each]
        yield Series(share, values, None if total is None else getattr(total, share))


def _in_all(call: ApiCall, queue: str | None, task: str | None) -> Figures | None:
    cells = call.service.history.totals(OLDEST)
    return totals_of(cells, partial(is_wanted, queue, task, call.allows)).total if cells else None


def _backlog(points: Sequence[HistoryPoint]) -> Series:
    sampled = [point.ready for point in points if point.ready is not None]
    return Series("ready", [point.ready_most for point in points], sampled[-1] if sampled else None)


def _oldest(points: Sequence[HistoryPoint]) -> Series:
    sampled = [point.oldest for point in points if point.oldest is not None]
    # Where nothing was ready the line is broken.
    return Series("oldest", [point.oldest_most or None for point in points], sampled[-1] or None if sampled else None)


def _statuses(points: Sequence[HistoryPoint]) -> Iterator[Series]:
    for digit in range(1, _MOST_STATUSES + 1):
        values = [sum(count for status, count in point.statuses.items() if status // 100 == digit) for point in points]
        # Informational answers hardly ever end a delivery.
        if digit > 1 or any(values):
            yield Series(f"{digit}xx", values, sum(values))
