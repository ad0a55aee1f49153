"""What rates count beside one for each start: for jobs that cost more, and once attempts have said what they used.

A rate lets a job start that has room for one start, whatever the job costs, and counts the whole cost. So a job that
costs more than is left does not wait for ever behind cheaper ones, and of those that start in one claim all but the
last fit into what was left.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from tarry.model.limit import Level, Limit
from tarry.store.rules.lanes import EndedAttempt, JobKey, count_by_level, limit_of


def count_corrections(ended: Iterable[EndedAttempt], limits: Mapping[str, Limit]) -> Counter[str]:
    """How many starts more, below 0: fewer, each level is to count after these changes, which ended attempts."""
    return _sum_by_level(((change.rate_correction, key) for change, key in ended), limits)


def count_costs(started: Iterable[tuple[int, JobKey]], limits: Mapping[str, Limit]) -> Counter[str]:
    """How many starts more than one each level is to count for these jobs, each with its cost."""
    return _sum_by_level(((cost - 1, key) for cost, key in started), limits)


def _sum_by_level(numbers: Iterable[tuple[int, JobKey]], limits: Mapping[str, Limit]) -> Counter[str]:
    found: Counter[str] = Counter()
    for number, key in numbers:
        if number:
            for name in count_by_level([key], limits):
                found[name] += number
    return found


class RateRooms:
    """How many starts rates leave to the jobs of one claim, of which some cost more than one. levels: as they are."""

    def __init__(
        self, limits: Mapping[str, Limit], key_limits: Mapping[str, Limit], levels: Mapping[str, Level], now: int
    ) -> None:
        self._limits, self._key_limits, self._levels, self._now = limits, key_limits, levels, now
        self._rooms: dict[str, int | None] = {}
        """Of the levels that were asked for; None: there is no rate."""

    def take(self, key: JobKey, cost: int) -> bool:
        """Whether a job may start; then its cost is counted."""
        rooms = {name: room for name in count_by_level([key], self._limits) if (room := self._room(name)) is not None}
        if any(room <= 0 for room in rooms.values()):
            return False
        self._rooms.update((name, room - cost) for name, room in rooms.items())
        return True

    def _room(self, name: str) -> int | None:
        if name not in self._rooms:
            limit = limit_of(name, self._limits, self._key_limits) or Limit()
            starts = self._levels.get(name, Level()).starts(limit, self._now)
            self._rooms[name] = starts if limit.count else None
        return self._rooms[name]


def correct_levels(
    corrections: Mapping[str, int],
    limits: Mapping[str, Limit],
    key_limits: Mapping[str, Limit],
    levels: Mapping[str, Level],
    now: int,
) -> dict[str, Level]:
    """The levels after these corrections, of `count_corrections` or `count_costs`. key_limits: of `limit_of`. levels:
    as they are; one that is not there is unused."""
    return {
        name: levels.get(name, Level()).with_correction(limit, by, now)
        for name, by in corrections.items()
        if (limit := limit_of(name, limits, key_limits)) is not None
    }
