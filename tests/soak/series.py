"""Series of samples, and which of them rise."""

from collections.abc import Iterator
from typing import NamedTuple

from tests.soak.slopes import HOUR, Sample, Slope, slope_of


class Bounds(NamedTuple):
    """What is material: more than this part of its level in an hour, and more than `floor` within the time that was
    measured, and in an hour."""

    part: float
    floor: float
    settled_after: float = 0.0
    """Seconds of warm-up that it needs at least: until what is kept for a time is deleted as fast as it comes."""
    unit: float = 1.0
    """By what a value is divided to be shown."""
    unit_name: str = ""


MEMORY = Bounds(0.01, 2.0**20, 0.0, 2.0**20, " MB")
"""An allocator fills gaps for a long time: 1 MB is what a leak of 30 bytes a job takes in 36,000 jobs."""
FEW = Bounds(0.01, 2.0)
"""Descriptors, threads, files: one more or less is there at any moment."""
ROWS = Bounds(0.01, 50.0, 600.0)
"""Rows and keys: they follow the load, which is drawn."""
SIZE = MEMORY._replace(settled_after=600.0)
"""Of a database."""


class Series(NamedTuple):
    """What was measured of one thing: of one process, one table."""

    name: str
    bounds: Bounds
    samples: list[Sample]

    def slope(self, warm_up: float) -> Slope | None:
        """After so many seconds from its first sample; None: too little is left."""
        start = self.samples[0][0] + max(warm_up, self.bounds.settled_after)
        return slope_of([sample for sample in self.samples if sample[0] >= start])

    def is_rising(self, warm_up: float, shortest: float) -> bool:
        """Whether it surely rises, and materially. One that is shorter after its warm-up is not judged."""
        slope = self.slope(warm_up)
        return slope is not None and slope.span >= shortest and slope.low > 0 and slope.per_hour > self.material(slope)

    def material(self, slope: Slope) -> float:
        """So much in an hour is material."""
        floor = self.bounds.floor * max(1.0, HOUR / slope.span)
        return max(floor, self.bounds.part * slope.level)


class SeriesSet:
    """All series of a run, by name."""

    def __init__(self) -> None:
        self._series: dict[str, Series] = {}

    def add(self, name: str, bounds: Bounds, time: float, value: float) -> None:
        """Adds a sample."""
        self._series.setdefault(name, Series(name, bounds, [])).samples.append((time, value))

    def __iter__(self) -> Iterator[Series]:
        return iter([self._series[name] for name in sorted(self._series)])
