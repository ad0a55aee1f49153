"""Durations: every way to write one, and what is said of the ways that are none."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.model.duration import DAY, HOUR, MINUTE, SECOND, Duration, format_duration, microseconds


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (0, 0),
        (90, 90 * SECOND),
        (0.25, 250_000),
        (timedelta(minutes=2, microseconds=3), 2 * MINUTE + 3),
        ("7us", 7),
        ("4ms", 4000),
        ("1.5s", 1_500_000),
        ("90s", 90 * SECOND),
        ("5m", 5 * MINUTE),
        ("1h30m", HOUR + 30 * MINUTE),
        ("2d", 2 * DAY),
        ("1w", 7 * DAY),
        ("1w2d3h4m5s6ms7us", 9 * DAY + 3 * HOUR + 4 * MINUTE + 5 * SECOND + 6007),
        (" 10s ", 10 * SECOND),
        (365_250 * 86_400, 365_250 * DAY),
    ],
)
def test_reads_what_people_write(written: Duration, expected: int) -> None:
    assert microseconds(written) == expected


@pytest.mark.parametrize("text", ["", "5", "soon", "5 m", "1h 30m", "-5s", "5x", "s5", "1.s", "5S", "1h30", "nan s"])
def test_text_that_is_no_duration_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(
        ValueError, match=r'is no duration: write a number and one of us ms s m h d w, as in "1h30m"$'
    ) as error:
        microseconds(text)
    assert str(error.value).startswith(repr(text))


@pytest.mark.parametrize("thing", [None, True, False, [5], b"5s", {}, 2j])
def test_other_things_are_refused_with_an_example(thing: Duration) -> None:
    with pytest.raises(ValueError, match=r'is no duration: write seconds \(90\) or text \("1m30s"\)$'):
        microseconds(thing)


@pytest.mark.parametrize(
    ("written", "why"),
    [
        (-1, "negative"),
        (-0.5, "negative"),
        (timedelta(seconds=-1), "negative"),
        (float("-inf"), "negative"),
        (float("inf"), "too long"),
        (10**30, "too long"),
        ("9999999w", "too long"),
        ("9" * 90 + "s", "too long"),
        (float("nan"), "no number"),
    ],
)
def test_durations_that_no_store_could_add_are_refused(written: Duration, why: str) -> None:
    with pytest.raises(ValueError, match=f"is {why}: a duration is from 0 to 1000 years$"):
        microseconds(written)


@pytest.mark.parametrize(
    ("duration", "expected"),
    [
        (0, "0.0ms"),
        (4_200, "4.2ms"),
        (999_900, "999.9ms"),
        (SECOND, "1s"),
        (1_500_000, "1.5s"),
        (17 * SECOND, "17s"),
        (MINUTE, "1m"),
        (3 * MINUTE + 20 * SECOND, "3m20s"),
        (HOUR + 59 * SECOND, "1h"),
        (HOUR + 5 * MINUTE, "1h5m"),
        (2 * DAY + 4 * HOUR, "2d4h"),
        (400 * DAY, "400d"),
    ],
)
def test_says_it_as_people_do(duration: int, expected: str) -> None:
    assert format_duration(duration) == expected


@given(st.integers(SECOND, 1000 * DAY))
def test_what_is_said_can_be_read_and_is_close(duration: int) -> None:
    assert abs(microseconds(format_duration(duration)) - duration) <= max(duration // 20, SECOND // 20)


@given(st.timedeltas(timedelta(0), timedelta(days=36_500)))
def test_a_timedelta_is_kept_to_the_microsecond(delta: timedelta) -> None:
    assert microseconds(delta) == delta // timedelta(microseconds=1)
