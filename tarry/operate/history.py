"""Methods about what was done and what is to come: the history, its totals, and what comes due."""

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Annotated, Literal

from msgspec import Meta, Struct

from tarry.errors import PartlyUnavailable
from tarry.model.duration import SECOND
from tarry.model.quantity import Short
from tarry.operate.access import Scope
from tarry.operate.call import MethodCall
from tarry.operate.method import method, methods_of
from tarry.operate.problem import RequestError, checking
from tarry.store.queries.deploy_records import DeployRecord, deploys_within
from tarry.store.queries.deploys import SINCE_DEPLOY, Deploy, last_began, read_deploys
from tarry.store.queries.due_horizon import DueHorizon, due_horizon
from tarry.store.queries.history_reading import (
    MOST_POINTS,
    Durations,
    Figures,
    HistoryPoint,
    HistoryView,
    Period,
    TaskFigures,
    totals,
    view,
)
from tarry.store.rules.history.sums import DAYS, HOURS, KEPT, LENGTH, MINUTES
from tarry.store.rules.partial_result import made_of, partial_result
from tarry.tasks.arguments.options import Name

_RESOLUTIONS = {"minute": MINUTES, "hour": HOURS, "day": DAYS}
_SHOWN = {MINUTES: 60, HOURS: 24, DAYS: 30}
_FROM_TO = {"start": "from", "end": "to"}
_FAR = 253_402_300_799
"""The last second of the year 9999."""
UnixTime = Annotated[float, Meta(ge=0, le=_FAR)]
StepSeconds = Annotated[int, Meta(ge=60, le=366 * 86400)]


class HistoryQuery(Struct, frozen=True, forbid_unknown_fields=True, rename=_FROM_TO):
    """Which part of the history."""

    resolution: Literal["minute", "hour", "day"] | None = None
    """Minutes are kept for a day, hours for 31 days, days for two years. Hours and days are those of UTC. Left out:
    hours; with `since` the finest that are kept for so long."""
    start: UnixTime | None = None
    """From when on, in seconds since the epoch; else the last 60 minutes, 24 hours or 30 days."""
    since: float | Short | None = None
    """In place of `from`: how long ago ("2h", or seconds), a time (2026-11-24T16:00Z), or `deploy`: since the last
    deploy began. The minute, hour or day that it falls into is counted whole."""
    end: UnixTime | None = None
    """Until when, in seconds since the epoch; else until now."""
    queue: Name | None = None
    """Only this queue."""
    task: Name | None = None
    """Only this task."""
    step: StepSeconds | None = None
    """How long a point is to be, in seconds: several minutes, hours or days; else one."""
    durations: bool = False
    """Whether the answer is to have histograms of the times waited and run."""


class HistoryAnswer(Struct, frozen=True, kw_only=True, rename=_FROM_TO):
    """What was counted. A second or two old, while a keeper runs."""

    start: int
    """From when on, in seconds since the epoch."""
    end: int
    """Until when."""
    step: int
    """How long a point is, in seconds."""
    total: Figures
    """Of the whole time."""
    tasks: list[TaskFigures]
    """Of the whole time, by queue and task."""
    points: list[HistoryPoint]
    """By time, also where nothing was counted."""
    durations: Durations | None = None
    """Of the whole time; null: they were not asked for."""
    deploys: list[DeployRecord] = []
    """Those that fell into it, the oldest first; none for who may see some queues only."""


class WorkQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which jobs are meant."""

    queue: Name | None = None
    """Only this queue."""
    task: Name | None = None
    """Only this task."""


class PeriodTotals(Struct, frozen=True):
    """What was counted in a time."""

    total: Figures
    tasks: list[TaskFigures]
    """By queue and task."""


class TotalsAnswer(Struct, frozen=True):
    """What was counted today and in all. A second or two old, while a keeper runs."""

    day: int
    """When today began, a day of UTC; seconds since the epoch."""
    today: PeriodTotals
    ever: PeriodTotals
    """Since the store began to count. These counts never go down."""


class HorizonQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which jobs are meant."""

    queue: Name | None = None
    """Only this queue."""


@method("GET /v1/history", Scope.READ, tag="history", command="stats")
def get_history(call: MethodCall, query: HistoryQuery) -> HistoryAnswer:
    """Shows what was put, done, failed, dead, cancelled and expired, and how long jobs waited and ran.

    At most 1,500 points. Percentiles are exact to within an eighth."""
    store = call.client.store
    deploys = seen_deploys(call, read_deploys(store))
    period = _period(query, call.client.clock.now(), deploys)
    sampled = None if query.task is not None else lambda queue: is_sample_of(query.queue, queue, call.allows)
    within = deploys_within(deploys, period.point_of(period.start), period.end)
    return made_of(
        lambda: view(store.history, period, _work_filter(call, query), sampled), partial(_answer, query, period, within)
    )


@method("GET /v1/totals", Scope.READ, tag="history", command="stats --total")
def get_totals(call: MethodCall, query: WorkQuery) -> TotalsAnswer:
    """Shows what was put, done, failed and dead today and in all, by queue and task."""
    history, day = call.client.store.history, Period.last(DAYS, 1, call.client.clock.now())
    today, away = partial_result(lambda: view(history, day, _work_filter(call, query)))
    ever, also_away = partial_result(lambda: totals(history, _work_filter(call, query)))
    found = TotalsAnswer(day.start, PeriodTotals(today.total, today.tasks), PeriodTotals(ever.total, ever.tasks))
    if error := away or also_away:
        raise PartlyUnavailable(str(error), found)
    return found


@method("GET /v1/horizon", Scope.READ, tag="history")
def get_horizon(call: MethodCall, query: HorizonQuery) -> DueHorizon:
    """Counts the scheduled jobs that come due in the next 24 hours, by hour, and later.

    Counts up to 10,000 jobs an hour; of one queue it looks at up to 1,000 jobs an hour, of whatever queues. A count
    that stopped there has `at_least`."""
    client = call.client
    return due_horizon(client.store.waiting, client.clock.now(), _queues(call, query.queue))


def seen_deploys(call: MethodCall, deploys: Sequence[Deploy]) -> Sequence[Deploy]:
    """Those that the caller may see: hosts serve all queues."""
    return deploys if call.allows("*") else ()


def _answer(query: HistoryQuery, period: Period, deploys: list[DeployRecord], found: HistoryView) -> HistoryAnswer:
    return HistoryAnswer(
        start=period.start,
        end=period.end,
        step=period.length,
        total=found.total,
        tasks=found.tasks,
        points=found.points,
        durations=found.durations if query.durations else None,
        deploys=deploys,
    )


def _queues(call: MethodCall, queue: str | None) -> Collection[str] | None:
    """The queues that are meant, of those that the caller may see; None: all there are."""
    if queue is not None:
        call.check(queue)
        return [queue]
    return None if call.allows("*") else {one.queue for one in call.look().counts if call.allows(one.queue)}


def _work_filter(call: MethodCall, query: HistoryQuery | WorkQuery) -> Callable[[str, str], bool]:
    return partial(is_wanted, query.queue, query.task, call.allows)


def _period(query: HistoryQuery, now: int, deploys: Sequence[Deploy]) -> Period:
    begin = query.start if query.since is None else _since(query, now, deploys)
    name = query.resolution or ("hour" if query.since is None else _finest(begin or 0, now))
    resolution = _RESOLUTIONS[name]
    usual = Period.last(resolution, _SHOWN[resolution], now)
    end = usual.end if query.end is None else int(query.end)
    start = max(0, end - (usual.end - usual.start)) if begin is None else int(begin)
    step = query.step or LENGTH[resolution]
    if step % LENGTH[resolution]:
        raise RequestError(f"query: step: not a multiple of {LENGTH[resolution]} s, one {name}", "step", 422)
    period = Period(resolution, start, end, step)
    if len(period.starts) > MOST_POINTS:
        field = "from" if query.since is None else "since"
        said = f"query: {field}: {len(period.starts):,} points; at most {MOST_POINTS:,} at once: ask for less time"
        raise RequestError(said, field, 422)
    return period


def _since(query: HistoryQuery, now: int, deploys: Sequence[Deploy]) -> float:
    """What `since` says, in seconds since the epoch."""
    if query.start is not None:
        raise RequestError("query: since: in place of `from`: give one of them", "since", 422)
    if query.since != SINCE_DEPLOY:
        from tarry.store.queries.job_search import parse_moment  # noqa: PLC0415 - `tarry stats` needs it seldom

        with checking("since"):
            return max(0, parse_moment(query.since or 0, now) / SECOND)
    if began := last_began(deploys, now):
        return began / SECOND
    said = (
        "no deploy is known: only a master (`tarry start`) leaves a mark, and who may see some queues is told of none"
    )
    raise RequestError(f"query: since: {said}", "since", 422)


def _finest(start: float, now: int) -> str:
    """The finest resolution that is kept for all that time."""
    age = now / SECOND - start
    return next((name for name, resolution in _RESOLUTIONS.items() if age < KEPT[resolution]), "day")


def is_wanted(queue: str | None, task: str | None, allows: Callable[[str], bool], in_queue: str, of_task: str) -> bool:
    """Whether what was counted of `in_queue` and `of_task` is of that queue and task, and may be seen; None: any."""
    return queue in (None, in_queue) and task in (None, of_task) and allows(in_queue)


def is_sample_of(queue: str | None, of: str, allows: Callable[[str], bool]) -> bool:
    """Whether a sample is of that queue; None: of all that the caller may see. of: whose sample it is; an
    empty name: that of all queues."""
    return allows(of or "*") if queue is None else of == queue and allows(of)


METHODS = methods_of(__name__)
