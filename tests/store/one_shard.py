"""Several stores as one, of which one has all jobs in lanes, and each may use a limit of a task alone.

The promises about limits, turns and rates are those of one store: what several of them make of a limit together is
tested in `test_shares` and `test_share_mover`.
"""

from tarry.model.limit import EACH, QUEUE, Limit
from tarry.store.rules.base import Store
from tarry.store.shards import shares
from tarry.store.shards.sharded import ShardedStore


class LanesTogether(ShardedStore):
    def home(self, task: str, key: str | None, lane: str | None = None) -> int | None:
        return super().home(task, key, None if lane is None else "all")

    def limit(self, name: str, limit: Limit | None) -> None:
        if limit is None or name.startswith(EACH):
            super().limit(name, limit)
            return
        whole = [shares.share_of(limit, limit.most, limit.count)] * len(self.shards)
        # At least one each: here nobody moves shares.
        parts = [
            (limit.most and max(1, part.most or 0), part.count) for part in shares.first_shares(limit, len(self.shards))
        ]
        equal = [shares.share_of(limit, most, limit.count and max(1, count)) for most, count in parts]
        for shard, share in zip(self.shards, equal if name.startswith(QUEUE) else whole, strict=True):
            shard.store.limit(name, share)


def with_lanes_together(store: Store) -> Store:
    """The same store, so."""
    # Of its own class, too: a cluster closes more than its parts.
    store.__class__ = type("Together", (LanesTogether, type(store)), {})
    return store
