"""A password that goes only to servers that may have it.

A server chooses how it wants to be convinced, and one of the ways is to be told the password. libpq does so over any
connection unless it is told not to (`require_auth`, since libpq 16).
"""

from collections.abc import Mapping
from typing import Any

from psycopg import pq

from tarry.errors import ConfigError
from tarry.store.postgres.url import Place
from tarry.store.shared.transport import Transport, is_local

_VERIFYING = ("verify-ca", "verify-full")
_ABLE = 160000
"""The version of libpq from which on it knows `require_auth`."""


def guarded(place: Place) -> dict[str, Any]:
    """What libpq is to be given, so that no password goes in clear to whoever answers. ConfigError if it cannot be."""
    settings = _effective(place.connect)
    safe = transport(place, settings.get("sslmode") in _VERIFYING).safe
    if safe or "require_auth" in settings:
        return dict(place.connect)
    if pq.version() < _ABLE:
        raise ConfigError(
            f"{place.url}: this libpq ({pq.version() // 10000}) would tell the password to whoever answers there: add"
            " sslmode=verify-full, or pip install 'psycopg[binary]'"
        )
    return place.connect | {"require_auth": "!password"}


def transport(place: Place, encrypted: bool) -> Transport:
    """What a connection is worth that is encrypted, or not."""
    settings = _effective(place.connect)
    hosts = (settings.get("hostaddr") or settings.get("host") or "").split(",")
    # A service's file may name any host.
    local = "service" not in settings and all(map(is_local, hosts))
    return Transport(local, encrypted, encrypted and settings.get("sslmode") in _VERIFYING)


def _effective(given: Mapping[str, Any]) -> dict[str, Any]:
    """What is given, and what PGHOST, PGSSLMODE and the like say where nothing is."""
    defaults = {option.keyword.decode(): option.val.decode() for option in pq.Conninfo.get_defaults() if option.val}
    return defaults | dict(given)
