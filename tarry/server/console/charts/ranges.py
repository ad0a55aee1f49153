"""The times that charts show: a page's address says which (`?range=6h`)."""

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from tarry.model.duration import SECOND
from tarry.server.history_snapshot import HistorySpan, ReadHistory
from tarry.server.http.method import ApiCall
from tarry.store.queries.deploys import SINCE_DEPLOY
from tarry.store.queries.history_reading import HistoryView
from tarry.store.rules.history.sums import DAYS, HOURS, MINUTES

RangeName = Literal["15m", "1h", "6h", "24h", "7d", "30d", "deploy"]
# At most 72 points: more are no clearer, and make a page long.
RANGES: dict[RangeName, HistorySpan] = {
    "15m": HistorySpan(MINUTES, 15, 60),
    "1h": HistorySpan(MINUTES, 60, 60),
    "6h": HistorySpan(MINUTES, 72, 300),
    "24h": HistorySpan(HOURS, 24, 3600),
    "7d": HistorySpan(HOURS, 56, 10800),
    "30d": HistorySpan(DAYS, 30, 86400),
}
TODAY = HistorySpan(DAYS, 1, 86400)
"""The day of UTC, so far."""


class ShownRange(Struct, frozen=True):
    """The time that charts show."""

    name: RangeName
    names: Sequence[RangeName]
    """Those to choose from."""
    span: HistorySpan
    since: int = 0
    """Where it begins, in seconds since the epoch; 0: with the first point of the span."""


class RangeQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which time the charts of a page show."""

    range: RangeName = "1h"


def shown_range(name: RangeName, began: int, now: int) -> ShownRange:
    """The range of that name. began: when the last deploy began, 0: there was none; now; both in microseconds."""
    usual = tuple(RANGES)
    # The last point has only begun.
    covering = [one for one in RANGES.values() if (now - began) / SECOND <= (one.count - 1) * one.step]
    if not began or not covering:
        # No range goes back so far: the longest one is next to it.
        last: RangeName = "30d"
        return ShownRange(name := last if name == SINCE_DEPLOY else name, usual, RANGES[name])
    names: Sequence[RangeName] = (*usual, "deploy")
    if name == SINCE_DEPLOY:
        return ShownRange(name, names, covering[0], began // SECOND)
    return ShownRange(name, names, RANGES[name])


def read_span(call: ApiCall, span: HistorySpan) -> ReadHistory:
    """What was counted in that span; StoreError."""
    return call.service.history.read(span)


def view_span(
    call: ApiCall, span: HistorySpan, queue: str | None = None, task: str | None = None, since: int = 0
) -> HistoryView:
    """The figures of a span that the caller may see, of that queue or task or of all; StoreError. since: as for
    `ReadHistory.view`."""
    return read_span(call, span).view(call.caller.name, call.allows, queue, task, since)
