"""Opens the store at a redis URL of any form."""

from collections.abc import Sequence

from msgspec.structs import replace

from tarry.errors import ConfigError
from tarry.store.redis.url import Target, parse_url
from tarry.store.rules.base import Diagnostic, Store

try:
    # Before the modules of the link, which need it: the user gets one line that helps.
    import hiredis  # noqa: F401 -- is it there?
except ImportError:
    raise ConfigError('a redis store needs its driver: pip install "tarry[redis]"') from None

from tarry.store.redis.link.access import Access, ServerAddress
from tarry.store.redis.link.cluster import ClusterNodes, ClusterPartLink, tags
from tarry.store.redis.link.replicas import Quorum
from tarry.store.redis.link.sentinel import Sentinels
from tarry.store.redis.link.server import FixedServer, ServerFinder, ServerLink
from tarry.store.redis.store import SAFER, RedisStore
from tarry.store.rules.sleeper import Wakeup
from tarry.store.shards.sharded import ShardedStore
from tarry.store.shared.transport import Transport


class ClusterStore(ShardedStore):
    """Parts in different hash slots, used as one store."""

    def __init__(self, cluster: ClusterNodes, tags: Sequence[str], transport: Transport) -> None:
        super().__init__([RedisStore(ClusterPartLink(cluster, tag), f"{{{tag}}}") for tag in tags])
        self.url = cluster.url
        self._cluster = cluster
        self._tags = tags
        self._transport = transport

    def wakeup(self) -> Wakeup:
        """A sleeper on all parts."""
        # One connection instead of one for each part: any node passes on what is PUBLISHed (`ClusterNodes.wakeup`).
        return self._cluster.wakeup([f"{{{tag}}}" for tag in self._tags])

    def diagnostics(self) -> list[Diagnostic]:
        return [*super().diagnostics(), self._transport.fact(SAFER)]

    def close(self) -> None:
        super().close()
        self._cluster.close()


def open_redis(url: str) -> Store:
    """The store. ConfigError, StoreError, StoreUnavailable."""
    target = parse_url(url)
    return _open_cluster(target) if target.kind == "cluster" else _open_server(target)


def _open_server(target: Target) -> Store:
    link = server_link(target)
    try:
        link.check()
        return RedisStore(link, f"{{{target.prefix}}}", target.transport)
    except BaseException:
        link.close()
        raise


def _open_cluster(target: Target) -> Store:
    cluster = cluster_of(target)
    try:
        cluster.check()
        return ClusterStore(cluster, tags(target.prefix, target.parts), target.transport)
    except BaseException:
        cluster.close()
        raise


def server_link(target: Target) -> ServerLink:
    """The link to one server, at a fixed address or found by sentinels; opens nothing yet."""
    return ServerLink(target.url, _finder(target), _access(target), _quorum(target))


def cluster_of(target: Target) -> ClusterNodes:
    """The cluster of these nodes; opens nothing yet."""
    return ClusterNodes(target.url, _addresses(target), replace(_access(target), mode="cluster"), _quorum(target))


def _addresses(target: Target) -> list[ServerAddress]:
    return [ServerAddress(*address) for address in target.addresses]


def _access(target: Target) -> Access:
    return Access(target.user, target.password, target.database, target.timeout, target.tls)


def _quorum(target: Target) -> Quorum:
    return Quorum(target.options["replicas"], target.options["confirm"] == "disk")


def _finder(target: Target) -> ServerFinder:
    if target.kind != "sentinel":
        return FixedServer(_addresses(target)[0])
    user, password = target.options["sentinel_user"] or "", target.options["sentinel_password"] or ""
    access = Access(user, password, 0, target.timeout, target.tls, "sentinel")
    return Sentinels(_addresses(target), target.service, access)
