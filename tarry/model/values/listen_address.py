"""Where a server listens, as people write it: "127.0.0.1:7800", "[::1]:7800", ":7800" or "unix:/run/tarry.sock"; and by
which names it may be called."""

import re
from collections.abc import Sequence
from ipaddress import IPv6Address, ip_address

from msgspec import Struct

from tarry.model.quantity import MAX_SHORT

_UNIX = "unix:"
_LONGEST_PATH = 107  # Bytes: the kernel's limit for the path of a socket.
_LOCAL = re.compile(r"(localhost|[\d.]{1,15}|\[[\da-fA-F:.]{1,45}\])(:\d{1,5})?", re.ASCII)
_NAME = re.compile(r"([\w.-]{1,253})(:\d{1,5})?", re.ASCII)
_HOST_PORT = re.compile(r"(?:\[(?P<v6>[0-9a-fA-F:.]+)\]|(?P<v4>[^\[\]:]*)):(?P<port>[0-9]{1,5})")


class ListenAddress(Struct, frozen=True):
    """A TCP address, or the path of a unix socket."""

    host: str = ""
    """An IP address; empty: all addresses of this host."""
    port: int = 0
    path: str = ""
    """The path of a unix socket; empty: this is a TCP address."""

    @property
    def is_private(self) -> bool:
        """True: only programs of this host can reach it."""
        return bool(self.path) or (bool(self.host) and ip_address(self.host).is_loopback)

    def __str__(self) -> str:
        """As people write it."""
        if self.path:
            return f"{_UNIX}{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def listen_address(written: str) -> ListenAddress:
    """The address that is written so; ValueError if it is none. Port 0 is none: nobody would know which it became."""
    if written.startswith(_UNIX) and len(written) <= len(_UNIX) + _LONGEST_PATH:
        path = written.removeprefix(_UNIX)
        if not path or "\0" in path or len(path.encode()) > _LONGEST_PATH:
            raise ValueError("no path, or longer than a path of a socket may be")
        return ListenAddress(path=path)
    found = _HOST_PORT.fullmatch(written) if len(written) <= MAX_SHORT else None
    if found is None or not 0 < int(found["port"]) < 65536:
        raise ValueError("no address with a port")
    return ListenAddress(_host(found["v6"], found["v4"]), int(found["port"]))


def _host(v6: str | None, v4: str | None) -> str:
    if v6 is not None:
        return str(IPv6Address(v6))
    # A name is not looked up, since that may take long, and may have another answer at the next start.
    host = "127.0.0.1" if v4 == "localhost" else v4
    return str(ip_address(host)) if host else ""


def is_own_host(host: str, own: Sequence[str]) -> bool:
    """Whether a header Host is an address, localhost or one of these names: `jobs.example.com`, `*.example.com` for
    all names below that one, `*` for any.

    A page can have its own name lead to this machine (DNS rebinding): for the browser, our answers are then that page's
    own. An address is safe: a page at an address has it for its origin.
    """
    if "*" in own or _LOCAL.fullmatch(host):
        return True
    found = _NAME.fullmatch(host)
    name = found[1].lower() if found else ""
    return bool(name) and any(_fits(name, pattern.lower()) for pattern in own)


def _fits(name: str, pattern: str) -> bool:
    return name == pattern or (pattern.startswith("*.") and name.endswith(pattern[1:]))
