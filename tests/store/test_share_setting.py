"""A limit over several stores is set and lifted while others move its shares, and while stores are away."""

from collections.abc import Callable

import pytest

from tarry.errors import StoreError
from tarry.keeper.chores import Keeper
from tarry.keeper.limits import declare
from tarry.model.duration import SECOND
from tarry.model.limit import Limit
from tarry.store.memory.store import MemoryStore
from tarry.store.shards.limit_setting import set_shares
from tarry.store.shards.sharded import ShardedStore
from tarry.store.shards.shares import LASTS
from tests.store.test_share_mover import System

RATE = Limit(None, 20, SECOND)


def change(system: System, limit: Limit) -> None:
    system.now += SECOND
    set_shares(system.shards, system.name, limit, system.now).result(None)


def wholes(system: System) -> list[Limit]:
    return [shard.part.limits()[system.name][0].whole for shard in system.shards]


@pytest.mark.parametrize(
    ("old", "new"), [(Limit(4), Limit(10)), (Limit(10), Limit(4)), (Limit(4), RATE), (RATE, Limit(4))]
)
def test_what_was_set_stays(old: Limit, new: Limit) -> None:
    """Also if shares are moved when it is set on one store and not yet on the other."""
    system = System(2, "task:mail", old)
    system.move()

    def move() -> None:
        system.shards[1].around = lambda: None
        if wholes(system) == [new, old]:
            system.move()
        else:
            system.shards[1].around = move

    system.shards[1].around = move
    change(system, new)
    system.move()
    assert wholes(system) == [new, new]


@pytest.mark.parametrize(("old", "new"), [(Limit(4), Limit(10)), (Limit(4), RATE)])
def test_a_store_that_was_away_learns_what_was_set(old: Limit, new: Limit) -> None:
    """From who moves shares, before anybody sets it again."""
    system = System(2, "task:mail", old)
    system.switch(1, down=True)
    with pytest.raises(StoreError):
        change(system, new)
    system.switch(1, down=False)
    system.move()
    assert wholes(system) == [new, new]
    for number in range(2):
        system.put(number, 9)
    assert system.claim(0) + system.claim(1) > 0


def test_a_later_set_counts_where_clocks_differ() -> None:
    system = System(2, "task:mail", Limit(4))
    system.now -= 60 * SECOND
    change(system, Limit(10))
    system.now += 90 * SECOND
    system.switch(1, down=True)
    with pytest.raises(StoreError):
        change(system, Limit(3))
    system.switch(1, down=False)
    system.move()
    assert wholes(system) == [Limit(3)] * 2


def test_a_store_that_dies_when_the_limit_is_new_comes_back_with_nothing() -> None:
    """Before anybody has moved shares: also if who moves them then has died by now."""
    system = System(2, "task:mail", Limit(10))
    for number in range(2):
        system.put(number, 100)
    system.switch(1, down=True)
    for _ in range(30):
        system.move()
        system.claim(0)
    assert len(system.running[0]) == 10
    system.mover = system.new_mover()
    system.switch(1, down=False)
    assert system.claim(1) == 0


def test_what_stores_that_are_away_may_have_follows_from_the_limit_that_is_set() -> None:
    """One that was away knows a smaller one than those which are away now."""
    system = System(3, "task:mail", Limit(4))
    for number in range(3):
        system.put(number, 100)
    system.switch(0, down=True)
    for _ in range(2):
        with pytest.raises(StoreError):
            change(system, Limit(50))
        system.allowed = [50]
        for _ in range(30):
            system.move()
            system.claim(1)
            system.claim(2)
    assert sum(map(len, system.running.values())) == 50
    for number in (0, 1, 2):
        system.switch(number, down=number > 0)
    system.mover = system.new_mover()
    system.move()
    with pytest.raises(StoreError):
        change(system, Limit(50))
    for _ in range(3):
        system.move()
        system.claim(0)


def call_amid(system: System, call: Callable[[], None], left: int) -> None:
    """Calls it amid what is done next: after one call of the last store, or before the second one."""

    def around() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            call()

    system.shards[1].around = around


def test_who_sets_it_first_and_stands_still_meanwhile_gives_no_more_than_is_left() -> None:
    """Another one has set it, too, and one store has all of it by now."""
    system = System(2, "task:mail", Limit(10))
    for number in range(2):
        system.shards[number].part.limit(system.name, None)
        system.put(number, 100)

    def overtake() -> None:
        change(system, Limit(10))
        system.shards[1].part.pause("default", True)
        for _ in range(3):
            system.claim(0)
            system.move()
        assert len(system.running[0]) >= 9
        system.shards[1].part.pause("default", False)

    call_amid(system, overtake, 2)
    change(system, Limit(10))
    system.claim(1)


def test_two_who_set_it_at_the_same_moment() -> None:
    """To different numbers: the shares are those of one of them."""
    system = System(2, "task:mail", Limit(10))
    for number in range(2):
        system.shards[number].part.limit(system.name, None)

    call_amid(system, lambda: change(system, Limit(2)), 3)
    change(system, Limit(10))
    system.move()
    (whole,) = {*wholes(system)}
    assert system.share(0) + system.share(1) <= (whole.most or 0)


def test_what_runs_on_a_store_that_is_forgotten_counts_until_its_leases_end() -> None:
    system = System(2, "task:mail", Limit(10))
    for number in range(2):
        system.put(number, 100)
        system.claim(number)
    system.move()
    system.switch(1, down=True)
    system.move()
    system.shards[1].is_removed = True
    for _ in range(LASTS // SECOND + 20):
        system.move()
        system.claim(0)
    assert len(system.running[0]) == 10


def test_a_store_that_has_lost_its_limits_gets_them_again() -> None:
    """A server that started empty, before anybody saw it away; but not for ever where nobody sets it any more."""
    parts = [MemoryStore(name=name) for name in "ab"]
    store = ShardedStore(parts)
    keeper = Keeper(store, declare=lambda: declare(store, {"task:mail": Limit(10)}, ["mail"]))
    store.limit("task:mail", Limit(10))
    keeper.move_shares()
    parts[1].limit("task:mail", None)
    for _ in range(3):
        keeper.redeclare_limits()
        keeper.move_shares()
    assert store.limits()["task:mail"][0] == Limit(10)
    parts[1].limit("task:other", Limit(3))
    version = store.topology_version
    for _ in range(9):
        keeper.move_shares()
    assert store.topology_version == version + 1
