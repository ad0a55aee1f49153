"""The URL of the embedded store: a path, and who else uses the file."""

from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl

from tarry.errors import ConfigError

PREFIX = "sqlite:///"


class SqliteUrl(NamedTuple):
    """path: absolute. shared: a key of `sqlite.link.database.SHARED`. fsync: whether enqueues are fsynced."""

    path: Path
    shared: str
    fsync: bool


def parse_url(url: str) -> SqliteUrl:
    """ConfigError for a path that is no file, or an option that is unknown."""
    path, query = _split_query(url.removeprefix(PREFIX))
    if not path or path.startswith(":memory:") or Path(path).name.startswith("file:"):
        raise ConfigError(f"{url}: jobs must outlive the process; name a file, as in {PREFIX}tarry.db")
    given = dict(parse_qsl(query, keep_blank_values=True))
    shared, fsync = given.pop("shared", "no"), given.pop("fsync", "yes")
    if given or shared not in ("no", "yes", "apsw") or fsync not in ("no", "yes"):
        raise ConfigError(
            f"{url}: after the ? there may be shared=yes (the file is also your own program's, which uses sqlite3,"
            " SQLAlchemy or Django) or shared=apsw (your program uses apsw), and fsync=no (a power cut may take the"
            " last enqueues)"
        )
    return SqliteUrl(Path(path).absolute(), "" if shared == "no" else shared, fsync == "yes")


def _split_query(text: str) -> tuple[str, str]:
    """Path and query."""
    # A question mark may also be part of the path.
    path, mark, query = text.rpartition("?")
    return (path, query) if mark and "=" in query and "/" not in query else (text, "")
