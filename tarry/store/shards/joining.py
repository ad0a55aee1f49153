"""What is done with a store before it is used with others: it must not be one of them already, and gets what holds on
all."""

import secrets

from tarry.errors import TarryError
from tarry.model.limit import EACH, Limit
from tarry.store.rules import key_limits
from tarry.store.rules.base import Store
from tarry.store.rules.partial_result import reachable_part
from tarry.store.shards import shares
from tarry.store.shards.shard import Shard
from tarry.store.shards.sharded import ShardedStore
from tarry.store.shards.topology import Topology, read
from tarry.store.shards.topology_follower import shards_in_order

_PROBE = "shards:probe"


def check_new(store: ShardedStore, shard: Shard, listing: Topology) -> None:
    """TarryError if the store is one of these already, or is used with others. StoreError."""
    there = shard.ask(read)
    # One that was removed, or forgotten, has the list of that time.
    was_here = there is not None and there.version <= listing.version and _was_removed(shard.name, there, listing)
    if there is not None and not was_here:
        raise TarryError(f"{shard.url} is in a list of stores already: its own, or this one's under another name")
    # Only the store knows: one server may have many addresses.
    probe, was = secrets.token_bytes(16), shard.ask(lambda one: one.kv_get(_PROBE))
    shard.ask(lambda one: one.kv_cas(_PROBE, probe, was))
    same = [one for one in shards_in_order(store) if one.ask(lambda one: one.kv_get(_PROBE)) == probe]
    shard.ask(lambda one: one.kv_cas(_PROBE, None, probe))
    if same:
        raise TarryError(f"{shard.url} is in the list already, as {same[0].name}")


def _was_removed(name: str, there: Topology, listing: Topology) -> bool:
    states = {one.name: one.state for one in listing.shards}
    return states.get(name) == "removed" and name in {one.name for one in there.shards}


def prepare(store: ShardedStore, shard: Shard) -> None:
    """Gives the store what holds on all: which queues are paused, and limits, of which it has no share yet.
    StoreError."""
    paused = {queue for queue, is_paused in reachable_part(store.queues).items() if is_paused}
    had = {queue for queue, is_paused in shard.ask(lambda one: one.queues()).items() if is_paused}
    for queue in paused ^ had:
        shard.ask(lambda one: one.pause(queue, queue in paused))  # noqa: B023
    limits = {name: limit for name, (limit, _) in reachable_part(store.limits).items() if limit != Limit()}
    for name in limits | shard.ask(lambda one: one.limits()):
        limit = limits.get(name)
        if name.startswith(EACH):
            shard.ask(lambda one: _set_for_each(store, one, name, limit))  # noqa: B023
        else:
            shard.ask(lambda one: one.limit(name, limit and _no_share(limit)))  # noqa: B023


def _no_share(whole: Limit) -> Limit:
    # The mover of shares raises it: until then the others may have all.
    return shares.share_of(whole, None if whole.most is None else 0, 0)


def _set_for_each(store: Store, one: Store, name: str, limit: Limit | None) -> None:
    task = name.removeprefix(EACH)
    one.limit(name, limit and limit.without_keys)
    wanted, there = (key_limits.read_key_limits(each, task) for each in (store, one))
    for lane in wanted | there:
        if wanted.get(lane) != there.get(lane):
            one.limit_key(task, lane, wanted.get(lane))
