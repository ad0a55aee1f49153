"""Slopes find what rises, and pass what only fluctuates."""

import random

import pytest

from tests.soak.series import Bounds, Series
from tests.soak.slopes import HOUR, Sample, slope_of

MB = 2.0**20
MEMORY = Bounds(part=0.01, floor=MB)


def noise(seed: int, *, per_hour: float = 0.0, minutes: int = 60, level: float = 60 * MB) -> list[Sample]:
    """Samples every 5 s that are alike for a minute or so, as memory is, and rise by so much."""
    dice = random.Random(seed)
    drift, samples = 0.0, list[Sample]()
    for number in range(minutes * 12):
        drift = 0.9 * drift + dice.gauss(0, 0.1 * MB)
        samples.append((5.0 * number, level + drift + per_hour * 5.0 * number / HOUR))
    return samples


def rises(samples: list[Sample], bounds: Bounds = MEMORY) -> bool:
    return Series("rss", bounds, samples).is_rising(warm_up=0.0, shortest=300.0)


def test_a_leak_is_found_and_measured() -> None:
    for seed in range(20):
        samples = noise(seed, per_hour=5 * MB)
        slope = slope_of(samples)
        assert slope is not None
        assert slope.low < 5 * MB < slope.high or abs(slope.per_hour / MB - 5) < 1
        assert rises(samples)


def test_noise_passes() -> None:
    assert not any(rises(noise(seed)) for seed in range(100))


def test_the_interval_has_the_slope_in_it_as_often_as_it_says() -> None:
    found = [slope_of(noise(seed, per_hour=2 * MB)) for seed in range(200)]
    inside = sum(slope is not None and slope.low <= 2 * MB <= slope.high for slope in found)
    assert inside >= 180, "of 200; 190 are to be expected"


def test_outliers_and_steps_back_are_no_leak() -> None:
    samples = noise(3)
    samples[300:310] = [(time, value + 500 * MB) for time, value in samples[300:310]]
    assert not rises(samples)
    assert not rises(noise(4, per_hour=-20 * MB))


def test_a_rise_before_the_end_of_the_warm_up_does_not_count() -> None:
    samples = [(time, value + min(time, 1800.0) / 1800 * 40 * MB) for time, value in noise(5)]
    assert Series("rss", MEMORY, samples).is_rising(warm_up=0.0, shortest=300.0)
    assert not Series("rss", MEMORY, samples).is_rising(warm_up=1860.0, shortest=300.0)
    late = Bounds(part=0.01, floor=MB, settled_after=1860.0)
    assert not Series("rows", late, samples).is_rising(warm_up=0.0, shortest=300.0)


@pytest.mark.parametrize(
    ("per_hour", "level", "told"),
    [(0.4, 10.0, False), (2.5, 10.0, True), (2.5, 1000.0, False), (25.0, 1000.0, True)],
)
def test_what_is_small_is_not_material(per_hour: float, level: float, told: bool) -> None:
    samples = [(5.0 * number, level + per_hour * 5.0 * number / HOUR) for number in range(721)]
    assert rises(samples, Bounds(part=0.01, floor=1.0)) is told


def test_what_never_changes_has_no_slope() -> None:
    slope = slope_of([(5.0 * number, 7.0) for number in range(100)])
    assert slope is not None
    assert (slope.per_hour, slope.low, slope.high, slope.level) == (0, 0, 0, 7)


def test_a_step_of_one_descriptor_every_ten_minutes_is_a_leak() -> None:
    samples = [(5.0 * number, 20.0 + number // 120) for number in range(721)]
    assert rises(samples, Bounds(part=0.01, floor=1.0))


def test_what_is_short_is_not_judged() -> None:
    samples = noise(6, per_hour=500 * MB, minutes=4)
    assert not rises(samples)
    assert slope_of(samples[:3]) is None
