"""Ids for jobs whose key says on which of several stores they live."""

import os
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest
from msgspec.structs import replace

from tarry.store.memory.store import MemoryStore
from tarry.store.rules.ids import uuid7
from tarry.store.shards import location
from tarry.store.shards.sharded import ShardedStore
from tarry.store.shards.topology import ListedShard

KEYS = [f"key {number}" for number in range(400)]


@pytest.fixture
def store() -> ShardedStore:
    return ShardedStore([MemoryStore(name=name) for name in "abcdefgh"])


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Each id that is drawn."""
    ids: list[bytes] = []

    def draw() -> bytes:
        ids.append(uuid7())
        return ids[-1]

    monkeypatch.setattr(location, "uuid7", draw)
    return ids


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> "Clock":
    clock = Clock()
    monkeypatch.setattr(location, "time", clock)
    return clock


class Clock:
    """The module `time`, as far as it is asked. It stands still."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


def keyed(store: ShardedStore, rounds: int) -> list[bytes]:
    return [store.new_id("mail", key) for _ in range(rounds) for key in KEYS]


@pytest.mark.usefixtures("clock")
def test_each_draw_gives_an_id(store: ShardedStore, drawn: list[bytes]) -> None:
    ids = keyed(store, 5)
    assert len(set(ids)) == len(ids) == 2000
    assert len(drawn) < 1.4 * len(ids)
    assert [store.shard(id) for id in ids] == 5 * [store.home("mail", key) for key in KEYS]


def test_those_of_one_store_grow_whatever_comes_between(store: ShardedStore) -> None:
    ids: list[bytes] = []
    for number in range(2000):
        key = None if number % 7 == 0 else KEYS[number % len(KEYS)]
        ids.append(store.new_id("mail", key))
    for place in range(8):
        assert all(one < other for one, other in pairwise(id for id in ids if store.shard(id) == place))


def test_those_of_one_store_grow_in_each_thread(store: ShardedStore) -> None:
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda _: keyed(store, 2), range(16)))
    assert len({id for ids in found for id in ids}) == 16 * 2 * len(KEYS)
    for ids in found:
        for place in range(8):
            assert all(one < other for one, other in pairwise(id for id in ids if store.shard(id) == place))


def test_none_is_older_than_its_job(store: ShardedStore, drawn: list[bytes], clock: Clock) -> None:
    for key in KEYS[:40]:
        store.new_id("mail", key)
        before = len(drawn)
        clock.now += location.KEPT_FOR
        assert store.new_id("mail", key) in drawn[before:]


@pytest.mark.usefixtures("clock")
def test_a_forked_child_gives_out_none_of_its_parent(store: ShardedStore) -> None:
    keyed(store, 1)
    hear, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(tell, b"".join(keyed(store, 5)))
        finally:
            os._exit(0)
    os.close(tell)
    with os.fdopen(hear, "rb") as answer:
        data = answer.read()
    os.waitpid(pid, 0)
    theirs = {data[at : at + 16] for at in range(0, len(data), 16)}
    assert len(theirs) == 5 * len(KEYS)
    assert theirs.isdisjoint(keyed(store, 3))


@pytest.mark.usefixtures("clock")
def test_after_a_change_of_the_stores_they_belong_where_their_keys_do(store: ShardedStore) -> None:
    keyed(store, 1)
    listed = [ListedShard(f"memory://{name}", f"memory://{name}", "up") for name in "abcdefgh"]
    store.use([replace(one, state="draining" if number < 4 else "up") for number, one in enumerate(listed)])
    for _ in range(3):
        for key in KEYS:
            assert store.shard(store.new_id("mail", key)) == store.home("mail", key) in range(4, 8)
