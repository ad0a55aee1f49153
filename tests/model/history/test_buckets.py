"""Durations in buckets."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.model.history.buckets import LAST, bucket_of, lower_end, middle_of, percentile

DAY = 86_400_000_000


def test_few_buckets_reach_from_64_microseconds_to_25_days() -> None:
    assert lower_end(1) == 64
    assert 25 * DAY < lower_end(LAST) < 26 * DAY
    assert LAST < 200


@pytest.mark.parametrize("bucket", range(LAST + 1))
def test_a_bucket_begins_where_the_one_before_ends(bucket: int) -> None:
    assert bucket_of(lower_end(bucket)) == bucket
    assert bucket_of(lower_end(bucket + 1) - 1) == bucket


@given(st.integers(64, 25 * DAY))
def test_the_middle_of_a_bucket_is_within_an_eighth_of_what_is_in_it(duration: int) -> None:
    assert abs(middle_of(bucket_of(duration)) - duration) <= duration / 8


@pytest.mark.parametrize("duration", [-DAY, -1, 0, 63])
def test_what_is_too_short_to_measure_is_in_the_first_bucket(duration: int) -> None:
    assert bucket_of(duration) == 0


def test_what_is_too_long_is_in_the_last_bucket() -> None:
    assert bucket_of(10**30) == LAST


@given(st.lists(st.integers(64, DAY), min_size=1, max_size=200), st.sampled_from([0.5, 0.95, 0.99, 1.0]))
def test_a_percentile_is_within_an_eighth_of_the_true_one(durations: list[int], share: float) -> None:
    true = next(value for place, value in enumerate(sorted(durations), 1) if place >= share * len(durations))
    found = percentile(Counter(map(bucket_of, durations)), share)
    assert found is not None
    assert abs(found - true) <= true / 8


def test_of_nothing_there_is_no_percentile() -> None:
    assert percentile({}, 0.5) is None
