"""Parts of limits, of which several stores have one each: they end, and change without much ado."""

import pytest
from msgspec.structs import replace

from tarry.model import lifecycle
from tarry.model.duration import SECOND
from tarry.model.lifecycle import DEFAULT
from tarry.model.limit import Level, Limit, LimitShare
from tarry.model.outcome import Returned
from tarry.store.conformance.cases.jobs import NOW, Promises, put, taken
from tarry.store.conformance.cases.sleepers import Sleepers, wakes
from tarry.store.conformance.limits.place_taking import new_name
from tarry.store.rules.base import ShareChange, Store
from tarry.store.rules.sleeper import WORK

NAMES = ["queue:default", "task:mail"]
END = NOW + 10 * SECOND
PART = Limit(4, share=LimitShare(8, 0, END))


class ShareChanging(Promises):
    """What a store does with a part of a limit. Of several stores each one has parts, so these tests are for one."""

    @pytest.fixture
    def part(self, store: Store) -> Store:
        if self.shards > 1:
            pytest.skip("each of its stores has parts")
        return store

    @pytest.mark.parametrize("name", NAMES)
    @pytest.mark.parametrize("limit", [PART, Limit(None, 100, SECOND, share=LimitShare(None, 200, END, NOW))])
    def test_nothing_starts_after_its_end(self, part: Store, name: str, limit: Limit) -> None:
        """Whether it bounds how many run at once, or how many start."""
        part.limit(name, limit)
        put(part, 10, lane="")
        assert taken(part, 2, now=END - 1)
        assert taken(part, now=END) == []
        assert part.limits()[name][0] == limit
        assert part.change_shares([_with_end(name, limit, END + SECOND)], END) == [True]
        assert taken(part, now=END)

    def test_no_place_is_taken_after_its_end(self, part: Store) -> None:
        """Outside of jobs either."""
        part.limit("task:mail", PART)
        key = ("", "mail", "")
        assert part.take_place(new_name(part), key, END + SECOND, 1, END - 1).is_taken
        answer = part.take_place(new_name(part), key, END + SECOND, 1, END)
        assert (answer.is_taken, answer.again, answer.is_limited) == (False, None, True)

    @pytest.mark.parametrize("name", NAMES)
    def test_it_changes_only_if_it_is_as_it_was_seen(self, part: Store, name: str) -> None:
        """So of two who change it, the second one learns of the first."""
        part.limit(name, PART)
        smaller = replace(PART, most=1)
        assert part.change_shares([ShareChange(name, PART, smaller), ShareChange("task:x", PART, PART)], NOW) == [
            True,
            False,
        ]
        assert part.change_shares([ShareChange(name, PART, replace(PART, most=9))], NOW) == [False]
        assert part.limits()[name][0] == smaller
        put(part, 5, lane="")
        assert len(taken(part)) == 1

    @pytest.mark.parametrize("name", NAMES)
    def test_what_runs_goes_on_and_counts(self, part: Store, name: str) -> None:
        """A smaller part stops nothing; more start once fewer run than it says."""
        part.limit(name, PART)
        put(part, 9, lane="")
        first = taken(part)
        assert len(first) == 4
        part.change_shares([ShareChange(name, PART, replace(PART, most=2))], NOW)
        assert part.limits()[name][1].running == 4
        ends = [lifecycle.after(job, Returned(), DEFAULT, NOW) for job in first]
        part.apply(ends[:2], NOW)
        assert taken(part) == []
        part.apply(ends[2:3], NOW)
        assert len(taken(part)) == 1

    @pytest.mark.parametrize("name", NAMES)
    def test_a_rate_counts_what_it_gets_as_used(self, part: Store, name: str) -> None:
        """As if so many starts had just been, whatever the rate was before."""
        small, large = (Limit(None, count, SECOND, share=LimitShare(None, 200, END)) for count in (20, 100))
        part.limit(name, small)
        put(part, 200, lane="")
        began = len(taken(part))
        assert part.change_shares([ShareChange(name, small, large, 80)], NOW) == [True]
        assert taken(part) == []
        assert part.levels([name]) == [Level(began, part.levels([name])[0].next)]
        starts = sum(len(taken(part, now=NOW + part_of * SECOND // 50)) for part_of in range(1, 50))
        assert 0 < starts + began <= 20
        assert 50 < sum(len(taken(part, now=NOW + part_of * SECOND // 50)) for part_of in range(50, 100)) <= 100

    @pytest.mark.parametrize("name", NAMES)
    def test_a_rate_that_is_moved_again_and_again_waits_one_period(self, part: Store, name: str) -> None:
        """What was counted as used need not be counted once more."""
        small, large = (Limit(None, count, SECOND, share=LimitShare(None, 200, END)) for count in (20, 100))
        part.limit(name, small)
        put(part, 200, lane="")
        for _ in range(8):
            assert part.change_shares([ShareChange(name, small, large, 80)], NOW) == [True]
            assert part.change_shares([ShareChange(name, large, small)], NOW) == [True]
        part.change_shares([ShareChange(name, small, large, 80)], NOW)
        assert taken(part, now=NOW + SECOND - 1) == []
        assert taken(part, now=NOW + SECOND + SECOND // 10)

    def test_what_gives_more_wakes(self, part: Store) -> None:
        """Jobs may wait for just that."""
        part.limit("task:mail", PART)
        with Sleepers(part) as sleepers:
            sleeper = sleepers.listen(WORK)
            assert part.change_shares([ShareChange("task:mail", PART, replace(PART, most=5))], NOW) == [True]
            assert wakes(sleeper)


def _with_end(name: str, limit: Limit, until: int) -> ShareChange:
    assert limit.share is not None
    return ShareChange(name, limit, replace(limit, share=replace(limit.share, until=until)))
