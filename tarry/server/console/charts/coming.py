"""What comes due, as a chart; and when queues are empty."""

from collections.abc import Mapping

from msgspec import Struct

from tarry.client.queue_records import RATE_MINUTES, QueueRecord, seconds_to_drain
from tarry.operate.history import HorizonQuery, get_horizon
from tarry.server.console.charts.drawing import Chart, Series, count_bars
from tarry.server.console.charts.ranges import RANGES, read_span
from tarry.server.http.method import ApiCall
from tarry.store.queries.history_reading import Figures
from tarry.store.rules.partial_result import reachable_part
from tarry.store.rules.waiting import CappedCount

_HOUR = 3600


class ComingChart(Struct, frozen=True):
    """What comes due in the next 24 hours."""

    chart: Chart
    overdue: CappedCount
    within: CappedCount
    """In these hours."""
    later: CappedCount


def coming_chart(call: ApiCall, queue: str | None = None) -> ComingChart:
    """What comes due of that queue, or of all; StoreError."""
    found = reachable_part(lambda: get_horizon.handler(call, HorizonQuery(queue)))
    start = int(found.now)
    capped = frozenset(place for place, hour in enumerate(found.hours) if hour.at_least)
    due = Series("due", [hour.count for hour in found.hours], at_least=capped)
    # Hours from now on: none of them has begun.
    chart = count_bars(range(start, start + len(found.hours) * _HOUR, _HOUR), [due], is_last_open=False)
    within = CappedCount(sum(hour.count for hour in found.hours), bool(capped))
    return ComingChart(chart, found.overdue, within, found.later)


def drain_times(call: ApiCall, queues: list[QueueRecord]) -> Mapping[str, float | None]:
    """In how many seconds each of the queues has no ready job any more, as `GET /v1/queues/{queue}` predicts it."""
    read = read_span(call, RANGES["15m"])
    # The last minute is not over yet.
    minutes = read.period.starts[-1 - RATE_MINUTES : -1]
    figures, none = read.figures_of_queues(call.allows, minutes), Figures()
    return {
        one.queue: seconds_to_drain(
            one.ready, figures.get(one.queue, none).put, figures.get(one.queue, none).left, RATE_MINUTES * 60
        )
        for one in queues
    }
