"""From a URL to a store. A new kind of store is one line in `KINDS`; its driver is imported when first needed."""

from collections.abc import Callable, Sequence
from pathlib import Path

from tarry.errors import ConfigError
from tarry.store.base import Store

DEFAULT = "sqlite:///tarry.db"


def _sqlite(url: str, durable: bool) -> Store:
    from tarry.store.sqlite import SqliteStore

    path = url.removeprefix("sqlite:///")
    if not path or path.startswith(":memory:"):
        raise ConfigError(f"{url}: jobs must outlive the process; name a file, as in {DEFAULT}")
    return SqliteStore(Path(path), durable)


def _memory(url: str, durable: bool) -> Store:
    from tarry.store.memory import MemoryStore

    return MemoryStore()


KINDS: dict[str, Callable[[str, bool], Store]] = {"sqlite:///": _sqlite, "memory://": _memory}


def open_store(urls: str | Sequence[str], durable: bool = True) -> Store:
    """The store at a URL, or several as one; ConfigError for a URL that names no kind of store known here.

    durable: what is acknowledged survives a power cut. Workers, whose outcomes may be lost (the job runs again),
    open theirs with False.
    """
    if not isinstance(urls, str):
        if len(urls) != 1:
            return _sharded(urls, durable)
        urls = urls[0]
    for prefix, opened in KINDS.items():
        if urls.startswith(prefix):
            return opened(urls, durable)
    raise ConfigError(f"store {urls!r}: begin with one of {', '.join(KINDS)} (three slashes and a path: {DEFAULT})")


def _sharded(urls: Sequence[str], durable: bool) -> Store:
    from tarry.store.sharded import ShardedStore

    if not urls:
        raise ConfigError("store = []: name at least one store")
    return ShardedStore([open_store(url, durable) for url in urls])
