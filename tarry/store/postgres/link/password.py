"""Sends a password only to servers that may have it.

The server chooses the method of authentication, and with one method the client sends the password in clear. libpq does
so over any connection, unless `require_auth` forbids it (since libpq 16).
"""

from collections.abc import Mapping
from typing import Any

from psycopg import pq

from tarry.errors import ConfigError
from tarry.store.postgres.link.url import PostgresUrl
from tarry.store.shared.transport import Transport, is_local

_VERIFYING = ("verify-ca", "verify-full")
_ABLE = 160000
"""The first version of libpq with `require_auth`."""


def connect_options(url: PostgresUrl) -> dict[str, Any]:
    """Options for libpq, so that no password goes in clear to an unknown server. ConfigError if that is impossible."""
    settings = _effective(url.connect)
    # A given require_auth is the user's decision.
    safe = transport(url, settings.get("sslmode") in _VERIFYING).safe
    if safe or "require_auth" in settings:
        return dict(url.connect)
    if pq.version() < _ABLE:
        raise ConfigError(
            f"{url.shown}: this libpq ({pq.version() // 10000}) would tell the password to whoever answers there: add"
            " sslmode=verify-full, or pip install 'psycopg[binary]'"
        )
    return url.connect | {"require_auth": "!password"}


def transport(url: PostgresUrl, encrypted: bool) -> Transport:
    """How safe the way to the server is. encrypted: whether the connection uses TLS."""
    settings = _effective(url.connect)
    hosts = (settings.get("hostaddr") or settings.get("host") or "").split(",")
    # The file of a service may name any host.
    local = "service" not in settings and all(map(is_local, hosts))
    return Transport(local, encrypted, encrypted and settings.get("sslmode") in _VERIFYING)


def _effective(given: Mapping[str, Any]) -> dict[str, Any]:
    """The given options, completed by options of the environment: PGHOST, PGSSLMODE ..."""
    defaults = {option.keyword.decode(): option.val.decode() for option in pq.Conninfo.get_defaults() if option.val}
    return defaults | dict(given)
