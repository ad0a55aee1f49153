"""What comes due in the next day, by hour, as people and programs see it."""

from collections.abc import Collection

from msgspec import Struct

from tarry.model.duration import HOUR, SECOND
from tarry.store.rules.partial_result import made_of
from tarry.store.rules.waiting import CappedCount, WaitingCounts

HOURS = 24
MOST_OF_ALL = 10_000
"""The most jobs that are counted of each hour."""
# Which queue a job is for stands in its row, not in the index of due times: to look there costs far more.
MOST_OF_SOME = 1_000
"""The most jobs that are looked at in each hour where only some queues are asked for."""


class DueHorizon(Struct, frozen=True):
    """How many scheduled jobs come due, by hour. Of a count with `at_least` there may be more."""

    now: float
    """Seconds since the epoch."""
    overdue: CappedCount
    """Due already; the next claim makes them ready."""
    hours: list[CappedCount]
    """From now on, and from an hour, two hours and so on later, for an hour each: 24 counts."""
    later: CappedCount
    """Due after these 24 hours."""


def due_horizon(waiting: WaitingCounts, now: int, queues: Collection[str] | None = None) -> DueHorizon:
    """What comes due of these queues, or of all; StoreError. now: by the store's clock, in microseconds. Cheap, however
    many jobs are scheduled. Of some queues a count may be too low where others have over 1,000 jobs in that hour; then
    it has `at_least`."""
    bounds = [now + hour * HOUR for hour in range(HOURS + 1)]
    most = MOST_OF_ALL if queues is None else MOST_OF_SOME
    return made_of(
        lambda: waiting.due(bounds, queues, most),
        lambda counts: DueHorizon(now / SECOND, counts[0], counts[1:-1], counts[-1]),
    )
