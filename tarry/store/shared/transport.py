"""Whether the way to a store's server is safe: who could read what goes over it, the password too."""

from ipaddress import ip_address

from msgspec import Struct

from tarry.store.base import Fact


class Transport(Struct, frozen=True):
    """How a server is reached."""

    local: bool
    """Over a Unix socket or the loopback interface: nobody else is on the way."""
    encrypted: bool
    verified: bool
    """The server's certificate was checked against an authority that the URL names or the system knows."""

    @property
    def safe(self) -> bool:
        """Whether the server is surely the one that is meant."""
        return self.local or (self.encrypted and self.verified)

    def fact(self, remedy: str) -> Fact:
        """The line of `tarry check`; remedy: what to write into the URL."""
        if self.local:
            return Fact("transport", "on this host")
        if self.safe:
            return Fact("transport", "TLS, verified")
        if self.encrypted:
            return Fact(
                "transport", "TLS, to whoever answers", f"whoever is on the way can pose as the store: {remedy}"
            )
        return Fact("transport", "clear, to another host", f"whoever is on the way can read and change jobs: {remedy}")


def is_local(host: str) -> bool:
    """Whether that is a Unix socket's path, or surely this host: a name that a resolver could lead elsewhere is not."""
    if host in ("", "localhost") or host.startswith(("/", "@")):
        return True
    try:
        address = ip_address(host.strip("[]"))
    except ValueError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback
