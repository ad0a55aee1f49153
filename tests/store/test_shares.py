"""How large the shares of a limit are to be, and what of it a rate may start."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tarry.model.duration import SECOND
from tarry.model.limit import Level, Limit
from tarry.store.shards import shares
from tarry.store.shards.shares import Use

NOW = 1_800_000_000 * SECOND
USES = st.lists(st.builds(Use, st.integers(0, 40), st.integers(0, 60), st.booleans()), min_size=1, max_size=8)


@given(USES, st.integers(0, 100), st.integers(0, 20))
def test_shares_that_are_to_be_fit_into_the_limit(uses: list[Use], more: int, turn: int) -> None:
    whole = sum(use.share for use in uses) + more
    wanted = shares.targets(whole, uses, turn)
    assert sum(wanted) <= whole
    assert min(wanted) >= 0
    if not any(use.is_short for use in uses):
        assert wanted == [use.share for use in uses], "nothing is moved for nobody"


@given(USES, st.integers(0, 100), st.integers(0, 20))
def test_what_is_free_is_raised_and_no_more(uses: list[Use], whole: int, turn: int) -> None:
    wanted = shares.targets(whole, uses, turn)
    lowered = [min(use.share, want) for use, want in zip(uses, wanted, strict=True)]
    held = [max(share, use.used) for share, use in zip(lowered, uses, strict=True)]
    new = shares.raise_towards(whole, held, lowered, wanted)
    assert all(share >= low for share, low in zip(new, lowered, strict=True))
    now_held = [max(share, use.used) for share, use in zip(new, uses, strict=True)]
    for low, share, has in zip(lowered, new, now_held, strict=True):
        assert share == low or share + sum(now_held) - has <= whole, "of what runs some may be lost, and its place free"


@pytest.mark.parametrize("among", [2, 4, 8])
@pytest.mark.parametrize("whole", [10, 100, 1000])
def test_the_limit_is_used(among: int, whole: int) -> None:
    """Once moved: all of it where all want it, and nearly all where one does."""
    equal = shares.equal_parts(whole, among)
    everywhere = [Use(share, share, True) for share in equal]
    assert sum(shares.targets(whole, everywhere, 0)) == whole
    one = [Use(equal[0], equal[0], True), *(Use(share, 0, False) for share in equal[1:])]
    assert shares.targets(whole, one, 0)[0] >= 0.9 * whole


def test_one_place_goes_around() -> None:
    uses = [Use(1, 1, True), Use(0, 0, True), Use(0, 0, False), Use(0, 0, True)]
    assert [shares.targets(1, uses, turn) for turn in range(3)] == [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 1]]


@given(st.integers(0, 50), st.integers(0, 50), st.integers(1, 8), st.integers(0, 9))
def test_a_share_says_of_what_it_is_one(most: int, count: int, among: int, until: int) -> None:
    whole = Limit(most, count, SECOND if count else 0)
    parts = shares.first_shares(whole, among)
    assert {part.whole for part in parts} == {whole}
    assert sum(shares.most_of(part) or 0 for part in parts) <= most
    assert sum(part.count for part in parts) == count
    assert all(Level().room(part, NOW) == 0 for part in parts if count and not part.count)


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("count", [1, 7, 40, 300])
def test_no_period_has_more_starts_however_a_rate_is_moved(seed: int, count: int) -> None:
    """Moved at any moment from one store to another, a few times in a period."""
    draw, whole = random.Random(seed), Limit(None, count, SECOND)
    parts, levels, now = shares.first_shares(whole, 3), [Level()] * 3, NOW
    starts: list[int] = []
    while now < NOW + 8 * SECOND:
        now += draw.randrange(1, SECOND // 20)
        one, other = draw.sample(range(3), 2)
        if draw.random() < 0.2:
            moved = draw.randint(0, parts[one].count)
            parts[one] = shares.share_of(whole, None, parts[one].count - moved)
            fresh = shares.is_fresh(levels[one], SECOND, now)
            parts[other] = shares.share_of(whole, None, parts[other].count + moved)
            levels[other] = levels[other].with_correction(parts[other], 0 if fresh else moved, now)
        if draw.random() < 0.8:
            begun = min(levels[one].room(parts[one], now), draw.choice([1, 1000]))
            levels[one] = levels[one].started(parts[one], begun, now)
            starts += [now] * begun
    assert starts
    for at, first in enumerate(starts):
        assert sum(first <= start < first + SECOND for start in starts[at : at + count + 1]) <= count


def test_a_share_of_a_changed_limit_is_no_larger() -> None:
    old, new = Limit(10), Limit(4, 20, SECOND)
    part = shares.share_of(old, 7, 0, NOW)
    changed = shares.with_whole(part, new, shares.share_of(new, 2, 10))
    assert changed == shares.share_of(new, 2, 10, NOW)
    assert shares.with_whole(part, Limit(100), shares.share_of(Limit(100), 50, 0)) == replace(
        part, share=shares.share_of(Limit(100), 7, 0, NOW).share
    )
