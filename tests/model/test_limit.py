"""Limits and rates, as arithmetic."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tarry.model.duration import HOUR, MINUTE, SECOND
from tarry.model.limit import LONGEST_DEBT, Level, Limit, parse_limit, rate

NOW = 1_800_000_000 * SECOND
RATES = st.builds(Limit, st.none(), st.integers(1, 200), st.sampled_from([1000, SECOND, 7 * SECOND, HOUR]))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("100/s", (100, SECOND)),
        ("10/m", (10, MINUTE)),
        ("5/2h", (5, 2 * HOUR)),
        (" 3 / minute ", (3, MINUTE)),
        ("3/seconds", (3, SECOND)),
        ("1/500ms", (1, SECOND // 2)),
        ("7/1.5s", (7, SECOND * 3 // 2)),
        ("1/day", (1, 24 * HOUR)),
    ],
)
def test_rates_as_people_write_them(text: str, expected: tuple[int, int]) -> None:
    assert rate(text) == expected


@pytest.mark.parametrize("text", ["", "100", "s/100", "0/s", "-1/s", "1/0s", "1/fortnight", "1.5/s", "1/s/s"])
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="so many in a period"):
        rate(text)


@pytest.mark.parametrize("most", [-1, 1.5, "3", True])
def test_what_is_no_count_is_refused(most: object) -> None:
    with pytest.raises(ValueError, match="limit="):
        parse_limit(most)  # type: ignore[arg-type]


def test_no_words_are_no_limit() -> None:
    assert parse_limit() is None
    assert parse_limit(0) == Limit(0)
    assert parse_limit(3, "2/s") == Limit(3, 2, SECOND)


@given(limit=RATES, asked=st.lists(st.tuples(st.integers(0, 3 * SECOND), st.integers(1, 50)), max_size=80))
def test_a_rate_is_never_exceeded_in_any_period(limit: Limit, asked: list[tuple[int, int]]) -> None:
    now, level, starts = NOW, Level(), []
    for pause, wish in asked:
        now += pause
        count = min(wish, level.room(limit, now))
        level = level.started(limit, count, now)
        starts += [now] * count
    _assert_kept(limit, starts)


def _assert_kept(limit: Limit, starts: list[int]) -> None:
    for at in set(starts):
        assert sum(at <= other < at + limit.period for other in starts) <= limit.count


@given(limit=RATES, back=st.integers(0, 30 * 24 * HOUR))
def test_a_clock_that_was_set_back_holds_a_rate_up_for_a_bounded_time(limit: Limit, back: int) -> None:
    """As long as a debt may."""
    level = Level().started(limit, limit.at_once, NOW)
    again = level.again(limit, NOW - back) or NOW - back
    assert again <= NOW - back + (LONGEST_DEBT + 1) * limit.period
    assert level.room(limit, again) >= 1


@given(limit=RATES, used=st.lists(st.integers(-3, 2**31), max_size=20))
def test_a_debt_holds_a_rate_up_for_a_bounded_time(limit: Limit, used: list[int]) -> None:
    """And one that is within the bound is counted whole."""
    level, ahead = Level(), 0
    for by in used:
        level = level.with_correction(limit, by, NOW)
        ahead = min(max(ahead, 0) + by * limit.spacing, limit.furthest) if by else ahead
    assert max(level.next, NOW) == NOW + max(ahead, 0)
    again = level.again(limit, NOW) or NOW
    assert again <= NOW + LONGEST_DEBT * limit.period + limit.spacing
    assert level.room(limit, again) >= 1


def test_what_a_level_without_a_rate_counts_is_not_corrected() -> None:
    assert Level(2, 5).with_correction(Limit(3), 7, NOW) == Level(2, 5)


@given(limit=RATES, wish=st.integers(1, 300))
def test_there_is_room_again_when_it_says_so(limit: Limit, wish: int) -> None:
    level = Level().started(limit, min(wish, Level().room(limit, NOW)), NOW)
    if level.room(limit, NOW):
        assert level.again(limit, NOW) is None
    else:
        again = level.again(limit, NOW)
        assert again is not None
        assert again > NOW
        assert level.room(limit, again) >= 1
        assert level.room(limit, again - 1) == 0


@given(limit=RATES)
def test_it_loses_little_of_what_a_rate_allows(limit: Limit) -> None:
    """Whoever comes the moment there is room starts 90 of 100, and never one too many; of a rate in millionths of a
    second, fewer."""
    assume(limit.period >= SECOND)
    now, level = NOW, Level()
    starts: list[int] = []
    while now < NOW + 4 * limit.period:
        if not (count := level.room(limit, now)):
            again = level.again(limit, now)
            assert again is not None
            now = again
            continue
        level = level.started(limit, count, now)
        starts += [now] * count
    _assert_kept(limit, starts)
    assert len(starts) >= 3.6 * limit.count


def test_a_level_counts_what_runs() -> None:
    limit = Limit(3)
    level = Level().started(limit, 2, NOW)
    assert (level.room(limit, NOW), level.again(limit, NOW)) == (1, None)
    assert level.started(limit, 1, NOW).room(limit, NOW) == 0
    assert level.ended(5) == Level()
    assert level.idle(NOW) is False
    assert level.ended(2).idle(NOW) is True


def test_a_limit_in_words() -> None:
    assert str(Limit(3)) == "3 at once"
    assert str(Limit(None, 10, MINUTE)) == "10 in 60 s"
    assert str(Limit(1, 10, SECOND)) == "1 at once, 10 in 1 s"


def test_what_was_not_used_is_not_saved_up() -> None:
    """After an hour without a start no more may start at once than at first."""
    limit = Limit(None, 100, 10 * SECOND)
    level = Level().started(limit, limit.at_once, 10**12)
    later = 10**12 + 3600 * SECOND
    assert level.room(limit, later) == limit.at_once
    level = level.started(limit, limit.at_once, later)
    assert level.room(limit, later) == 0
    assert level.room(limit, later + limit.spacing) == 1
