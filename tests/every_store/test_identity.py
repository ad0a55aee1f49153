"""A store that came back empty, older, or as another one is told, until a person accepts it."""

from pathlib import Path

import msgspec
import pytest

from tarry import App
from tarry.alert import stores as stores_module
from tarry.alert.stores import StoreChecks, shards_of
from tarry.config.config import Alerts
from tarry.model.duration import HOUR
from tarry.store.opening import open_store
from tarry.store.shards.identity import CELL, StoreIdentity, StoreMemory
from tarry.store.shards.shard import Shard
from tests.servers.redis import RedisServer

NOW = 1_800_000_000_000_000


def put(shard: Shard, identity: StoreIdentity | None) -> None:
    """As if the store had been brought back so."""
    value = None if identity is None else msgspec.json.encode(identity)
    assert shard.ask(lambda store: store.kv_cas(CELL, value, store.kv_get(CELL)))


def identity(shard: Shard) -> StoreIdentity:
    return msgspec.json.decode(shard.ask(lambda store: store.kv_get(CELL)) or b"", type=StoreIdentity)


def test_what_has_changed_is_told_until_it_is_accepted(app: App, tmp_path: Path) -> None:
    for number, shard in enumerate(shards_of(app.client.store)):
        here, there = (StoreMemory(tmp_path / f"{number} {host}") for host in ("here", "there"))
        assert (here.finding(shard), here.watch(shard, NOW), there.watch(shard, NOW + 5)) == ("", "", "")
        assert here.watch(shard, NOW + HOUR) == there.watch(shard, NOW + HOUR) == ""
        seen = identity(shard)
        for other, told in {
            StoreIdentity(seen.id, NOW): "it is as it was at 2027-01-15 08:00:00 UTC; ",
            StoreIdentity("another", NOW + 2 * HOUR): "it is another store than before; ",
        }.items():
            put(shard, other)
            at = seen.seen + 60_000_000
            last = "it was last seen at 2027-01-15 09:00:00 UTC"
            assert there.finding(shard) == here.watch(shard, at) == there.watch(shard, at) == told + last
            # Also once it is as new as before, and in a process that is new.
            put(shard, StoreIdentity(other.id, NOW + 3 * HOUR))
            assert StoreMemory(tmp_path / f"{number} here").watch(shard, at).endswith(last)
            here.accept(shard, at + 1)
            assert (here.finding(shard), there.watch(shard, at + 2), there.finding(shard)) == ("", "", "")
            put(shard, seen)
            here.accept(shard, NOW + HOUR)
            there.accept(shard, NOW + HOUR)


def test_an_empty_one_is_told_but_for_a_file_that_was_deleted(app: App, tmp_path: Path) -> None:
    for number, shard in enumerate(shards_of(app.client.store)):
        memory = StoreMemory(tmp_path / str(number))
        assert memory.watch(shard, NOW) == ""
        put(shard, None)
        empty = "it came back empty; it was last seen at 2027-01-15 08:00:00 UTC"
        assert memory.watch(shard, NOW + 1) == ("" if shard.url.startswith("sqlite:") else empty)


@pytest.mark.parametrize("cell", [b"{", b"[]", b'{"id":"a","seen":9e99}', b'{"id":"a","seen":%d}' % 2**62, b"\xff"])
def test_a_store_that_says_nothing_sensible_is_told_and_can_be_accepted(app: App, tmp_path: Path, cell: bytes) -> None:
    for number, shard in enumerate(shards_of(app.client.store)):
        memory = StoreMemory(tmp_path / str(number))
        assert memory.watch(shard, NOW) == ""
        shard.ask(lambda store: store.kv_cas(CELL, cell, store.kv_get(CELL)))
        is_file = shard.url.startswith("sqlite:")
        assert bool(memory.watch(shard, NOW + 1)) != is_file
        memory.accept(shard, NOW + 2)
        assert memory.watch(shard, NOW + 3) == ""


def test_a_memory_that_cannot_be_read_is_none(app: App, tmp_path: Path) -> None:
    (shard, *_) = shards_of(app.client.store)
    (tmp_path / "broken").write_bytes(b"{")
    assert StoreMemory(tmp_path / "broken").watch(shard, NOW) == ""
    assert StoreMemory(tmp_path / "no" / "such" / "folder").watch(shard, NOW) == ""


def test_a_flushed_server_is_told_by_alert(
    redis_server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores_module, "FACTS_EVERY", 0.0)
    redis_server.empty()
    memory = StoreMemory(tmp_path / "stores")
    seen = StoreChecks(shards_of(open_store(redis_server.url)), Alerts(), memory)
    seen.check()
    assert seen.local_conditions == []
    redis_server.call("FLUSHALL")
    seen.check()
    (told,) = seen.local_conditions
    assert told.what.startswith(f"{redis_server.url}: it came back empty; it was last seen at ")
    assert "tarry store accept" in told.todo
    memory.accept(seen._shards[0], NOW)
    seen.check()
    assert seen.local_conditions == []
    seen.close(own=True)
