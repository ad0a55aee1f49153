"""The URL of the embedded store: a path, and who else uses the file."""

from pathlib import Path
from typing import NamedTuple

from tarry.errors import ConfigError
from tarry.store.shared.url_options import choice, read_options, switch

PREFIX = "sqlite:///"
OPTIONS = {
    "shared": choice(
        "no",
        "yes: the file is also your own program's, which uses sqlite3, SQLAlchemy or Django; apsw: it uses apsw",
        {"no": "", "yes": "yes", "apsw": "apsw"},
    ),
    "fsync": switch("yes", "no: several times as many enqueues a second; a power cut may take the last ones"),
}


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
    return SqliteUrl(Path(path).absolute(), **read_options(f"{PREFIX}{path}", OPTIONS, query))


def _split_query(text: str) -> tuple[str, str]:
    """Path and query."""
    # A question mark may also be part of the path.
    path, mark, query = text.rpartition("?")
    return (path, query) if mark and "=" in query and "/" not in query else (text, "")
