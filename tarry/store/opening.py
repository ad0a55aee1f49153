"""From a URL to a store. A new kind of store is one line in `KINDS`."""

# Each store's module and driver are imported at the first use: nobody needs all of them.

import contextlib
import importlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from tarry.errors import ConfigError, StoreMissing
from tarry.model.nearest import did_you_mean
from tarry.store import django_tests
from tarry.store.rules.base import Store
from tarry.store.shards.shard import Shard, absolute_url, parse_shard_url
from tarry.store.shared.creation import stands_in
from tarry.store.shared.masking import mask_password

if TYPE_CHECKING:
    from tarry.store.shards.topology import ListedShard

DEFAULT = "sqlite:///tarry.db"
_FILE = "sqlite:///"


def _sqlite(url: str, durable: bool) -> Store:
    from tarry.store.sqlite.store import SqliteStore
    from tarry.store.sqlite.url import parse_url

    place = parse_url(url)
    return SqliteStore(place.path, durable, place.shared, place.fsync)


def sqlite_files(urls: str | Sequence[str]) -> list[tuple[Path, str]]:
    """The SQLite files among these stores, each with who shares it, as `SqliteStore` takes it."""
    from tarry.store.sqlite.url import parse_url

    plain = [parse_shard_url(url)[0] for url in ([urls] if isinstance(urls, str) else urls)]
    places = [parse_url(url) for url in plain if url.startswith(_FILE)]
    return [(place.path, place.shared) for place in places]


def _memory(url: str, durable: bool) -> Store:
    from tarry.store.memory.store import MemoryStore

    return MemoryStore()


def _redis(url: str, durable: bool) -> Store:
    from tarry.store.redis.opening import open_redis

    return open_redis(url)


def _postgres(url: str, durable: bool) -> Store:
    try:
        from tarry.store.postgres.store import PostgresStore
    except ImportError as error:
        raise ConfigError(f"the PostgreSQL store needs psycopg 3: pip install 'tarry[postgres]' ({error})") from None
    return PostgresStore(url, durable)


def _mysql(url: str, durable: bool) -> Store:
    try:
        from tarry.store.mysql.store import open_mysql
    except ImportError as error:
        raise ConfigError(f"the MySQL store needs PyMySQL: pip install 'tarry[mysql]' ({error})") from None
    return open_mysql(url, durable)


KINDS: dict[str, Callable[[str, bool], Store]] = {
    "sqlite:///": _sqlite,
    "memory://": _memory,
    "postgresql://": _postgres,
    "postgres://": _postgres,
    "mysql://": _mysql,
    "mariadb://": _mysql,
    "redis://": _redis,
    "rediss://": _redis,
    "redis+unix://": _redis,
    "redis+sentinel://": _redis,
    "rediss+sentinel://": _redis,
    "redis+cluster://": _redis,
    "rediss+cluster://": _redis,
}


_MODULES: dict[Callable[[str, bool], Store], tuple[str, ...]] = {
    _sqlite: ("tarry.store.sqlite.store", "tarry.store.sqlite.url"),
    _redis: ("tarry.store.redis.opening",),
    _postgres: ("tarry.store.postgres.store",),
    _mysql: ("tarry.store.mysql.store",),
}
"""What the stores of a kind need; those in memory, which no other process sees, are left out."""


def import_stores(urls: Sequence[str]) -> None:
    """Imports what `open_store` of these URLs would, and opens nothing. Where that fails, `open_store` tells."""
    if len(urls) > 1:
        importlib.import_module("tarry.store.shards.topology_follower")
    for url in urls:
        opened = next((opened for prefix, opened in KINDS.items() if url.startswith(prefix)), None)
        for module in _MODULES.get(opened, ()) if opened else ():
            with contextlib.suppress(ImportError, ConfigError):
                importlib.import_module(module)


def open_store(urls: str | Sequence[str], durable: bool = True, patient: bool = False) -> Store:
    """The store at a URL, or several as one; ConfigError for a URL of no known kind.

    durable: what is acknowledged survives a power cut. Workers open theirs with False: if an outcome is lost, the job
    runs again.

    If some of several stores cannot be reached, they are opened later; StoreUnavailable only if none can be reached.
    patient: not even then.
    """
    each = [urls] if isinstance(urls, str) else urls
    # Only a sharded store can be opened while its server is away.
    store = _open(each[0], durable) if len(each) == 1 and not patient else _open_shards(each, durable, patient)
    store.opened_by = urls
    return store


def _open(urls: str, durable: bool) -> Store:
    urls = django_tests.of_tests(urls)
    for prefix, opened in KINDS.items():
        if urls.startswith(prefix):
            try:
                return opened(urls, durable)
            except StoreMissing as error:
                return _empty(stands_in(error))
    raise ConfigError(f"store {mask_password(urls)!r}: {_way_out(urls)}")


def _way_out(url: str) -> str:
    """What to write instead of a URL of no known kind."""
    scheme, mark, _ = url.partition("://")
    kind = scheme.partition("+")[0]
    if kind.startswith("sqlite"):
        return f"write three slashes and a path, as in {DEFAULT}; four, where the path begins with one"
    # As SQLAlchemy writes them.
    if mark and kind != scheme and KINDS.get(f"{kind}://") in (_postgres, _mysql):
        return f"tarry chooses the driver by itself; begin with {kind}://"
    meant = did_you_mean(scheme, [known.partition("://")[0] for known in KINDS]) if mark else ""
    return f"begin with one of {', '.join(KINDS)} (three slashes and a path: {DEFAULT}){meant}"


def _empty(url: str) -> Store:
    """An empty store, for whoever only reads one that is not there yet."""
    from tarry.store.memory.store import MemoryStore

    class Missing(MemoryStore):
        # What is stored here would be lost.
        def insert(self, jobs: object) -> NoReturn:
            raise StoreMissing(url)

        def insert_bounded(self, *_: object) -> NoReturn:
            raise StoreMissing(url)

        def kv_cas(self, *_: object) -> NoReturn:
            raise StoreMissing(url)

        def kv_write(self, *_: object) -> NoReturn:
            raise StoreMissing(url)

    store = Missing()
    store.url = url
    return store


def _open_shards(urls: Sequence[str], durable: bool, patient: bool) -> Store:
    from tarry.store.shards.sharded import ShardedStore

    if not urls:
        raise ConfigError("store = []: name at least one store")
    make = partial(_shard_of_list, durable)
    store = ShardedStore([_shard(url, durable, len(urls)) for url in urls], make if len(urls) > 1 else None)
    store.connect(patient)
    if store.is_listed:
        from tarry.store.shards.topology_follower import TopologyFollower

        store.follow(TopologyFollower(store).stop)
    return store


def _shard_of_list(durable: bool, listed: "ListedShard") -> Shard:
    """A store of the list of shards."""
    return Shard(listed.url, lambda: _open(listed.url, durable), name=listed.name, draining=listed.state != "up")


def _shard(url: str, durable: bool, among: int) -> Shard:
    plain, name, draining = parse_shard_url(url) if among > 1 else (url, "", False)
    plain = absolute_url(plain)
    return Shard(plain, lambda: _open(plain, durable), name=name, draining=draining)
