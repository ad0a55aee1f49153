"""Reaches a Redis server: opens the socket, does TLS, signs in, and checks the server's version and mode."""

import socket
import ssl
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from msgspec import Struct

from tarry.errors import ConfigError, StoreAway, StoreError
from tarry.platform import unix_socket
from tarry.store.redis.link.base import Word
from tarry.store.redis.link.redis_errors import ErrorReply, ReplyLost, error_of

MIN_VERSION = 7
"""The oldest major version of the server."""


class ServerAddress(NamedTuple):
    """Where a server listens: a host and a port; or a socket's path, and 0."""

    host: str
    port: int

    def __str__(self) -> str:
        if not self.port:
            return self.host
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Access(Struct, frozen=True, repr_omit_defaults=True):
    """How to connect and sign in."""

    user: str = ""
    password: str = ""
    database: int = 0
    timeout: float = 5.0
    """Seconds to connect and sign in, and for each answer."""
    tls: ssl.SSLContext | None = None
    mode: str = "standalone"
    """What the server must be: `standalone`, `cluster` or `sentinel`."""

    def __repr__(self) -> str:
        # Without the password: error reports often show local variables.
        return f"Access(user={self.user!r}, database={self.database})"


Ask: TypeAlias = Callable[[Sequence[Sequence[Word]], float], list[Any]]
"""Sends commands and returns their replies by a deadline; error replies are among them."""


def open_socket(address: ServerAddress, access: Access, deadline: float) -> socket.socket:
    """A connected socket; nothing was sent yet. ConfigError: no TLS with these settings; else StoreAway."""
    plain: socket.socket | None = None
    try:
        plain = _open_plain(address, max(deadline - time.monotonic(), 0.001))
        return access.tls.wrap_socket(plain, server_hostname=address.host) if access.tls else plain
    except OSError as error:
        if plain is not None:
            plain.close()
        raise _connect_error(address, error) from None
    except UnicodeError:
        raise ConfigError(f"{address}: that is no name of a host") from None


def _open_plain(address: ServerAddress, limit: float) -> socket.socket:
    if address.port:
        plain = socket.create_connection((address.host, address.port), limit)
        # Commands are small and wait for their replies: they must not be held back to fill a packet.
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return plain
    local = unix_socket(socket.SOCK_STREAM)
    local.settimeout(limit)
    try:
        local.connect(address.host)
    except OSError:
        local.close()
        raise
    return local


def _connect_error(address: ServerAddress, error: OSError) -> Exception:
    # Time does not heal a wrong certificate or missing TLS: ConfigError, which is not retried.
    match error:
        case ssl.SSLCertVerificationError():
            why = f"{address}: its certificate is not to be trusted ({error.verify_message})"
            return ConfigError(f"{why}; ?ssl_ca_certs=FILE says whom to trust")
        case ssl.SSLError():
            return ConfigError(f"{address}: no TLS with it ({error.reason or error}); redis:// goes without")
        case TimeoutError():
            return StoreAway(f"{address}: no answer in time; is it up?")
    where = "host and port" if address.port else "the path"
    why = f"cannot connect: {error.strerror or error}"
    return StoreAway(f"{address}: {why}; is a Redis running there, and {where} right?")


def sign_in(ask: Ask, address: ServerAddress, access: Access, deadline: float) -> str:
    """Signs in, and checks version and mode of the server; answers its role, `master` or `replica`."""
    # HELLO does all at once: it signs in, names the connection and tells version, mode and role.
    hello: list[Word] = ["HELLO", "2"]
    if access.user or access.password:
        hello += ["AUTH", access.user or "default", access.password]
    commands: list[list[Word]] = [[*hello, "SETNAME", "tarry"]]
    if access.database:
        commands.append(["SELECT", access.database])
    try:
        replies = ask(commands, deadline)
    except ReplyLost as error:
        # StoreAway: the caller's own commands come only after signing in. A server that hangs up may want TLS.
        tls = "" if access.tls or error.silent else "; if it wants TLS, begin the URL with rediss://"
        raise StoreAway(f"{error}{tls}") from None
    for reply in replies:
        if isinstance(reply, ErrorReply):
            raise _sign_in_error(reply, address)
    facts = dict(zip(replies[0][::2], replies[0][1::2], strict=True))
    _check(facts, access.mode, address)
    return str(facts.get(b"role", b"").decode())


def _sign_in_error(reply: ErrorReply, address: ServerAddress) -> Exception:
    if "unknown command" in reply.text and "HELLO" in reply.text:
        return StoreError(
            f"{address} is older than Redis 6, or no Redis: version {MIN_VERSION} or later is needed, or Valkey"
        )
    return error_of(reply, str(address))


# By the mode that the server has: how the URL must begin for it.
_OTHER = {
    "cluster": "is a node of a cluster: begin the URL with redis+cluster://",
    "sentinel": "is a sentinel: begin the URL with redis+sentinel:// and name the service in its path",
    "standalone": "is a single server: begin the URL with redis://",
}


def _check(facts: dict[bytes, Any], wanted: str, address: ServerAddress) -> None:
    version, mode = facts[b"version"].decode(), facts[b"mode"].decode()
    if int(version.partition(".")[0]) < MIN_VERSION:
        raise StoreError(f"{address} is Redis {version}: version {MIN_VERSION} or later is needed, or Valkey")
    if mode != wanted:
        raise ConfigError(f"{address} {_OTHER.get(mode, f'is a {mode}, not a {wanted}')}")
