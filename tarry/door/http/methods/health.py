"""Methods for those who watch over servers and work: is it alive, is it ready, what does it do, what has it done?"""

import logging
from typing import Annotated, Literal

from msgspec import Meta, Struct
from prometheus_client.exposition import choose_encoder
from starlette.responses import PlainTextResponse, Response

from tarry.door.figures import Scrape
from tarry.door.http.method import ApiCall, ApiMethod, api_method
from tarry.door.http.problem import RequestError
from tarry.door.identity.access import Scope
from tarry.errors import StoreError
from tarry.store.history.reading import (
    MOST_POINTS,
    Figures,
    HistoryPoint,
    Period,
    TaskFigures,
    view,
)
from tarry.store.history.sums import DAYS, HOURS, LENGTH, MINUTES

log = logging.getLogger("tarry.server")

PLAIN = "text/plain"
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


@api_method("GET /healthz", None, tag="health", media_type=PLAIN)
async def healthz(call: ApiCall) -> Response:
    """Says that the process lives, whatever the store does."""
    return PlainTextResponse("ok\n")


@api_method("GET /readyz", None, tag="health", media_type=PLAIN)
async def readyz(call: ApiCall) -> Response:
    """Says whether requests can be served: 503 while the store does not answer within a second, or the server ends."""
    service = call.service
    ending = "this server is ending" if service.is_draining or service.is_closed else ""
    trouble = ending or await service.probe.trouble()
    return PlainTextResponse(f"{trouble or 'ok'}\n", 503 if trouble else 200)


@api_method("GET /metrics", Scope.READ, tag="health", media_type=PLAIN)
def metrics(call: ApiCall) -> Response:
    """Gives figures to Prometheus, as OpenMetrics where the header Accept asks for it.

    The figures of the store are at most five seconds old. Those of the server are of the process that answers: the
    label `process` tells processes apart."""
    encode, media_type = choose_encoder(call.request.headers.get("accept", ""))
    try:
        look = call.service.look.read()
    except StoreError as error:
        # The figures of the server are wanted then more than ever.
        log.warning("/metrics is without the figures of the store: %s", error)
        look = None
    return Response(encode(Scrape(call.service.figures, look, call.allows)), media_type=media_type)


METHODS: tuple[ApiMethod, ...] = (healthz, readyz, metrics, get_history)
