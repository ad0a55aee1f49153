"""Under Django's tests, the URL of Django's real database stands for the test database."""

# Otherwise a test would put jobs into the real one.

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from tarry.errors import ConfigError

DJANGO = "django.db"
_KINDS = {"postgresql": ("postgresql", "postgres"), "mysql": ("mysql", "mariadb"), "sqlite3": ("sqlite",)}
_PORTS = {"postgresql": 5432, "mysql": 3306}
_HERE = frozenset({"", "localhost", "127.0.0.1", "::1"})
# The names of Django's databases outside tests, by alias. Django's tests overwrite the names in the settings.
_real: dict[str, str] = {}


def remember() -> None:
    """Notes the names of Django's databases, unless its tests run already; called when an app is made."""
    if DJANGO in sys.modules and _is_configured() and not _testing():
        _real.update({alias: str(settings.get("NAME") or "") for alias, settings in _databases()})


def of_tests(url: str) -> str:
    """The URL; under Django's tests, that of the test database if the URL names the real one. ConfigError if the test
    database is in memory, which no other connection can see."""
    if DJANGO not in sys.modules or not _is_configured() or not _testing():
        return url
    for alias, settings in _databases():
        if _names_the_real_one(url, alias, settings):
            return _with_database(url, str(settings["NAME"]))
    return url


def _is_configured() -> bool:
    return bool(sys.modules["django.conf"].settings.configured)


def _testing() -> bool:
    """Whether `setup_test_environment` was called, as test runners and pytest-django do."""
    # That function puts an `outbox` into this module.
    return hasattr(sys.modules.get("django.core.mail"), "outbox")


def _databases() -> Iterator[tuple[str, Mapping[str, Any]]]:
    yield from sys.modules[DJANGO].connections.settings.items()


def _names_the_real_one(url: str, alias: str, settings: Mapping[str, Any]) -> bool:
    kind = str(settings.get("ENGINE", "")).rpartition(".")[2]
    parts, now = urlsplit(url), str(settings["NAME"])
    if parts.scheme not in _KINDS.get(kind, ()):
        return False
    if kind == "sqlite3":
        # Only the noted name counts: Django's name for a test file is not derived from the real one.
        real = _real.get(alias)
        return bool(real) and _file(url) == Path(str(real)).absolute() and now != real
    if not _same_server(parts.hostname, parts.port, settings, _PORTS[kind]):
        return False
    name = unquote(parts.path.lstrip("/"))
    # The app may be made after the tests renamed the database; then its usual test name is the only hint.
    return name != now and (name == _real.get(alias) or f"test_{name}" == now)


def _same_server(host: str | None, port: int | None, settings: Mapping[str, Any], usual: int) -> bool:
    # All names of this host are the same server, however URL and settings write it.
    theirs = str(settings.get("HOST") or "")
    same_host = (host or "") == theirs or {host or "", theirs} <= _HERE
    return same_host and (port or usual) == int(settings.get("PORT") or usual)


def _with_database(url: str, name: str) -> str:
    parts = urlsplit(url)
    if parts.scheme != "sqlite":
        return parts._replace(path=f"/{name}").geturl()
    if ":memory:" in name or "mode=memory" in name:
        raise ConfigError(
            f"{url} is Django's real database, and its tests have theirs in memory: use the fixture `jobs` of tarry,"
            ' or give the test database a file, as in "TEST": {"NAME": "test.db"}'
        )
    query = f"?{parts.query}" if parts.query else ""
    return f"sqlite:///{Path(name).absolute()}{query}"


def _file(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///").partition("?")[0]).absolute()
