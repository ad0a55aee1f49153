"""The store that is spread over a Redis Cluster."""

from collections.abc import Sequence

from tarry.store.base import Fact
from tarry.store.redis.cluster import Cluster
from tarry.store.redis.store import SAFER, RedisStore
from tarry.store.shards.sharded import ShardedStore
from tarry.store.shared.bell import Bell
from tarry.store.shared.transport import Transport


class ClusterStore(ShardedStore):
    """Parts that lie in different hash slots, used as one."""

    def __init__(self, cluster: Cluster, tags: Sequence[str], transport: Transport) -> None:
        super().__init__([RedisStore(cluster.part(tag), f"{{{tag}}}") for tag in tags])
        self.url = cluster.url
        self._cluster = cluster
        self._tags = tags
        self._transport = transport

    def bell(self) -> Bell:
        """One connection hears all parts."""
        return self._cluster.bell([f"{{{tag}}}:bell" for tag in self._tags])

    def facts(self) -> list[Fact]:
        return [*super().facts(), self._transport.fact(SAFER)]

    def close(self) -> None:
        super().close()
        self._cluster.close()
