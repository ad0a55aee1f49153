"""Places under limits that programs take outside of jobs."""

import uuid

import pytest

from tarry.model import lifecycle
from tarry.model.duration import SECOND
from tarry.model.lifecycle import DEFAULT
from tarry.model.limit import UNLIMITED, Limit
from tarry.model.outcome import Returned
from tarry.store.conformance.cases.jobs import LEASE, NOW, Promises, put, side_by_side, taken
from tarry.store.rules import kept_places
from tarry.store.rules.base import PlaceAnswer, Store
from tarry.store.rules.lanes import JobKey

QUEUE, TASK, EACH = "queue:default", "task:mail", "each:mail"
KEY: JobKey = ("default", "mail", "ann")


def new_name(store: Store, owner: str = "ann") -> str:
    """A name for a place on the shard of the task's jobs."""
    return kept_places.name_of(owner, store.new_id("mail", None, ""), 1)


def take(store: Store, key: JobKey = KEY, *, cost: int = 1, now: int = NOW, name: str = "") -> PlaceAnswer:
    """The answer to a call that takes a place for the length of a lease."""
    return store.take_place(name or new_name(store), key, now + LEASE, cost, now)


class PlaceTaking(Promises):
    """What a program takes outside of jobs counts as a running job does."""

    @pytest.mark.parametrize("limit", [TASK, EACH])
    def test_a_place_and_a_job_keep_each_other_out(self, store: Store, limit: str) -> None:
        """Whoever comes first, until it is over."""
        store.limit(limit, Limit(1))
        put(store, 2, lane="ann")
        name = new_name(store)
        assert take(store, name=name).is_taken
        assert taken(store) == []
        assert take(store) == PlaceAnswer(False)
        kept_places.give_back(store, [name], NOW)
        (job,) = taken(store)
        assert take(store) == PlaceAnswer(False)
        assert store.apply([lifecycle.after(job, Returned(), DEFAULT, NOW)], NOW) == [True]
        assert take(store).is_taken
        assert store.recount(NOW) == 0

    def test_a_queue_counts_places_without_a_task(self, store: Store) -> None:
        """On each of several stores its share."""
        store.limit(QUEUE, Limit(36))
        names = [kept_places.name_of("ann", store.new_id("", None, None), 1) for _ in range(120)]
        got = [name for name in names if take(store, ("default", "", None), name=name).is_taken]
        assert 18 <= len(got) <= 36
        assert store.limits()[QUEUE][1].running == len(got)
        kept_places.give_back(store, got, NOW)
        assert store.limits()[QUEUE][1].running == 0
        assert store.kv_list(kept_places.PREFIX) == {}
        assert store.recount(NOW) == 0

    def test_keys_have_places_of_their_own(self, store: Store) -> None:
        """Their sum is bounded by the task."""
        store.limit(EACH, Limit(1))
        store.limit(TASK, Limit(2))
        keys = ["ann", "ann", "bob", "cid"]
        assert [take(store, ("default", "mail", key)).is_taken for key in keys] == [True, False, True, False]
        assert store.limits()[TASK][1].running == 2
        assert store.recount(NOW) == 0

    def test_it_takes_all_or_nothing(self, store: Store) -> None:
        """A limit with room counts nothing if another has none."""
        store.limit(TASK, Limit(0))
        store.limit(EACH, Limit(100, 100, 60 * SECOND))
        answer = take(store)
        assert (answer.is_taken, answer.again) == (False, None)
        assert {(level.running, level.next) for _, level in store.limits().values()} == {(0, 0)}
        assert store.kv_list(kept_places.PREFIX) == {}
        store.limit(TASK, Limit(100))
        assert take(store, cost=5).is_taken
        assert not take(store).is_taken, "its rate has counted nothing before"

    def test_without_a_limit_nothing_is_taken(self, store: Store) -> None:
        """The answer says so."""
        assert take(store) == PlaceAnswer(False, None, UNLIMITED, False)
        store.limit("task:other", Limit(1))
        assert take(store) == PlaceAnswer(False, None, UNLIMITED, False)
        assert store.kv_list(kept_places.PREFIX) == {}

    def test_a_call_made_again_takes_nothing_more(self, store: Store) -> None:
        """As after a lost answer."""
        store.limit(TASK, Limit(2, 100, 60 * SECOND))
        name = new_name(store)
        assert take(store, name=name).is_taken
        level = store.limits()[TASK][1]
        assert take(store, name=name).is_taken
        assert store.limits()[TASK][1] == level
        kept_places.give_back(store, [name, name], NOW)
        assert store.limits()[TASK][1].running == 0
        assert store.recount(NOW) == 0

    def test_a_rate_counts_the_cost(self, store: Store) -> None:
        """And says when there will be enough; jobs wait as long."""
        limit = Limit(None, 100, 60 * SECOND)
        store.limit(TASK, limit)
        assert take(store, cost=3) == PlaceAnswer(True, None, limit.at_once)
        assert take(store, cost=2).is_taken
        again = NOW + 3 * limit.spacing
        assert take(store, cost=3) == PlaceAnswer(False, again, limit.at_once)
        put(store, 1, lane="")
        assert taken(store) == []
        assert not take(store, cost=3, now=again - 1).is_taken
        assert take(store, cost=3, now=again).is_taken
        assert taken(store, now=again) == []
        assert len(taken(store, now=again + limit.spacing)) == 1

    def test_more_than_a_rate_ever_allows(self, store: Store) -> None:
        """The answer has the highest cost."""
        limit = Limit(None, 100, 60 * SECOND)
        store.limit(TASK, limit)
        store.limit(EACH, Limit(None, 1_000_000, SECOND))
        answer = take(store, cost=limit.at_once + 1)
        assert (answer.is_taken, answer.most) == (False, limit.at_once)
        assert store.limits()[TASK][1].next == 0
        assert take(store, cost=limit.at_once).is_taken

    def test_a_place_ends_with_its_time_or_its_owner(self, store: Store) -> None:
        """It is prolonged as that of an attempt."""
        store.limit(TASK, Limit(1))
        id = store.new_id("mail", None, "")
        name = kept_places.name_of("ann", id, 1)
        assert take(store, name=name).is_taken
        kept_places.prolong(store, "ann", [(id, 1)], LEASE, NOW + LEASE - 1)
        assert kept_places.free_over(store, NOW + LEASE, lambda owner: False) == 0
        assert not take(store, now=NOW + LEASE).is_taken
        assert kept_places.free_over(store, NOW + 2 * LEASE, lambda owner: False) == 1
        assert take(store, now=NOW + 2 * LEASE).is_taken
        assert kept_places.free_over(store, NOW + 2 * LEASE, lambda owner: owner == "ann") == 1
        assert store.limits()[TASK][1].running == 0

    def test_never_more_than_the_limit_among_many(self, store: Store) -> None:
        """Programs that take places and workers that claim, at the same time."""
        store.limit(EACH, Limit(3))
        put(store, 40, lane="ann")
        inside: list[int] = []
        most: list[int] = []

        def visit() -> None:
            inside.append(1)
            most.append(len(inside))
            # Before the store knows: so no other can be inside by then.
            inside.pop()

        def work(number: int) -> None:
            for _ in range(15):
                name = new_name(store, uuid.uuid4().hex)
                if take(store, name=name).is_taken:
                    visit()
                    kept_places.give_back(store, [name], NOW)
                for job in taken(store, 1, owner=f"w{number}"):
                    visit()
                    assert store.apply([lifecycle.after(job, Returned(), DEFAULT, NOW)], NOW) == [True]

        side_by_side(4, work)
        assert max(most) <= 3
        assert store.recount(NOW) == 0
        assert store.kv_list(kept_places.PREFIX) == {}
