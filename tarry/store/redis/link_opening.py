"""Opens the store at a redis URL of any form."""

from tarry.errors import ConfigError
from tarry.store.base import Store
from tarry.store.redis.url import Target, parsed

try:
    import hiredis  # noqa: F401 -- is it there?
except ImportError:
    raise ConfigError('a redis store needs its driver: pip install "tarry[redis]"') from None

from tarry.store.redis.cluster_part import tags
from tarry.store.redis.cluster_store import ClusterStore
from tarry.store.redis.link_target import clustered, linked
from tarry.store.redis.store import RedisStore


def opened(url: str) -> Store:
    """The store. ConfigError, StoreError, StoreUnavailable."""
    target = parsed(url)
    return _spread(target) if target.kind == "cluster" else _whole(target)


def _whole(target: Target) -> Store:
    link = linked(target)
    try:
        link.prove()
        return RedisStore(link, f"{{{target.prefix}}}", target.transport)
    except BaseException:
        link.close()
        raise


def _spread(target: Target) -> Store:
    cluster = clustered(target)
    try:
        cluster.prove()
        return ClusterStore(cluster, tags(target.prefix, target.parts), target.transport)
    except BaseException:
        cluster.close()
        raise
