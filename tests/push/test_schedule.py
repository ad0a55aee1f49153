"""Schedules: the delays of each form, their end, delays that an endpoint asks for, and errors."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarry.model.duration import DAY, HOUR, MINUTE, SECOND
from tarry.model.job import Job, State
from tarry.model.lifecycle import Rules, after
from tarry.model.outcome import Raised
from tarry.push.endpoint.schedule import RetrySchedule


def delays(schedule: RetrySchedule, count: int, unit: int = MINUTE) -> list[float | None]:
    found = (schedule.delay(failures) for failures in range(1, count + 1))
    return [None if delay is None else delay / unit for delay in found]


@pytest.mark.parametrize(
    ("settings", "unit", "expected"),
    [
        ({}, MINUTE, [1, 3, 5, 7, 9, 11, 13, 15, 17, None]),
        ({"written": "2n+1 minutes"}, MINUTE, [1, 3, 5, 7, 9, 11, 13, 15, 17, None]),
        ({"max_attempts": 3}, MINUTE, [1, 3, None]),
        ({"max_attempts": 1}, MINUTE, [None]),
        ({"written": ["1m", "3m", "5m", "7m"]}, MINUTE, [1, 3, 5, 7, None]),
        ({"written": [0, "2m", 600, "10m", "1h"]}, MINUTE, [0, 2, 10, 10, 60, None]),
        ({"written": ["1m", "3m"], "max_attempts": 5}, MINUTE, [1, 3, 3, 3, None]),
        ({"written": ["1m", "3m"], "max_attempts": 2}, MINUTE, [1, None]),
        ({"written": ["10d", "30d"]}, DAY, [10, 30, None]),
        ({"written": "10m", "max_attempts": 4}, MINUTE, [10, 10, 10, None]),
        ({"written": 90, "max_attempts": 3}, SECOND, [90, 90, None]),
        ({"written": {"exponential": "10s"}, "max_attempts": 5}, SECOND, [10, 20, 40, 80, None]),
        (
            {"written": {"exponential": "10s", "factor": 3, "max": "1m"}, "max_attempts": 5},
            SECOND,
            [10, 30, 60, 60, None],
        ),
        ({"written": {"exponential": "10s", "factor": 1.5}, "max_attempts": 5}, SECOND, [10, 15, 22.5, 33.75, None]),
        ({"written": {"exponential": "1h", "max": "1h"}, "max_attempts": 3}, HOUR, [1, 1, None]),
        ({"written": {"exponential": "12h"}, "max_attempts": "forever"}, HOUR, [12, 24, 24, 24]),
    ],
)
def test_each_form_gives_its_delays_and_then_no_more(
    settings: dict[str, Any], unit: int, expected: list[float | None]
) -> None:
    assert delays(RetrySchedule.parse(**settings), len(expected), unit) == expected


def test_the_default_is_the_original_s() -> None:
    schedule = RetrySchedule.parse()
    assert schedule.attempts == 10
    assert schedule.until is None
    assert RetrySchedule.parse(["1m", "3m"]).attempts == 3


def test_for_ever_means_for_ever() -> None:
    schedule = RetrySchedule.parse(max_attempts="forever")
    assert schedule.attempts is None
    assert schedule.delay(10**9) == DAY, "no delay of a formula is longer"


def test_until_a_time_counts_from_the_first_attempt() -> None:
    schedule = RetrySchedule.parse(["1m"], until="3d")
    assert schedule.attempts is None
    assert schedule.until == 3 * DAY
    assert schedule.delay(1000, age=3 * DAY - MINUTE) == MINUTE
    assert schedule.delay(1000, age=3 * DAY - MINUTE + 1) is None
    assert RetrySchedule.parse(["1m"], max_attempts=2, until="3d").delay(2) is None


def test_jitter_is_drawn_from_the_job_s_id() -> None:
    schedule = RetrySchedule.parse({"exponential": "10s", "jitter": 0.1})
    found = {schedule.delay(1, seed=bytes([n])) for n in range(50)}
    assert len(found) > 40
    assert all(found_one is not None and 10 * SECOND <= found_one <= 11 * SECOND for found_one in found)
    assert schedule.delay(1, b"a") == schedule.delay(1, b"a")


def test_an_endpoint_may_ask_for_later_and_not_for_sooner() -> None:
    schedule = RetrySchedule.parse(["1m"], until="1h")
    assert schedule.delay(1, asked=10 * SECOND) == MINUTE
    assert schedule.delay(1, asked=5 * MINUTE) == 5 * MINUTE
    assert schedule.delay(1, asked=2 * HOUR) is None, "that would be after the time is over"
    assert RetrySchedule.parse(["1m"]).delay(2, asked=5 * MINUTE) is None, "the attempts are used up"


def test_the_life_of_a_job_goes_by_it() -> None:
    rules = Rules(RetrySchedule.parse(["1m", "3m"]).retry)
    id = (1_700_000_000_000).to_bytes(6, "big") + bytes(10)
    now = 1_700_000_000 * SECOND
    job = Job(id, "order.timeout", b"{}", state=State.RUNNING, failures=1)
    changed = after(job, Raised(b"{}"), rules, now)
    assert (changed.to, changed.due) == (State.SCHEDULED, now + 3 * MINUTE)
    job = Job(id, "order.timeout", b"{}", state=State.RUNNING, failures=2)
    assert after(job, Raised(b"{}"), rules, now).to is State.DEAD


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"written": "soon"}, "is no schedule"),
        ({"written": "2n+1"}, "is no schedule"),
        ({"written": "linear"}, "is no schedule|says no delay"),
        ({"written": "exponential"}, "says no delay"),
        ({"written": "tomorrow"}, "is no duration"),
        ({"written": []}, "a list of 0 delays"),
        ({"written": [1] * 1001}, "a list of 1001 delays"),
        ({"written": ["1m", "x"]}, "delay 2: 'x' is no duration"),
        ({"written": ["1m", None]}, "delay 2: None is no duration"),
        ({"written": ["1m", -1]}, "delay 2: -1 is negative"),
        ({"written": 0}, "0 is no time"),
        ({"written": True}, "True is no duration"),
        ({"written": float("nan")}, "no number"),
        ({"written": 1e300}, "too long"),
        ({"written": object()}, "no schedule"),
        ({"written": {}}, "exponential is missing"),
        ({"written": {"factor": 2}}, "exponential is missing"),
        ({"written": {"exponential": "10s", "factr": 2}}, "did you mean factor"),
        ({"written": {"exponential": "10s", "z": 2}}, "unknown 'z'"),
        ({"written": {"exponential": 0}}, "exponential: 0 is no time"),
        ({"written": {"exponential": "10s", "max": "1s"}}, "max is less"),
        ({"written": {"exponential": "10s", "factor": 1}}, "factor=1"),
        ({"written": {"exponential": "10s", "factor": float("nan")}}, "factor=nan"),
        ({"written": {"exponential": "10s", "factor": "2"}}, "factor='2'"),
        ({"written": {"exponential": "10s", "jitter": 2}}, "jitter=2"),
        ({"written": {"exponential": "10s", "jitter": True}}, "jitter=True"),
        ({"max_attempts": 0}, "0 is no number of attempts"),
        ({"max_attempts": True}, "True is no number of attempts"),
        ({"max_attempts": 1.5}, "1.5 is no number of attempts"),
        ({"max_attempts": "ever"}, "'ever' is no number of attempts"),
        ({"until": 0}, "0 is no time"),
        ({"until": "x"}, "is no duration"),
    ],
)
def test_what_is_no_schedule_is_refused(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told) as caught:
        RetrySchedule.parse(**settings)
    assert "\n" not in str(caught.value)


json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(["10s", "1h", "n+1 hours", "forever", "x"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["exponential", "factor", "max", "jitter"]), inner, max_size=4)
    ),
    max_leaves=6,
)


@settings(deadline=None)
@given(
    json,
    json,
    json,
    st.integers(1, 10**6),
    st.binary(max_size=16),
    st.integers(0, DAY),
    st.none() | st.integers(0, HOUR),
)
def test_whatever_is_written_is_a_schedule_or_refused(
    written: Any, most: Any, until: Any, failures: int, seed: bytes, age: int, asked: int | None
) -> None:
    try:
        schedule = RetrySchedule.parse(written, most, until)
    except ValueError:
        return
    delay = schedule.delay(failures, seed, age, asked)
    assert delay is None or 0 <= delay <= 2 * 365_250 * DAY
    assert delay is None or asked is None or delay >= asked
    assert delay is None or schedule.until is None or age + delay <= schedule.until
    assert schedule.attempts is None or failures < schedule.attempts or delay is None
