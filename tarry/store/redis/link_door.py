"""Being let in by a Redis server: the socket, TLS, the password, and a look at who is there."""

import socket
import ssl
import time
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from msgspec import Struct

from tarry.errors import ConfigError, StoreError
from tarry.store.redis.link import Word
from tarry.store.redis.link_refusal import Lost, Refusal, Unreached, error_of

NEEDS = 7
"""The oldest major version of the server."""


class Place(NamedTuple):
    """Where a server listens: a host and a port; or a socket's path, and 0."""

    host: str
    port: int

    def __str__(self) -> str:
        if not self.port:
            return self.host
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Access(Struct, frozen=True, repr_omit_defaults=True):
    """How to be let in."""

    user: str = ""
    password: str = ""
    database: int = 0
    timeout: float = 5.0
    """Seconds to connect and be let in, and for each answer."""
    tls: ssl.SSLContext | None = None
    mode: str = "standalone"
    """What the server must be: `standalone`, `cluster` or `sentinel`."""

    def __repr__(self) -> str:
        return f"Access(user={self.user!r}, database={self.database})"


class Asked(Protocol):
    """A connection, as far as signing in goes."""

    place: Place

    def ask(self, commands: Sequence[Sequence[Word]], deadline: float) -> list[Any]:
        """The answers; refusals stand among them."""


def connected(place: Place, access: Access, deadline: float) -> socket.socket:
    """A socket whose other end has said nothing yet. ConfigError: TLS cannot be had so; else Unreached."""
    plain: socket.socket | None = None
    try:
        plain = _plain(place, max(deadline - time.monotonic(), 0.001))
        return access.tls.wrap_socket(plain, server_hostname=place.host) if access.tls else plain
    except OSError as error:
        if plain is not None:
            plain.close()
        raise _not_connected(place, error) from None
    except UnicodeError:
        raise ConfigError(f"{place}: that is no name of a host") from None


def _plain(place: Place, limit: float) -> socket.socket:
    if place.port:
        plain = socket.create_connection((place.host, place.port), limit)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return plain
    local = socket.socket(socket.AF_UNIX)
    local.settimeout(limit)
    try:
        local.connect(place.host)
    except OSError:
        local.close()
        raise
    return local


def _not_connected(place: Place, error: OSError) -> Exception:
    match error:
        case ssl.SSLCertVerificationError():
            why = f"{place}: its certificate is not to be trusted ({error.verify_message})"
            return ConfigError(f"{why}; ?ssl_ca_certs=FILE says whom to trust")
        case ssl.SSLError():
            return ConfigError(f"{place}: no TLS with it ({error.reason or error}); redis:// goes without")
        case TimeoutError():
            return Unreached(f"{place}: no answer in time; is it up?")
    return Unreached(f"{place}: cannot connect: {error.strerror or error}")


def let_in(wire: Asked, access: Access, deadline: float) -> str:
    """Signs in, and looks who is there; answers the role, `master` or `replica`."""
    hello: list[Word] = ["HELLO", "2"]
    if access.user or access.password:
        hello += ["AUTH", access.user or "default", access.password]
    commands: list[list[Word]] = [[*hello, "SETNAME", "tarry"]]
    if access.database:
        commands.append(["SELECT", access.database])
    try:
        told = wire.ask(commands, deadline)
    except Lost as error:
        tls = "" if access.tls or error.silent else "; if it wants TLS, begin the URL with rediss://"
        raise Unreached(f"{error}{tls}") from None
    for answer in told:
        if isinstance(answer, Refusal):
            raise _refused(answer, wire.place)
    facts = dict(zip(told[0][::2], told[0][1::2], strict=True))
    _check(facts, access.mode, wire.place)
    return str(facts.get(b"role", b"").decode())


def _refused(refusal: Refusal, place: Place) -> Exception:
    if "unknown command" in refusal.text and "HELLO" in refusal.text:
        return StoreError(f"{place} is older than Redis 6, or no Redis: version {NEEDS} or later is needed, or Valkey")
    return error_of(refusal, str(place))


_OTHER = {
    "cluster": "is a node of a cluster: begin the URL with redis+cluster://",
    "sentinel": "is a sentinel: begin the URL with redis+sentinel:// and name the service in its path",
    "standalone": "is a single server: begin the URL with redis://",
}


def _check(facts: dict[bytes, Any], wanted: str, place: Place) -> None:
    version, mode = facts[b"version"].decode(), facts[b"mode"].decode()
    if int(version.partition(".")[0]) < NEEDS:
        raise StoreError(f"{place} is Redis {version}: version {NEEDS} or later is needed, or Valkey")
    if mode != wanted:
        raise ConfigError(f"{place} {_OTHER.get(mode, f'is a {mode}, not a {wanted}')}")
