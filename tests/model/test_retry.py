"""Retry rules: each shape's delays, what bounds them, which errors count, and what is said of a rule that is none."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.model.duration import DAY, HOUR, MINUTE, SECOND
from tarry.model.retry import NEVER, Retry, qualified_name
from tarry.model.verdict import RetryAfter

SEEDS = st.binary(max_size=16)
FAILURES = st.integers(1, 200)


def delays(rule: Retry, count: int, unit: int = SECOND) -> list[float | None]:
    """The delays after the first `count` failures, in that unit."""
    found = (rule.delay(failures) for failures in range(1, count + 1))
    return [None if delay is None else delay / unit for delay in found]


@pytest.mark.parametrize(
    ("rule", "unit", "expected"),
    [
        (Retry(), SECOND, [1, 1, 1, None]),
        (Retry(2), SECOND, [1, 1, None]),
        (Retry(2, base="5m"), MINUTE, [5, 5, None]),
        (Retry(2, base=timedelta(seconds=7)), SECOND, [7, 7, None]),
        (Retry(4, "linear", base=10), SECOND, [10, 20, 30, 40, None]),
        (Retry(5, backoff="exponential", base=2.0), SECOND, [2, 4, 8, 16, 32, None]),
        (Retry(backoff=["1m", "3m", 300]), MINUTE, [1, 3, 5, None]),
        (Retry(5, backoff=["1m", "3m"]), MINUTE, [1, 3, 3, 3, 3, None]),
        (Retry(1, backoff=["1m", "3m"]), MINUTE, [1, None]),
        (Retry(9, backoff="2n+1 minutes"), MINUTE, [1, 3, 5, 7, 9, 11, 13, 15, 17, None]),
        (Retry(3, backoff=" 3n + 2 s "), SECOND, [2, 5, 8, None]),
        (Retry(3, backoff="n hours"), HOUR, [0, 1, 2, None]),
        (Retry(2, backoff="10n+1 seconds"), SECOND, [1, 11, None]),
        (Retry(2, backoff="n+1 hour", cap="10d"), HOUR, [1, 2, None]),
        (Retry(0), SECOND, [None, None]),
        (NEVER, SECOND, [None]),
    ],
)
def test_each_shape_gives_its_delays_and_then_no_more(rule: Retry, unit: int, expected: list[float | None]) -> None:
    assert delays(rule, len(expected), unit) == expected


@pytest.mark.parametrize("backoff", ["fixed", "linear", "exponential", "2n+1 hours", ["1s", "2s"]])
def test_no_limit_is_for_ever_and_never_longer_than_the_cap(backoff: Any) -> None:
    rule = Retry(None, backoff=backoff, base=1, cap="1h")
    found = [rule.delay(failures) for failures in (1, 100, 10_000, 10**9)]
    assert all(delay is not None and 0 < delay <= HOUR for delay in found)


@pytest.mark.parametrize(("backoff", "first_capped"), [("linear", 11), ("exponential", 5), ("n+1 seconds", 11)])
def test_the_cap_cuts_what_grows_beyond_it(backoff: str, first_capped: int) -> None:
    rule = Retry(None, backoff=backoff, base=1, cap=10)
    found = [rule.delay(failures) for failures in range(first_capped - 1, first_capped + 2)]
    assert found[0] is not None
    assert found[0] <= 10 * SECOND
    assert found[1:] == [10 * SECOND, 10 * SECOND]


def test_the_cap_is_a_day_where_none_is_given() -> None:
    assert Retry(None, "exponential").delay(60) == DAY


@given(failures=FAILURES, seed=SEEDS, jitter=st.floats(0, 1))
def test_jitter_adds_at_most_its_fraction(failures: int, seed: bytes, jitter: float) -> None:
    plain = Retry(None, "exponential", base=2).delay(failures)
    drawn = Retry(None, "exponential", base=2, jitter=jitter).delay(failures, seed=seed)
    assert plain is not None
    assert drawn is not None
    assert plain <= drawn <= plain * (1 + jitter)


@given(failures=FAILURES, seed=SEEDS)
def test_the_same_failure_of_the_same_job_gets_the_same_delay(failures: int, seed: bytes) -> None:
    assert Retry(None, jitter=0.5).delay(failures, seed=seed) == Retry(None, jitter=0.5).delay(failures, seed=seed)


def test_jitter_spreads_jobs_and_attempts() -> None:
    rule = Retry(None, base=100, jitter=0.5)
    by_job = [rule.delay(1, seed=bytes([number])) or 0 for number in range(200)]
    assert len(set(by_job)) == 200
    assert min(by_job) < 105 * SECOND
    assert max(by_job) > 145 * SECOND
    assert len({rule.delay(failures, seed=b"one job") for failures in range(1, 201)}) == 200


@pytest.mark.parametrize(
    ("kinds", "again"),
    [
        (("ConnectionRefusedError", "ConnectionError", "OSError"), True),
        (("ConnectionError",), True),
        (("OSError", "Exception"), False),
        (("shop.Gone", "KeyError"), False),
        ((), False),
    ],
)
def test_only_the_named_errors_are_retried(kinds: tuple[str, ...], again: bool) -> None:
    rule = Retry(5, only=(ConnectionError, "shop.Late"))
    assert (rule.delay(1, kinds) is not None) is again
    assert rule.delay(1, ("shop.Late", "Exception")) == SECOND


@pytest.mark.parametrize(
    ("kinds", "again"),
    [
        (("shop.Gone", "KeyError", "LookupError"), False),
        (("KeyError",), False),
        (("LookupError",), True),
        ((), True),
    ],
)
def test_the_excluded_errors_are_never_retried(kinds: tuple[str, ...], again: bool) -> None:
    assert (Retry(5, never=(KeyError,)).delay(1, kinds) is not None) is again


def test_an_exclusion_is_stronger_than_a_permission() -> None:
    rule = Retry(5, only=(OSError,), never=(FileNotFoundError,))
    assert rule.delay(1, ("PermissionError", "OSError")) == SECOND
    assert rule.delay(1, ("FileNotFoundError", "OSError")) is None


def test_an_error_may_have_a_rule_of_its_own_the_nearest_class_deciding() -> None:
    rule = Retry(1, per={TimeoutError: Retry(10, base=30), OSError: Retry(2, base=5), "shop.Late": Retry(0)})
    assert rule.delay(10, ("TimeoutError", "OSError")) == 30 * SECOND
    assert rule.delay(11, ("TimeoutError", "OSError")) is None
    assert rule.delay(2, ("PermissionError", "OSError")) == 5 * SECOND
    assert rule.delay(1, ("shop.Late", "TimeoutError")) is None
    assert rule.delay(1, ("ValueError",)) == SECOND
    assert rule.delay(2, ("ValueError",)) is None


def test_no_retry_starts_later_than_within_after_the_job_was_made() -> None:
    rule = Retry(None, base=60, within="1h")
    assert rule.delay(1, age=59 * MINUTE) == MINUTE
    assert rule.delay(1, age=59 * MINUTE + 1) is None


@given(failures=FAILURES, age=st.integers(0, 2 * HOUR), seed=SEEDS, jitter=st.floats(0, 1))
def test_within_counts_the_jitter_too(failures: int, age: int, seed: bytes, jitter: float) -> None:
    delay = Retry(None, "linear", base=60, jitter=jitter, within="1h").delay(failures, seed=seed, age=age)
    assert delay is None or age + delay <= HOUR


def test_the_tasks_own_word_stands_instead_of_shape_cap_and_kinds() -> None:
    rule = Retry(2, base=60, cap=120, jitter=1.0, only=(OSError,))
    assert rule.delay(1, asked=0) == 0
    assert rule.delay(2, ("ValueError",), asked=HOUR) == HOUR


def test_the_limit_and_within_stand_above_the_tasks_own_word() -> None:
    assert Retry(2).delay(3, asked=0) is None
    assert Retry(None, within="1h").delay(1, age=30 * MINUTE, asked=31 * MINUTE) is None
    assert Retry(None, base="2h", within="1h").delay(1, asked=MINUTE) == MINUTE
    assert Retry(5, per={OSError: Retry(1)}).delay(2, ("OSError",), asked=MINUTE) is None


def test_after_is_what_a_task_raises() -> None:
    asked = Retry.after("1m30s")
    assert isinstance(asked, RetryAfter)
    assert asked.delay == 90 * SECOND
    with pytest.raises(ValueError, match="is negative"):
        Retry.after(-1)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: Retry(-2), "limit=-2: 0 to 1,000,000, or None for no limit"),
        (lambda: Retry(cast("int", 2.5)), "limit=2.5: 0 to 1,000,000, or None for no limit"),
        (lambda: Retry(cast("int", "linear")), "limit='linear': 0 to 1,000,000, or None for no limit"),
        (lambda: Retry(jitter=-0.1), "jitter=-0.1: a fraction from 0 to 1"),
        (lambda: Retry(jitter=10), "jitter=10: a fraction from 0 to 1"),
        (lambda: Retry(jitter=float("nan")), "jitter=nan: a fraction from 0 to 1"),
        (lambda: Retry(backoff=[]), "backoff=[]: list at least one delay, or write Retry(0)"),
        (
            lambda: Retry(backoff="cubic"),
            'backoff="cubic": one of fixed, linear, exponential, a list of delays, or "2n+1 minutes"',
        ),
        (
            lambda: Retry(backoff="2n-1 minutes"),
            'backoff="2n-1 minutes": one of fixed, linear, exponential, a list of delays, or "2n+1 minutes"',
        ),
        (
            lambda: Retry(backoff="1m, 2m"),
            'backoff="1m, 2m": one of fixed, linear, exponential, a list of delays, or "2n+1 minutes"',
        ),
        (
            lambda: Retry(backoff=["1m", "soon"]),
            "'soon' is no duration: write a number and one of us ms s m h d w, as in \"1h30m\"",
        ),
        (lambda: Retry(base=-1), "-1 is negative: a duration is from 0 to 1000 years"),
        (lambda: Retry(cap=True), 'True is no duration: write seconds (90) or text ("1m30s")'),
        (
            lambda: Retry(within="later"),
            "'later' is no duration: write a number and one of us ms s m h d w, as in \"1h30m\"",
        ),
    ],
)
def test_a_wrong_rule_is_refused_when_it_is_made(made: Callable[[], Retry], message: str) -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the whole message is compared
        made()
    assert str(error.value) == message


def test_a_rule_shows_what_it_is() -> None:
    shown = repr(Retry(5, "exponential", base=2.0, jitter=0.1))
    assert shown == "Retry(5, backoff='exponential', base=2, jitter=0.1)"


class OutOfStock(Exception):
    pass


def test_an_errors_class_is_named_with_its_module_but_for_the_built_in_ones() -> None:
    assert qualified_name(ValueError) == "ValueError"
    assert qualified_name(OutOfStock) == f"{__name__}.OutOfStock"
    assert Retry(1, never=(OutOfStock,)).delay(1, (f"{__name__}.OutOfStock", "Exception")) is None
