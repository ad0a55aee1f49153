"""Whether a series of samples rises: its slope per hour, with an interval of confidence.

Samples that follow each other are alike (autocorrelated), so an interval over single samples would be much too narrow.
The series is cut into blocks of equal time, and the mean of each block is one point (C. Alexopoulos and A. F. Seila,
Output data analysis, in J. Banks, Handbook of Simulation, 1998). The slope is that of Theil and Sen: the median of the
slopes of all pairs of points, which a few outliers do not move. The interval is Sen's, by the normal approximation of
Kendall's statistic (P. K. Sen, Estimates of the regression coefficient based on Kendall's tau, JASA 63, 1968; as
computed in R. O. Gilbert, Statistical Methods for Environmental Pollution Monitoring, 1987).
"""

import math
from collections.abc import Sequence
from itertools import combinations
from statistics import NormalDist, fmean, median
from typing import NamedTuple

BLOCKS = 20
FEWEST_BLOCKS = 10
"""Of fewer points the interval says little."""
CONFIDENCE = 0.95
HOUR = 3600.0

Sample = tuple[float, float]
"""Seconds, of any clock, and a value."""


class Slope(NamedTuple):
    """Per hour. low, high: the interval of confidence. level: the median. span: seconds from first to last sample."""

    per_hour: float
    low: float
    high: float
    level: float
    span: float
    blocks: int


def slope_of(samples: Sequence[Sample], blocks: int = BLOCKS) -> Slope | None:
    """The slope of a series; None: there are too few samples."""
    points = block_means(samples, blocks)
    if len(points) < FEWEST_BLOCKS:
        return None
    slopes = sorted((b - a) / (t - s) * HOUR for (s, a), (t, b) in combinations(points, 2))
    low, high = _ranks(len(points), len(slopes))
    span = samples[-1][0] - samples[0][0]
    return Slope(median(slopes), slopes[low], slopes[high], median(v for _, v in samples), span, len(points))


def block_means(samples: Sequence[Sample], blocks: int) -> list[Sample]:
    """The mean time and value of each block of equal time that has samples."""
    if len(samples) < 2 or samples[-1][0] <= samples[0][0]:
        return []
    first, last = samples[0][0], samples[-1][0]
    found: dict[int, list[Sample]] = {}
    for time, value in samples:
        found.setdefault(min(blocks - 1, int((time - first) / (last - first) * blocks)), []).append((time, value))
    return [(fmean(t for t, _ in block), fmean(v for _, v in block)) for _, block in sorted(found.items())]


def _ranks(points: int, slopes: int) -> tuple[int, int]:
    """Which of the sorted slopes, from 0, are the ends of the interval."""
    deviation = math.sqrt(points * (points - 1) * (2 * points + 5) / 18)
    wide = NormalDist().inv_cdf((1 + CONFIDENCE) / 2) * deviation
    low = max(0, math.floor((slopes - wide) / 2) - 1)
    return low, slopes - 1 - low
