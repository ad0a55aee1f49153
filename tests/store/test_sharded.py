"""What is the shards' own, beyond the promises that every store keeps."""

import select
from contextlib import closing

import pytest
from msgspec.structs import replace

from tarry.errors import ConfigError, StoreBusy
from tarry.model.duration import SECOND
from tarry.model.job import Job
from tarry.model.limit import Limit
from tarry.store.memory.store import MemoryStore
from tarry.store.rules.base import BANDS, Query, ShareChange, Store, Want
from tarry.store.rules.ids import uuid7
from tarry.store.rules.sleeper import WORK
from tarry.store.shards.sharded import ShardedStore

NOW = 1_800_000_000 * SECOND
WANTS = [Want("default", band, 100) for band in BANDS]


def shards(names: str) -> ShardedStore:
    return ShardedStore([MemoryStore(name=name) for name in names])


def jobs(count: int) -> list[Job]:
    return [Job(uuid7(), "mail", b"", due=NOW, state_since=NOW) for _ in range(count)]


def test_jobs_spread_over_all() -> None:
    store = shards("abcd")
    store.insert(jobs(4000))
    parts = [len(part.find(Query(limit=10**6))) for part in store.stores]
    assert sum(parts) == 4000
    assert min(parts) > 800


def test_the_order_of_the_list_does_not_matter() -> None:
    one, other = shards("abc"), shards("cab")
    for job in jobs(100):
        assert one.stores[one.shard(job.id)].url == other.stores[other.shard(job.id)].url


def test_one_more_takes_only_its_own() -> None:
    before, after = shards("abc"), shards("abcd")
    moved = [after.shard(job.id) for job in jobs(1000) if after.shard(job.id) != before.shard(job.id)]
    assert set(moved) == {3}
    assert len(moved) < 400


def test_an_id_for_a_key_falls_on_the_shard_of_the_key() -> None:
    store = shards("abc")
    for number in range(50):
        ids = {store.new_id("mail", f"key {number}") for _ in range(5)}
        assert len(ids) == 5
        assert {store.shard(minted) for minted in ids} == {store.home("mail", f"key {number}")}


def test_a_key_on_another_shard_is_refused_with_the_whole_batch() -> None:
    store = shards("abc")
    wrong = next(job for job in jobs(1000) if store.shard(job.id) != store.home("mail", "k"))
    with pytest.raises(ValueError, match="mint its id"):
        store.insert([*jobs(3), replace(wrong, key="k")])
    assert store.find(Query()) == []


def test_a_claim_takes_a_fair_part_of_each() -> None:
    store = shards("abcd")
    store.insert(jobs(1000))
    claimed = store.claim(WANTS, 40, "ann", SECOND, NOW)
    assert sorted(sum(store.shard(job.id) == number for job in claimed) for number in range(4)) == [10] * 4


def test_claims_of_one_visit_all() -> None:
    store = shards("abcd")
    store.insert(jobs(1000))
    claimed = [job for _ in range(8) for job in store.claim(WANTS, 1, "ann", SECOND, NOW)]
    assert sorted(sum(store.shard(job.id) == number for job in claimed) for number in range(4)) == [2] * 4


def test_one_sleeper_hears_every_shard() -> None:
    store = shards("abc")
    for part in store.stores:
        with closing(store.wakeup()) as sleeper:
            sleeper.listen(WORK)
            part.insert(jobs(1))
            assert select.select(sleeper.filenos(), [], [], 10)[0]
            sleeper.wait(0)
            assert not select.select(sleeper.filenos(), [], [], 0)[0]


def test_a_sleeper_does_not_rely_on_news_while_one_store_is_away() -> None:
    store = shards("ab")
    sleeper = store.wakeup()
    sleeper.listen(WORK)
    assert sleeper.is_receiving()
    store.shards[0].mark_away(StoreBusy("it stands still"))
    sleeper.listen(WORK)
    assert not sleeper.is_receiving()
    sleeper.close()


def test_facts_say_whose() -> None:
    assert [fact.name for fact in shards("ab").diagnostics()] == ["memory://a durability", "memory://b durability"]


def test_facts_say_who_has_which_share_of_a_limit() -> None:
    store = shards("ab")
    store.limit("task:mail", Limit(5))
    line = store.diagnostics()[-1]
    assert (line.name, line.advice) == ("limit task:mail", "")
    assert line.value.startswith("5 at once, shared: memory://a 3 at once for ")
    assert line.value.endswith(" s, 0 running")
    assert "; memory://b 2 at once for " in line.value
    now = store.time()
    store.move_shares("ann", now, 15 * SECOND)
    assert "memory://a 3 at once for " in store.diagnostics()[-1].value
    store.stores[0].change_shares([_ended(store.stores[0])], now)
    line = store.diagnostics()[-1]
    assert "memory://a ended, 0 running" in line.value
    assert "no keeper" in line.advice


def _ended(store: Store) -> ShareChange:
    was = store.limits()["task:mail"][0]
    assert was.share is not None
    return ShareChange("task:mail", was, replace(was, share=replace(was.share, until=1)))


@pytest.mark.parametrize("names", ["", "aa"])
def test_no_shards_or_one_twice(names: str) -> None:
    with pytest.raises(ConfigError, match="one or more stores, each named once"):
        shards(names)


def test_all_processes_have_the_time_of_the_same_store_whatever_their_order() -> None:
    def clock(name: str, now: int) -> MemoryStore:
        return MemoryStore(lambda: now, name=name)

    stores = [clock("b", 20), clock("a", 10), clock("c", 30)]
    for order in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
        assert ShardedStore([stores[number] for number in order]).time() == 10
    without = ShardedStore([stores[number] for number in (2, 1, 0)])
    without.shards[1].remove()
    assert without.time() == 20
