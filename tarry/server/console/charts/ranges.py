"""The times that charts show: a page's address says which (`?range=6h`)."""

from typing import Literal

from msgspec import Struct

from tarry.server.history_snapshot import HistorySpan, ReadHistory
from tarry.server.http.method import ApiCall
from tarry.store.queries.history_reading import HistoryView
from tarry.store.rules.history.sums import DAYS, HOURS, MINUTES

RangeName = Literal["15m", "1h", "6h", "24h", "7d", "30d"]
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


class RangeQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which time the charts of a page show."""

    range: RangeName = "1h"


def read_span(call: ApiCall, span: HistorySpan) -> ReadHistory:
    """What was counted in that span; StoreError."""
    return call.service.history.read(span)


def view_span(call: ApiCall, span: HistorySpan, queue: str | None = None, task: str | None = None) -> HistoryView:
    """The figures of a span that the caller may see, of that queue or task or of all; StoreError."""
    return read_span(call, span).view(call.caller.name, call.allows, queue, task)
