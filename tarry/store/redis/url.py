"""From a redis URL to a store: which servers, how to be let in, and under which names the jobs are kept there.

    redis://user:password@host:6379/0           rediss:// for TLS
    redis+unix:///path/to/socket?db=0
    redis+sentinel://host:26379,host:26379/service/0
    redis+cluster://host:6379,host:6379

A password is never part of what this shows.
"""

import re
import ssl
from collections.abc import Mapping
from urllib.parse import unquote

from msgspec import Struct

from tarry.errors import ConfigError
from tarry.model.duration import SECOND, microseconds
from tarry.store.redis.url_options import DEFAULTS, options_of, shown, tls_of
from tarry.store.shared.transport import Transport, is_local

FORMS = {
    "redis": "redis://user:password@host:6379/0",
    "rediss": "rediss://user:password@host:6379/0",
    "redis+unix": "redis+unix:///path/to/socket?db=0",
    "redis+sentinel": "redis+sentinel://host:26379,host:26379/service/0",
    "rediss+sentinel": "rediss+sentinel://host:26379,host:26379/service/0",
    "redis+cluster": "redis+cluster://host:6379,host:6379",
    "rediss+cluster": "rediss+cluster://host:6379,host:6379",
}
_PORT = {"sentinel": 26379}


class Target(Struct, frozen=True):
    """What a URL says. `url` is it again, with what tells this store from others, and no password."""

    url: str
    kind: str
    """`server`, `unix`, `sentinel` or `cluster`."""
    places: tuple[tuple[str, int], ...]
    tls: ssl.SSLContext | None
    user: str
    password: str
    database: int
    service: str
    options: Mapping[str, str]

    def __repr__(self) -> str:
        return f"Target({self.url!r})"

    @property
    def prefix(self) -> str:
        """What the keys' names begin with, inside the braces."""
        return self.options["prefix"]

    @property
    def timeout(self) -> float:
        """Seconds."""
        return microseconds(self.options["timeout"]) / SECOND

    @property
    def transport(self) -> Transport:
        """What the connections to it are worth."""
        verified = self.tls is not None and self.tls.verify_mode == ssl.CERT_REQUIRED
        return Transport(all(is_local(host) for host, _ in self.places), self.tls is not None, verified)

    @property
    def parts(self) -> int:
        """Over how many hash slots a cluster's jobs are spread."""
        return int(self.options["parts"])


def parsed(url: str) -> Target:
    """What it says; ConfigError, in one line and without the password, if it cannot be."""
    scheme, _, rest = url.partition("://")
    kind = scheme.partition("+")[2] or "server"
    where, _, query = rest.partition("?")
    sign, hosts, path = _divided(url, where, query)
    given = options_of(url, kind, scheme.startswith("rediss"), query)
    user, _, password = sign.partition(":")
    service, database = _path(url, kind, path, given)
    places = ((path, 0),) if kind == "unix" else _places(url, kind, hosts)
    return Target(
        _told(scheme, places, service, database, given),
        kind,
        places,
        tls_of(url, given) if scheme.startswith("rediss") else None,
        unquote(user),
        unquote(password),
        database,
        service,
        given,
    )


def _wrong(url: str, why: str) -> ConfigError:
    form = FORMS[url.partition("://")[0]]
    return ConfigError(f"{shown(url)}: {why}; the form is {form}")


def _divided(url: str, where: str, query: str) -> tuple[str, str, str]:
    """User and password; hosts; path."""
    netloc, slash, path = where.partition("/")
    if "@" in path or ("@" in query and "@" not in netloc):
        raise _wrong(url, "a user or password with one of / ? # @ must be written with %2F %3F %23 %40")
    sign, _, hosts = netloc.rpartition("@")
    return sign, hosts, slash + unquote(path)


def _path(url: str, kind: str, path: str, given: Mapping[str, str]) -> tuple[str, int]:
    """The service's name, for sentinels, and the number of the database."""
    if kind == "unix":
        if len(path) < 2:
            raise _wrong(url, "the socket's path is missing")
        return "", int(given["db"])
    words = path.strip("/").split("/") if path.strip("/") else []
    service = ""
    if kind == "sentinel":
        if not words:
            raise _wrong(url, "the name of the service that the sentinels watch is missing")
        service = words.pop(0)
    if not words:
        return service, 0
    if kind == "cluster" and words != ["0"]:
        raise _wrong(url, "a cluster has only database 0")
    if len(words) > 1 or not words[0].isdecimal():
        raise _wrong(url, f"{'/'.join(words)!r} is no number of a database")
    return service, int(words[0])


def _places(url: str, kind: str, hosts: str) -> tuple[tuple[str, int], ...]:
    names = hosts.split(",")
    if len(names) > 1 and kind == "server":
        raise _wrong(url, "one server only; several are a redis+cluster:// or redis+sentinel://, or a list of stores")
    return tuple(_place(url, name, _PORT.get(kind, 6379)) for name in names)


def _place(url: str, name: str, port: int) -> tuple[str, int]:
    found = re.fullmatch(r"(?:\[([0-9A-Fa-f:.%]+)\]|([^\[\]:@/\s]+))(?::(\d{1,5}))?", name)
    if not found or not 0 < int(found[3] or port) < 65536:
        raise _wrong(url, f"{name!r} is no host, or no host:port" if name else "the host is missing")
    return unquote(found[1] or found[2]), int(found[3] or port)


def _told(
    scheme: str, places: tuple[tuple[str, int], ...], service: str, database: int, given: Mapping[str, str]
) -> str:
    """The same for all who mean the same store, so that it may decide which shard a job lives on."""
    hosts = ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in places)
    own = [f"db={database}"] if not places[0][1] else []
    own += [
        f"{name}={given[name]}" for name in ("prefix", "parts") if given.get(name, DEFAULTS[name]) != DEFAULTS[name]
    ]
    query = f"?{'&'.join(own)}" if own else ""
    if not places[0][1]:
        return f"{scheme}://{places[0][0]}{query}"
    path = "" if "cluster" in scheme else f"/{service}/{database}" if service else f"/{database}"
    return f"{scheme}://{hosts}{path}{query}"
