"""From what a URL says to the link, or the cluster, that it means. Opens nothing yet."""

from msgspec.structs import replace

from tarry.store.redis.cluster import Cluster
from tarry.store.redis.link_door import Access, Place
from tarry.store.redis.link_replicas import Quorum
from tarry.store.redis.link_server import Finder, Fixed, ServerLink
from tarry.store.redis.sentinel import Sentinels
from tarry.store.redis.url import Target


def linked(target: Target) -> ServerLink:
    """The link to one server, however it is found."""
    return ServerLink(target.url, _finder(target), _access(target), _quorum(target))


def clustered(target: Target) -> Cluster:
    """The cluster that its nodes belong to."""
    return Cluster(target.url, _places(target), replace(_access(target), mode="cluster"), _quorum(target))


def _places(target: Target) -> list[Place]:
    return [Place(*place) for place in target.places]


def _access(target: Target) -> Access:
    return Access(target.user, target.password, target.database, target.timeout, target.tls)


def _quorum(target: Target) -> Quorum:
    return Quorum(int(target.options["replicas"]), target.options["confirm"] == "disk")


def _finder(target: Target) -> Finder:
    if target.kind != "sentinel":
        return Fixed(_places(target)[0])
    user, password = target.options["sentinel_user"], target.options["sentinel_password"]
    access = Access(user, password, 0, target.timeout, target.tls, "sentinel")
    return Sentinels(_places(target), target.service, access)
