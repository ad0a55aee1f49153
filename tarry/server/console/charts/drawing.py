"""Charts as data: what `templates/charts.html` writes as SVG, with the figures behind it."""

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from tarry.model.duration import SECOND
from tarry.model.history.buckets import bucket_of, lower_end
from tarry.server.console.charts.deploys import DeployLine
from tarry.server.console.charts.scale import (
    DURATIONS,
    MOST_LABELS,
    CountScale,
    DurationScale,
    Label,
    duration_text,
)
from tarry.store.queries.history_reading import Bucket

COUNT, DURATION = "count", "duration"
WORDS = ("put", "done", "failed", "dead", "cancelled", "expired", "ready", "oldest", "due")
"""Names of series that are words; `p50` and the like are the same in all languages."""
_DOT = "h.01"
"""A line so short that its round ends are a dot."""


class Series(Struct, frozen=True):
    """The values of a kind, one for each point; None: there is none. total: of the whole time, or what is now, for the
    legend. at_least: the points at which there may be more."""

    name: str
    values: Sequence[float | None]
    total: float | None = None
    at_least: frozenset[int] = frozenset()


class Shape(Struct, frozen=True):
    """A path of SVG, in a field as wide as there are points and 100 high. name: that of its series. kind: `line`,
    `area` or `bar`."""

    name: str
    kind: str
    path: str


class Chart(Struct, frozen=True):
    """What is drawn. rows: the start of each point, with its values in the order of the series."""

    unit: str
    series: Sequence[Series]
    starts: range
    shapes: Sequence[Shape]
    up: Sequence[Label]
    """Values, from below."""
    is_last_open: bool = True
    """Whether the last point is not over yet."""
    marks: Mapping[int, DeployLine] = {}
    """Deploys, by the place of the point that they fell into."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to draw."""
        return not self.shapes

    @property
    def rows(self) -> list[tuple[int, tuple[float | None, ...]]]:
        """The start of each point, with its values in the order of the series."""
        return list(zip(self.starts, zip(*(one.values for one in self.series), strict=True), strict=True))


def count_lines(starts: range, series: Sequence[Series]) -> Chart:
    """Numbers by time, each series as a line; the last one as an area."""
    most = max((value or 0 for one in series for value in one.values), default=0)
    if not most:
        return _empty(COUNT, series, starts)
    scale = CountScale.of(int(most))
    shapes = [Shape(one.name, "line", line(one.values, scale.place)) for one in series]
    last = series[-1]
    area = Shape(last.name, "area", area_below(last.values, scale.place))
    return Chart(COUNT, series, starts, [area, *shapes], scale.labels())


def count_bars(starts: range, series: Sequence[Series], is_last_open: bool = True) -> Chart:
    """Numbers by time, as bars; the bars of a point stand upon each other."""
    sums = [sum(value or 0 for value in values) for values in zip(*(one.values for one in series), strict=True)]
    if not any(sums):
        return _empty(COUNT, series, starts)
    scale = CountScale.of(int(max(sums)))
    below = [0.0] * len(sums)
    shapes = []
    for one in series:
        path = "".join(
            _bar(place, scale.place(below[place]), scale.place(below[place] + value))
            for place, value in enumerate(one.values)
            if value
        )
        below = [so_far + (value or 0) for so_far, value in zip(below, one.values, strict=True)]
        shapes.append(Shape(one.name, "bar", path))
    return Chart(COUNT, series, starts, shapes, scale.labels(), is_last_open)


def duration_lines(starts: range, series: Sequence[Series]) -> Chart:
    """Seconds by time, each series as a line that is broken where nothing ended."""
    values = [value for one in series for value in one.values if value is not None]
    if not values:
        return _empty(DURATION, series, starts)
    scale = DurationScale.of(values)
    shapes = [Shape(one.name, "line", line(one.values, scale.place)) for one in series]
    return Chart(DURATION, series, starts, shapes, scale.labels())


def _empty(unit: str, series: Sequence[Series], starts: range) -> Chart:
    return Chart(unit, series, starts, [], [])


class Histogram(Struct, frozen=True):
    """How many attempts took how long. width: of the field, in buckets."""

    buckets: Sequence[Bucket]
    places: Sequence[int]
    """Where each begins in the field."""
    width: int
    path: str
    across: Sequence[Label]
    up: Sequence[Label]

    @property
    def total(self) -> int:
        """How many attempts there are."""
        return sum(bucket.count for bucket in self.buckets)


def histogram(buckets: Sequence[Bucket]) -> Histogram | None:
    """The buckets as bars, by growing duration; None: there are none."""
    if not buckets:
        return None
    places = [bucket_of(round(bucket.least * SECOND)) for bucket in buckets]
    # With some room, so that a single bar is no wall.
    first, end = max(0, places[0] - 2), places[-1] + 3
    scale = CountScale.of(max(bucket.count for bucket in buckets))
    inside = [place - first for place in places]
    bars = zip(inside, buckets, strict=True)
    path = "".join(_bar(place, 0, scale.place(bucket.count)) for place, bucket in bars)
    return Histogram(buckets, inside, end - first, path, _duration_labels(first, end), scale.labels())


def _duration_labels(first: int, end: int) -> list[Label]:
    places = [(bucket_place(each) - first, each) for each in DURATIONS]
    known = [(place, each) for place, each in places if 0 <= place <= end - first]
    every = -(-len(known) // MOST_LABELS) or 1
    return [Label(100 * place / (end - first), duration_text(each)) for place, each in known[::every]]


def bucket_place(seconds: float) -> float:
    """Where a duration stands among the buckets, with the part of its bucket that is below it."""
    duration = round(seconds * SECOND)
    bucket = bucket_of(duration)
    low, top = lower_end(bucket), lower_end(bucket + 1)
    return bucket + (duration - low) / (top - low)


def line(values: Sequence[float | None], place: Callable[[float], float]) -> str:
    """The path through the middles of the points; a dot where a value stands alone."""
    found = ""
    for at, value in enumerate(values):
        if value is None:
            continue
        is_after_gap = at == 0 or values[at - 1] is None
        found += f"{'M' if is_after_gap else 'L'}{at}.5 {_short(100 - place(value))}"
        if is_after_gap and (at + 1 == len(values) or values[at + 1] is None):
            found += _DOT
    return found


def area_below(values: Sequence[float | None], place: Callable[[float], float]) -> str:
    """The path around what is below the line; nothing where no value is."""
    found, begun = "", None
    for at, value in enumerate([*values, None]):
        if value is not None:
            found += f"{f'M{at}.5 100' if begun is None else ''}L{at}.5 {_short(100 - place(value))}"
            begun = begun or at
        elif begun is not None:
            found, begun = f"{found}V100z", None
    return found


def spark(values: Sequence[int]) -> str:
    """The path of a line so small that it has no scale; empty: all are 0."""
    most = max(values, default=0)
    return line(values, lambda value: 5 + 90 * value / most) if most else ""


def _bar(place: int, low: float, top: float) -> str:
    return f"M{place}.1 {_short(100 - low)}V{_short(100 - top)}h.8V{_short(100 - low)}z"


def _short(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
