"""Scales: where a value or a time stands in a chart, and which of them are written beside it."""

from collections.abc import Sequence
from math import floor, log, log10

from msgspec import Struct

from tarry.model.duration import SECOND, format_duration
from tarry.server.console.charts.times import ONLY_UTC, UNKNOWN, Zone

DURATIONS = (
    0.0001, 0.001, 0.01, 0.1, 1.0, 10.0, 60.0, 600.0, 3600.0, 6 * 3600.0, 86400.0, 7 * 86400.0, 30 * 86400.0,
)  # fmt: skip
"""Seconds that people know, about a tenth of each other."""
MOST_LABELS, _DAY = 5, 86400
_STEPS = (60, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 2 * 86400, 5 * 86400, 7 * 86400)
"""Seconds between two times that are written below a chart."""


class Label(Struct, frozen=True):
    """What is written at a scale. at: per cent of its length, from the left or from below."""

    at: float
    text: str


class CountScale(Struct, frozen=True):
    """From 0 to a round number that is not exceeded."""

    top: int
    step: int

    @classmethod
    def of(cls, most: int) -> "CountScale":
        """The scale on which this is the largest number."""
        power: int = 10 ** max(0, floor(log10(max(1, most))) - 1)
        step = next(each * power for each in (1, 2, 5, 10, 20, 50) if each * power * 4 >= most)
        return cls(max(step, -(-most // step) * step), step)

    def place(self, value: float) -> float:
        """Per cent of its height."""
        return 100 * value / self.top

    def labels(self) -> list[Label]:
        """The numbers beside it."""
        return [Label(self.place(value), short_number(value)) for value in range(0, self.top + 1, self.step)]


class DurationScale(Struct, frozen=True):
    """From one of `DURATIONS` to another. It is logarithmic: what waits for milliseconds and what waits for hours are
    seen at once."""

    low: float
    top: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "DurationScale":
        """The scale that has all these seconds."""
        # Not the last one: the scale has to have a height.
        low = max((each for each in DURATIONS[:-1] if each <= min(values)), default=DURATIONS[0])
        top = min((each for each in DURATIONS if each >= max(values) and each > low), default=DURATIONS[-1])
        return cls(low, top)

    def place(self, seconds: float) -> float:
        """Per cent of its height, at least 0 and at most 100."""
        inside = min(max(seconds, self.low), self.top)
        return 100 * log(inside / self.low) / log(self.top / self.low)

    def labels(self) -> list[Label]:
        """The durations beside it."""
        known = [each for each in DURATIONS if self.low <= each <= self.top]
        every = -(-len(known) // MOST_LABELS)
        return [Label(self.place(each), duration_text(each)) for each in known[::every]]


def short_number(value: float) -> str:
    """`950`, `1.2k`, `34k`, `5M`."""
    for unit in ("", "k", "M"):
        if value < 1000:
            return f"{value:.3g}{unit}"
        value /= 1000
    return f"{value:.3g}G"


def duration_text(seconds: float) -> str:
    """`10ms`, `1h`."""
    return format_duration(round(seconds * SECOND)).replace(".0ms", "ms")


def time_labels(starts: range, zone: Zone = ONLY_UTC) -> list[Label]:
    """The times below a chart whose points begin then: of the day, or days where it has several. Where a point is a
    day, it is one of UTC."""
    length = len(starts) * starts.step
    step = next((each for each in _STEPS if each * MOST_LABELS >= length), _STEPS[-1])
    # Years of points have days of their own, too.
    step = max(step, starts.step)
    zone = ONLY_UTC if starts.step >= _DAY else zone
    # Round times of the reader's own clock.
    ahead = zone.offset(starts[-1])
    first = -(-(starts[0] + ahead) // step) * step - ahead
    # A label stands at the middle of its point; where points begin at any time, at its own time.
    half = 0 if starts.start % starts.step else starts.step / 2
    return [
        Label(100 * (at + half - starts[0]) / length, time_text(at, step, zone))
        for at in range(first, starts.stop, step)
    ]


def time_text(at: int, step: int, zone: Zone) -> str:
    """`14:30`; `11-24` where steps are days."""
    found = zone.moment(at)
    return UNKNOWN if found is None else found.strftime("%H:%M" if step < _DAY else "%m-%d")
