"""What a redis URL says of a store: its servers, how to sign in, and the names of its keys.

    redis://user:password@host:6379/0           rediss:// for TLS
    redis+unix:///path/to/socket?db=0
    redis+sentinel://host:26379,host:26379/service/0
    redis+cluster://host:6379,host:6379

No error text and no representation here contains the password.
"""

import re
import ssl
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from msgspec import Struct

from tarry.errors import ConfigError
from tarry.store.shared.masking import check_place, mask_password
from tarry.store.shared.transport import Transport, is_local
from tarry.store.shared.url_options import TIMEOUT, UrlOption, choice, number, read_options, words

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
COMMON = {
    "prefix": words(
        "tarry", "what its keys begin with", r"[A-Za-z0-9_.:-]{1,100}", "letters, digits and _ . : - only, at most 100"
    ),
    "timeout": TIMEOUT,
    "replicas": number("1", 'how many have to confirm a job of durable="replica"', 1, 100),
    "confirm": choice("memory", "where replicas then have it", ("memory", "disk")),
}
OF_KIND: Mapping[str, Mapping[str, UrlOption]] = {
    "unix": {"db": number("0", "the database", 0, 10**6)},
    "sentinel": {
        "sentinel_user": words("", "who signs in to the sentinels", ".*"),
        "sentinel_password": words("", "the password for the sentinels", ".*"),
    },
    "cluster": {"parts": number("6", "how many hash slots the jobs are spread over", 1, 1024)},
}
_REQUIRED = {"required": ssl.CERT_REQUIRED, "optional": ssl.CERT_OPTIONAL, "none": ssl.CERT_NONE}
_CHECKED = {"yes": True, "no": False, "true": True, "false": False}
TLS = {
    "ssl_ca_certs": words("", "the certificates of the authorities", expects="a file"),
    "ssl_ca_path": words("", "a directory of such files", expects="a path"),
    "ssl_certfile": words("", "our own certificate", expects="a file"),
    "ssl_keyfile": words("", "its key, if that is not in the same file", expects="a file"),
    "ssl_password": words("", "the password of that key", ".*"),
    "ssl_cert_reqs": choice("required", "whether the server has to show a certificate", _REQUIRED),
    "ssl_check_hostname": choice("yes", "whether the certificate must be of the host's name", _CHECKED),
}
"""For `rediss`. They mean what redis-py's options of these names mean."""


class Target(Struct, frozen=True):
    """What a URL says. `url`: the same URL, with only what tells this store from others, and no password."""

    url: str
    kind: str
    """`server`, `unix`, `sentinel` or `cluster`."""
    addresses: tuple[tuple[str, int], ...]
    tls: ssl.SSLContext | None
    user: str
    password: str
    database: int
    service: str
    options: Mapping[str, Any]

    def __repr__(self) -> str:
        # The default would show the password, and error reports often show local variables.
        return f"Target({self.url!r})"

    @property
    def prefix(self) -> str:
        """The beginning of the keys' names, inside the braces."""
        return str(self.options["prefix"])

    @property
    def timeout(self) -> float:
        """Seconds."""
        return float(self.options["timeout"])

    @property
    def transport(self) -> Transport:
        """How safe the connections to it are."""
        verified = self.tls is not None and self.tls.verify_mode == ssl.CERT_REQUIRED
        return Transport(all(is_local(host) for host, _ in self.addresses), self.tls is not None, verified)

    @property
    def parts(self) -> int:
        """How many hash slots the jobs of a cluster are spread over."""
        return int(self.options["parts"])


def parse_url(url: str) -> Target:
    """What the URL says; ConfigError, in one line and without the password, if the URL is wrong."""
    scheme, _, rest = url.partition("://")
    # The TLS of `rediss` is no kind of its own: rediss+cluster is a cluster.
    kind = scheme.partition("+")[2] or "server"
    # First: what follows may show parts of the URL.
    check_place(url, FORMS.get(scheme, "redis://host:port"))
    where, _, query = rest.partition("?")
    sign, hosts, path = _split_location(where)
    known = COMMON | dict(OF_KIND.get(kind, {})) | (TLS if scheme.startswith("rediss") else {})
    given = read_options(mask_password(url), known, query)
    user, _, password = sign.partition(":")
    service, database = _path(url, kind, path, given)
    addresses = ((path, 0),) if kind == "unix" else _parse_addresses(url, kind, hosts)
    return Target(
        url=_public_url(scheme, addresses, service, database, given),
        kind=kind,
        addresses=addresses,
        tls=_tls_of(url, given) if scheme.startswith("rediss") else None,
        user=unquote(user),
        password=unquote(password),
        database=database,
        service=service,
        options=given,
    )


def _url_error(url: str, why: str) -> ConfigError:
    form = FORMS[url.partition("://")[0]]
    return ConfigError(f"{mask_password(url)}: {why}; the form is {form}")


def _split_location(where: str) -> tuple[str, str, str]:
    """User and password; hosts; path."""
    netloc, slash, path = where.partition("/")
    sign, _, hosts = netloc.rpartition("@")
    return sign, hosts, slash + unquote(path)


def _path(url: str, kind: str, path: str, given: Mapping[str, Any]) -> tuple[str, int]:
    """The service's name, for sentinels, and the number of the database."""
    if kind == "unix":
        if len(path) < 2:
            raise _url_error(url, "the socket's path is missing")
        return "", given["db"]
    words = path.strip("/").split("/") if path.strip("/") else []
    service = ""
    if kind == "sentinel":
        if not words:
            raise _url_error(url, "the name of the service that the sentinels watch is missing")
        service = words.pop(0)
    if not words:
        return service, 0
    if kind == "cluster" and words != ["0"]:
        raise _url_error(url, "a cluster has only database 0")
    if len(words) > 1 or not words[0].isdecimal():
        raise _url_error(url, f"{'/'.join(words)!r} is no number of a database")
    return service, int(words[0])


def _parse_addresses(url: str, kind: str, hosts: str) -> tuple[tuple[str, int], ...]:
    names = hosts.split(",")
    if len(names) > 1 and kind == "server":
        raise _url_error(
            url, "one server only; several are a redis+cluster:// or redis+sentinel://, or a list of stores"
        )
    return tuple(_parse_address(url, name, _PORT.get(kind, 6379)) for name in names)


def _parse_address(url: str, name: str, port: int) -> tuple[str, int]:
    found = re.fullmatch(r"(?:\[([0-9A-Fa-f:.%]+)\]|([^\[\]:@/\s]+))(?::(\d{1,5}))?", name)
    if not found or not 0 < int(found[3] or port) < 65536:
        raise _url_error(url, f"{name!r} is no host, or no host:port" if name else "the host is missing")
    return unquote(found[1] or found[2]), int(found[3] or port)


_DEFAULTS = {"prefix": "tarry", "parts": 6}
"""The defaults of the options that say which store it is."""


def _public_url(
    scheme: str, addresses: tuple[tuple[str, int], ...], service: str, database: int, given: Mapping[str, Any]
) -> str:
    """The URL without its password and most of its options."""
    # It must be the same for all URLs of one store: it decides which shard a job lives on. So a default that is written
    # out counts as left out, and options that do not say which store it is are not part of it.
    hosts = ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in addresses)
    own = [f"db={database}"] if not addresses[0][1] else []
    own += [f"{name}={given[name]}" for name, default in _DEFAULTS.items() if given.get(name, default) != default]
    query = f"?{'&'.join(own)}" if own else ""
    if not addresses[0][1]:
        return f"{scheme}://{addresses[0][0]}{query}"
    path = "" if "cluster" in scheme else f"/{service}/{database}" if service else f"/{database}"
    return f"{scheme}://{hosts}{path}{query}"


def _tls_of(url: str, given: Mapping[str, Any]) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=given["ssl_ca_certs"], capath=given["ssl_ca_path"])
        if given["ssl_certfile"]:
            context.load_cert_chain(given["ssl_certfile"], given["ssl_keyfile"], given["ssl_password"])
    except OSError as error:
        raise ConfigError(f"{mask_password(url)}: a file of ssl_...: {error.strerror or error}") from None
    # First the host's name: while it is checked, Python refuses CERT_NONE.
    context.check_hostname = given["ssl_check_hostname"] and given["ssl_cert_reqs"] != ssl.CERT_NONE
    context.verify_mode = given["ssl_cert_reqs"]
    return context
