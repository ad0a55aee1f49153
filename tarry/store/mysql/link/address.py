"""The address of a MySQL or MariaDB server and the options for its use, as a URL says them."""

from typing import Any
from urllib.parse import parse_qsl, quote, unquote

from msgspec import Struct

from tarry.errors import ConfigError
from tarry.store.shared.masking import split
from tarry.store.shared.transport import Transport, is_local

FORM = "mysql://user:password@host:3306/database"
TLS = ("preferred", "no", "yes", "verify")
OPTIONS = (
    "timeout=5, tls=preferred|no|yes|verify, tls_ca=FILE, cleartext=yes, socket=FILE, connections=4, skip_locked=no,"
    " guard=no"
)


class Address(Struct, frozen=True):
    """Everything that a connection needs."""

    host: str
    database: str
    user: str
    password: str = ""
    port: int = 3306
    socket: str | None = None
    """The Unix socket, instead of host and port."""
    timeout: float = 5.0
    """Seconds: for connecting, for an answer, for a lock."""
    tls: str = "preferred"
    """preferred: encrypted if the server can; no: never; yes: always; verify: always, and the certificate and its name
    must be right. `yes` with a `tls_ca` checks the certificate too, but not its name."""
    tls_ca: str | None = None
    cleartext: bool = False
    """Whether the password may go, if the server asks for it, over a connection that does not prove who the server
    is."""
    connections: int = 4
    """The most connections at once for calls; wake-up and the guard have one more each."""
    skip_locked: bool = True
    """False: as if the server could not skip locked rows."""
    guard: bool = True
    """Whether a worker keeps a connection by which others see that it lives."""
    scheme: str = "mysql"

    def __repr__(self) -> str:
        return f"Address({self.shown})"

    @property
    def verifies(self) -> bool:
        """Whether connections check the server's certificate."""
        return self.tls == "verify" or (self.tls == "yes" and self.tls_ca is not None)

    def transport(self, encrypted: bool) -> Transport:
        """How safe a connection is that is encrypted, or not."""
        return Transport(self.socket is not None or is_local(self.host), encrypted, encrypted and self.verifies)

    @property
    def shown(self) -> str:
        """The URL without the password: for messages."""
        where = f"{self.scheme}://{quote(self.user)}@{_bracket(self.host)}:{self.port}/{quote(self.database)}"
        return where if self.socket is None else f"{where}?socket={self.socket}"


def parse(url: str) -> Address:
    """What the URL says; ConfigError for what it cannot say."""
    parts = split(url, FORM)
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    database = unquote(parts.path.strip("/"))
    # For error texts: without user, password and options.
    shown = f"{parts.scheme}://{parts.hostname or ''}/{database}"
    if not parts.hostname or not database or "/" in database:
        raise ConfigError(f"{shown}: name a server and a database, as in {FORM}")
    options = {name: _option(shown, name, value) for name, value in given.items()}
    # A `tls_ca` alone means `verify`: its user wants the certificate to be checked.
    if options.get("tls_ca") and options.setdefault("tls", "verify") not in ("verify", "yes"):
        raise ConfigError(f"{shown}: tls_ca= needs tls=verify or tls=yes: else nobody would look at the certificate")
    return Address(
        host=unquote(parts.hostname),
        database=database,
        user=unquote(parts.username or "root"),
        password=unquote(parts.password or ""),
        port=parts.port or 3306,
        scheme=parts.scheme,
        **options,
    )


_OPTION_NAMES = frozenset(("timeout", "connections", "tls", "tls_ca", "socket", "skip_locked", "guard", "cleartext"))


def _option(shown: str, name: str, value: str) -> Any:
    match name:
        case "timeout":
            return _number(shown, name, value, 0.1, 3600)
        case "connections":
            return int(_number(shown, name, value, 1, 1000))
        case "tls" if value in TLS:
            return value
        case "tls_ca" | "socket" if value:
            return value
        case "skip_locked" | "guard" | "cleartext" if value in ("yes", "no"):
            return value == "yes"
    # Without the value of an option that is not known: it may be a password.
    said = f"{name}={value}" if name in _OPTION_NAMES else name
    raise ConfigError(f"{shown}?{said}: after the ? there may be {OPTIONS}")


def _number(shown: str, name: str, value: str, least: float, most: float) -> float:
    try:
        number = float(value)
    except ValueError:
        number = least - 1
    if not least <= number <= most:
        raise ConfigError(f"{shown}?{name}={value}: a number from {least:g} to {most:g}")
    return number


def _bracket(host: str) -> str:
    return f"[{host}]" if ":" in host else host
