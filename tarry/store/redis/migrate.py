"""For `tarry migrate`: shows and makes the steps for the keys in Redis, of each part of a cluster."""

import contextlib
from collections.abc import Iterator

from tarry.store.redis.link.cluster import ClusterPartLink, tags
from tarry.store.redis.opening import cluster_of, server_link
from tarry.store.redis.schema import RedisSchema
from tarry.store.redis.url import parse_url


def pending(url: str) -> list[str]:
    """The steps that are left to do, one line each; raises what opening the store raises."""
    with _schemas(url) as schemas:
        return list(dict.fromkeys(line for schema in schemas for line in schema.pending_steps()))


def migrate(url: str) -> list[str]:
    """Makes the steps that are left; answers those that this call made."""
    with _schemas(url) as schemas:
        return list(dict.fromkeys(line for schema in schemas for line in schema.migrate()))


@contextlib.contextmanager
def _schemas(url: str) -> Iterator[list[RedisSchema]]:
    target = parse_url(url)
    if target.kind == "cluster":
        with contextlib.closing(cluster_of(target)) as cluster:
            cluster.check()
            parts = tags(target.prefix, target.parts)
            yield [RedisSchema(ClusterPartLink(cluster, tag), f"{{{tag}}}") for tag in parts]
    else:
        with contextlib.closing(server_link(target)) as link:
            link.check()
            yield [RedisSchema(link, f"{{{target.prefix}}}")]
