"""From a URL to a store. A new kind of store is one line in `KINDS`; its driver is imported when first needed."""

from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import parse_qsl

from tarry.errors import ConfigError
from tarry.store.base import Store

DEFAULT = "sqlite:///tarry.db"


def _sqlite(url: str, durable: bool) -> Store:
    from tarry.store.sqlite import SqliteStore

    path, query = _parted(url.removeprefix("sqlite:///"))
    if not path or path.startswith(":memory:"):
        raise ConfigError(f"{url}: jobs must outlive the process; name a file, as in {DEFAULT}")
    return SqliteStore(Path(path), durable, _shared(url, query))


def _parted(text: str) -> tuple[str, str]:
    """Path and query; a question mark may also be part of the path."""
    path, mark, query = text.rpartition("?")
    return (path, query) if mark and "=" in query and "/" not in query else (text, "")


def _shared(url: str, query: str) -> str:
    """Who else is in the file, as `sqlite_connection.SHARED`."""
    given = dict(parse_qsl(query, keep_blank_values=True))
    shared = given.pop("shared", "no")
    if given or shared not in ("no", "yes", "apsw"):
        raise ConfigError(
            f"{url}: after the ? there may be shared=yes (the file is also your own program's, which uses sqlite3,"
            " SQLAlchemy or Django) or shared=apsw (your program uses apsw)"
        )
    return "" if shared == "no" else shared


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
