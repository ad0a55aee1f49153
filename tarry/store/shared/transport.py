"""Whether the connection to a store's server is safe from readers, who would see the password too."""

from ipaddress import ip_address

from msgspec import Struct

from tarry.store.rules.base import Diagnostic


class Transport(Struct, frozen=True):
    """How a server is reached."""

    local: bool
    """Over a Unix socket or the loopback interface, so no other host can read it."""
    encrypted: bool
    verified: bool
    """The server's certificate was checked against an authority that the URL names or the system knows."""

    @property
    def safe(self) -> bool:
        """Whether the server is surely the right one."""
        return self.local or (self.encrypted and self.verified)

    def fact(self, remedy: str) -> Diagnostic:
        """The line of `tarry check`; remedy: what to write into the URL."""
        if self.local:
            return Diagnostic("transport", "on this host")
        if self.safe:
            return Diagnostic("transport", "TLS, verified")
        if self.encrypted:
            return Diagnostic(
                "transport", "TLS, to whoever answers", f"whoever is on the way can pose as the store: {remedy}"
            )
        return Diagnostic(
            "transport", "clear, to another host", f"whoever is on the way can read and change jobs: {remedy}"
        )


def is_local(host: str) -> bool:
    """Whether this is the path of a Unix socket, or surely this host."""
    # Other names do not count: a resolver could lead them to another host.
    if host in ("", "localhost") or host.startswith(("/", "@")):
        return True
    try:
        address = ip_address(host.strip("[]"))
    except ValueError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback
