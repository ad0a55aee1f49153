"""The address of a MySQL or MariaDB server and the options for its use, as a URL says them."""

from urllib.parse import quote, unquote

from msgspec import Struct

from tarry.errors import ConfigError
from tarry.store.shared.masking import split
from tarry.store.shared.transport import Transport, is_local
from tarry.store.shared.url_options import TIMEOUT, choice, number, read_options, switch, words

FORM = "mysql://user:password@host:3306/database"
OPTIONS = {
    "timeout": TIMEOUT,
    "tls": choice(
        "",
        "how connections are encrypted; left out: preferred, or verify with tls_ca=",
        ("preferred", "no", "yes", "verify"),
    ),
    "tls_ca": words("", "the certificates of the authorities", expects="a file"),
    "cleartext": switch("no", "whether the password may go to a server that has not proved who it is"),
    "socket": words("", "the Unix socket, in place of host and port", expects="a file"),
    "connections": number("4", "the most for calls; wake-up and guard have one more each", 1, 1000),
    "skip_locked": switch("yes", "no: as if the server could not skip locked rows"),
    "guard": switch("yes", "whether a worker keeps a connection by which others see that it lives"),
}


class Address(Struct, frozen=True):
    """Everything that a connection needs."""

    host: str
    database: str
    user: str
    password: str
    port: int
    socket: str | None
    """The Unix socket, instead of host and port."""
    timeout: float
    """Seconds: for connecting, for an answer, for a lock."""
    tls: str
    """preferred: encrypted if the server can; no: never; yes: always; verify: always, and the certificate and its name
    must be right. `yes` with a `tls_ca` checks the certificate too, but not its name."""
    tls_ca: str | None
    cleartext: bool
    """Whether the password may go, if the server asks for it, over a connection that does not prove who the server
    is."""
    connections: int
    """The most connections at once for calls; wake-up and the guard have one more each."""
    skip_locked: bool
    """False: as if the server could not skip locked rows."""
    guard: bool
    """Whether a worker keeps a connection by which others see that it lives."""
    scheme: str

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
    database = unquote(parts.path.strip("/"))
    # For error texts: without user, password and options.
    shown = f"{parts.scheme}://{parts.hostname or ''}/{database}"
    if not parts.hostname or not database or "/" in database:
        raise ConfigError(f"{shown}: name a server and a database, as in {FORM}")
    options = read_options(shown, OPTIONS, parts.query)
    # A `tls_ca` alone means `verify`: its user wants the certificate to be checked.
    options["tls"] = options["tls"] or ("verify" if options["tls_ca"] else "preferred")
    if options["tls_ca"] and options["tls"] not in ("verify", "yes"):
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


def _bracket(host: str) -> str:
    return f"[{host}]" if ":" in host else host
