"""What was put, done, failed and so on, by minute, hour and day."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from tarry.door.access import Scope
from tarry.door.http.method import ApiCall, ApiMethod, api_method
from tarry.door.http.problem import RequestError
from tarry.store.history.reading import (
    MOST_POINTS,
    Figures,
    HistoryPoint,
    Period,
    TaskFigures,
    view,
)
from tarry.store.history.sums import DAYS, HOURS, LENGTH, MINUTES

_RESOLUTIONS = {"minute": MINUTES, "hour": HOURS, "day": DAYS}
_SHOWN = {MINUTES: 60, HOURS: 24, DAYS: 30}
_FAR = 253_402_300_799
"""The last second of the year 9999."""
Moment = Annotated[float, Meta(ge=0, le=_FAR)]


class HistoryQuery(Struct, frozen=True, forbid_unknown_fields=True, rename={"start": "from", "end": "to"}):
    """Which part of the history."""

    resolution: Literal["minute", "hour", "day"] = "hour"
    """Minutes are kept for a day, hours for 31 days, days for two years. Hours and days are those of UTC."""
    start: Moment | None = None
    """From when on, in seconds since the epoch; else the last 60 minutes, 24 hours or 30 days."""
    end: Moment | None = None
    """Until when, in seconds since the epoch; else until now."""
    queue: str | None = None
    """Only this queue."""
    task: str | None = None
    """Only this task."""


class HistoryAnswer(Struct, frozen=True, kw_only=True):
    """What was counted. A second or two old, while a keeper runs."""

    step: int
    """How long a point is, in seconds."""
    total: Figures
    """Of the whole time."""
    tasks: list[TaskFigures]
    """Of the whole time, by queue and task."""
    points: list[HistoryPoint]
    """By time, also where nothing was counted."""


@api_method("GET /v1/history", Scope.READ)
def get_history(call: ApiCall, query: HistoryQuery) -> HistoryAnswer:
    """Shows what was put, done, failed, dead, cancelled and expired, and how long jobs waited and ran.

    At most 1,500 points. Percentiles are exact to within an eighth."""
    store = call.service.client.store
    period = _period(query, call.service.client.clock.now())
    found = view(store.history, period, lambda queue, task: _wanted(call, query, queue, task))
    return HistoryAnswer(step=LENGTH[period.resolution], total=found.total, tasks=found.tasks, points=found.points)


def _wanted(call: ApiCall, query: HistoryQuery, queue: str, task: str) -> bool:
    return query.queue in (None, queue) and query.task in (None, task) and call.allows(queue)


def _period(query: HistoryQuery, now: int) -> Period:
    resolution = _RESOLUTIONS[query.resolution]
    usual = Period.last(resolution, _SHOWN[resolution], now)
    end = usual.end if query.end is None else int(query.end)
    start = max(0, end - (usual.end - usual.start)) if query.start is None else int(query.start)
    period = Period(resolution, start, end)
    if len(period.starts) > MOST_POINTS:
        said = f"query: from: {len(period.starts):,} points; at most {MOST_POINTS:,} at once: ask for less time"
        raise RequestError(said, "from", 422)
    return period


METHODS: tuple[ApiMethod, ...] = (get_history,)
