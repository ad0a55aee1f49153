"""The store that is spread over a Redis Cluster."""

from collections.abc import Sequence

from tarry.store.bell import Bell
from tarry.store.redis.cluster import Cluster
from tarry.store.redis.store import RedisStore
from tarry.store.shards.sharded import ShardedStore


class ClusterStore(ShardedStore):
    """Parts that lie in different hash slots, used as one."""

    def __init__(self, cluster: Cluster, tags: Sequence[str]) -> None:
        super().__init__([RedisStore(cluster.part(tag), f"{{{tag}}}") for tag in tags])
        self.url = cluster.url
        self._cluster = cluster
        self._tags = tags

    def bell(self) -> Bell:
        """One connection hears all parts."""
        return self._cluster.bell([f"{{{tag}}}:bell" for tag in self._tags])

    def close(self) -> None:
        super().close()
        self._cluster.close()
