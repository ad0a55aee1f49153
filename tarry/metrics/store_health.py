"""How a store is, for people: whether it answers, how fast, what its operator should know. Of several stores, each."""

import time
from collections.abc import Sequence

from msgspec import Struct

from tarry.errors import StoreError
from tarry.store.rules.base import Diagnostic, Store
from tarry.store.shards.shard import Shard
from tarry.store.shards.sharded import ShardedStore


class StoreHealth(Struct, frozen=True):
    """One store. It answers if `trouble` is empty."""

    url: str
    """Where it is, without passwords."""
    trouble: str = ""
    """Why it does not answer."""
    latency: float | None = None
    """Seconds that the smallest read took; null: it did not answer."""
    draining: bool = False
    """It gets no new jobs."""
    facts: Sequence[Diagnostic] = ()
    """Its version, how durable it is, its size, and advice where something is not as it should be."""


def read_health(store: Store) -> list[StoreHealth]:
    """How each of the stores is now. An error of a store is its trouble, and not raised."""
    if isinstance(store, ShardedStore):
        return [_shard_health(shard) for shard in store.shards if not shard.is_removed]
    return [_health(store)]


def _shard_health(shard: Shard) -> StoreHealth:
    # By the shard, which knows whether the store is away: then nobody waits for it.
    try:
        latency = shard.ask(_measure_latency)
        facts = shard.ask(lambda store: store.diagnostics())
    except (StoreError, OSError) as error:
        return StoreHealth(shard.url, str(error), None, shard.draining)
    return StoreHealth(shard.url, "", latency, shard.draining, facts)


def _health(store: Store) -> StoreHealth:
    try:
        return StoreHealth(store.url, "", _measure_latency(store), False, store.diagnostics())
    except (StoreError, OSError) as error:
        return StoreHealth(store.url, str(error))


def _measure_latency(store: Store) -> float:
    """Seconds of a read of one small value."""
    began = time.perf_counter()
    store.kv_get("health")
    return time.perf_counter() - began
