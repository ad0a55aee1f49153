"""Time in the stories: a minute or a day of theirs is shorter than one of ours."""

import re
from collections.abc import Callable
from datetime import UTC, datetime

DAY = 0.6
"""Of a minute: so the 27 days of one story take as long as the 16 minutes of another."""


class Clock:
    """Of one story, which counts minutes or days from its beginning."""

    def __init__(self, began: float, unit: float, spoken: Callable[[float], str]) -> None:
        """began: seconds since the epoch. unit: seconds that a minute, or a day, of the story takes."""
        self._began, self._unit, self.spoken = began, unit, spoken

    def at(self, moment: float) -> datetime:
        """When that is for us: what `at=` takes."""
        return datetime.fromtimestamp(self._began + moment * self._unit, UTC)

    def late(self, moment: float, arrived: float) -> float:
        """Seconds from that moment to the arrival (seconds since the epoch)."""
        return arrived - self._began - moment * self._unit


def minutes(began: float, minute: float) -> Clock:
    """From twelve o'clock."""
    return Clock(began, minute, lambda moment: f"{12 + int(moment) // 60}:{int(moment) % 60:02}")


def days(began: float, minute: float) -> Clock:
    """From the first morning, day 0."""
    return Clock(began, DAY * minute, lambda moment: f"day {moment:g}, 09:00")


def compressed(settings: str, minute: float) -> str:
    """The same settings with minutes of so many seconds: `"5m"` becomes `"5000ms"`."""
    return re.sub(r'"(\d+)m"', lambda written: f'"{round(int(written[1]) * minute * 1000)}ms"', settings)
