"""Protection against SSRF: only public addresses may be reached, and those that the configuration allows.

The guard checks the address that is then connected to, never a name. An address with another one inside (mapped, 6to4,
NAT64 and others) is checked with that one too.

The addresses of this host's interfaces, public ones too: services there may be meant for this host only.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from tarry import platform
from tarry.errors import ConfigError, TarryError

CACHE_TTL = 5.0
"""Seconds for which the addresses are cached. They change when an interface comes or goes."""


class LocalAddresses:
    """Reads and caches the addresses. Thread-safe: at worst they are read twice."""

    def __init__(self) -> None:
        self._read_at = -CACHE_TTL
        self._known: frozenset[str] = frozenset()

    def __call__(self) -> frozenset[str]:
        """The addresses in the form of `str(ip_address(...))`. Empty if the system does not say."""
        now = time.monotonic()
        if now - self._read_at >= CACHE_TTL:
            self._known, self._read_at = platform.local_addresses(), now
        return self._known


own_addresses = LocalAddresses()
"""Shared by the process, since reading takes a system call or two."""


IPAddress = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_REFUSED_4 = {
    "unspecified": ["0.0.0.0/8"],
    "private": ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"],
    "shared by a carrier (CGNAT)": ["100.64.0.0/10"],
    "loopback": ["127.0.0.0/8"],
    "link-local": ["169.254.0.0/16"],
    "for documentation": ["192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24"],
    "for benchmarks": ["198.18.0.0/15"],
    "multicast": ["224.0.0.0/4"],
    "reserved": ["192.0.0.0/24", "192.88.99.0/24", "240.0.0.0/4"],
}
# The first match names the address, so narrow networks come before the wide ones around them.
_REFUSED_6 = {
    "unspecified": ["::/128"],
    "loopback": ["::1/128"],
    "private": ["fc00::/7", "64:ff9b:1::/48"],
    "link-local": ["fe80::/10"],
    "site-local": ["fec0::/10"],
    "multicast": ["ff00::/8"],
    "for documentation": ["2001:db8::/32", "3fff::/20"],
    "for benchmarks": ["2001:2::/48"],
    "Teredo": ["2001::/32"],
    "reserved": ["2001::/23"],
}
_PUBLIC_6 = ip_network("2000::/3")  # The only block that is allocated so far.

METADATA = frozenset(
    map(
        ip_address,
        [
            "169.254.169.254",  # AWS, Azure, Google, DigitalOcean, Oracle, OpenStack, Hetzner
            "169.254.170.2",  # AWS: containers
            "169.254.170.23",  # AWS: pods
            "169.254.0.23",  # Tencent
            "100.100.100.200",  # Alibaba
            "192.0.0.192",  # Oracle, of old
            "168.63.129.16",  # Azure, in the middle of public addresses
            "fd00:ec2::254",
            "fd00:ec2::23",
            "fd20:ce::254",  # Google
        ],
    )
)
"""Metadata services, from which cloud machines get credentials. Allowing a network does not allow these: list them."""

_OTHERS = """
    0 1 7 9 11 13 15 17 19 20 21 22 23 25 37 42 43 53 69 77 79 87 95 101 102 103 104 109 110 111 113 115 117 119 123 135
    137 139 143 161 179 389 427 465 512 513 514 515 526 530 531 532 540 548 554 556 563 587 601 636 989 990 993 995 1719
    1720 1723 2049 3659 4045 4190 5060 5061 6000 6566 6665 6666 6667 6668 6669 6679 6697 10080
"""
PORTS = frozenset(map(int, _OTHERS.split()))
"""Ports of other protocols, which browsers refuse too (fetch.spec.whatwg.org, "bad port")."""


class ForbiddenAddress(TarryError):
    """The guard refuses an address or a port. The message names it, its host, and the setting that allows it."""


class AddressGuard:
    """Decides which addresses and ports may be reached."""

    def __init__(self, allow: Iterable[str] = (), own: Callable[[], Collection[str]] = own_addresses) -> None:
        """allow: networks (`10.0.0.0/8`) and addresses (`10.0.0.7`) that may be reached besides the public ones.
        own: addresses of this host, which are refused unless allowed. ConfigError: a text of `allow` is neither."""
        self._allow = [_network(text) for text in allow]
        self._own = own
        self._cached_refusal = lru_cache(4096)(self._refusal)
        self._cached_not_allowed = lru_cache(4096)(self._not_allowed)

    def check(self, address: str, host: str = "", port: int = 443) -> None:
        """ForbiddenAddress if this address and port may not be reached. host: the name that led to the address."""
        refused = self._cached_refusal(address, port) or self._refusal_as_own(address)
        if refused is not None:
            kind, allowing = refused
            whose = f"{host} is at {address}" if host and host != address else address
            raise ForbiddenAddress(f"{whose}, {kind}: not reached, unless [push] {allowing} allows it")

    def _refusal(self, text: str, port: int) -> tuple[str, str] | None:
        """Why the address is refused, and the setting that allows it; None: it may be reached."""
        try:
            address = ip_address(text)
        except ValueError:
            return "no address", "nothing"
        for one in (address, *_embedded_ipv4(address)):
            if kind := self._kind(one):
                return (kind if one == address else f"which stands for {one}, {kind}"), f'allow = ["{one}"]'
        if port == 0 or (port in PORTS and not self._allows(address)):
            return f"port {port}, is another protocol's", f'allow = ["{address}"]'
        return None

    def _refusal_as_own(self, text: str) -> tuple[str, str] | None:
        """As `_refusal`, for addresses of this host."""
        # Not cached, since they change.
        ours = self._own()
        for one in self._cached_not_allowed(text):
            if one in ours:
                return "an address of this host", f'allow = ["{one}"]'
        return None

    def _not_allowed(self, text: str) -> list[str]:
        """The address and those inside it, without those that the configuration allows."""
        address = ip_address(text)
        return [str(one) for one in (address, *_embedded_ipv4(address)) if not self._allows(one)]

    def _kind(self, address: IPAddress) -> str:
        """Why it is refused; empty if it is not."""
        if address in METADATA:
            # A network that is allowed around it was hardly meant to include the passwords.
            return "" if ip_network(address) in self._allow else "where a cloud gives out passwords"
        return "" if self._allows(address) else _special_kind(address)

    def _allows(self, address: IPAddress) -> bool:
        return any(address in network for network in self._allow if network.version == address.version)


def _network(text: str) -> Network:
    try:
        return ip_network(text)
    except (ValueError, TypeError):
        pass
    try:
        meant = f"; you may mean {ip_network(text, strict=False)}"
    except (ValueError, TypeError):
        meant = ""
    raise ConfigError(f'[push] allow: {text!r} is no network{meant}: write as in "10.0.0.0/8"')


_KINDS: list[tuple[Network, str]] = [
    (ip_network(network), kind)
    for table in (_REFUSED_4, _REFUSED_6)
    for kind, networks in table.items()
    for network in networks
]


def _special_kind(address: IPAddress) -> str:
    for network, kind in _KINDS:
        if network.version == address.version and address in network:
            return kind
    # An address with an IPv4 address inside is judged by that one.
    if address.version == 6 and address not in _PUBLIC_6 and not any(_embedded_ipv4(address)):
        return "reserved"
    return ""


# Mapped, translated, NAT64, and the old compatible form: the last 32 bits are an IPv4 address.
_LAST_32 = [ip_network(text) for text in ("::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96", "::/96")]
_6TO4 = ip_network("2002::/16")
_TEREDO = ip_network("2001::/32")
_ISATAP = (0x00005EFE, 0x02005EFE)


def _embedded_ipv4(address: IPAddress) -> Iterator[IPv4Address]:
    """The IPv4 addresses to which packets for this address may be forwarded."""
    if address.version == 4:
        return
    bits = int(address)
    last = bits & 0xFFFFFFFF
    # :: and ::1 are in ::/96 too, but have no IPv4 address inside.
    if any(address in network for network in _LAST_32) and bits > 1:
        yield IPv4Address(last)
    if address in _6TO4:
        yield IPv4Address(bits >> 80 & 0xFFFFFFFF)
    if address in _TEREDO:
        # Teredo stores the address with all its bits inverted.
        yield IPv4Address(last ^ 0xFFFFFFFF)
    if bits >> 32 & 0xFFFFFFFF in _ISATAP:
        yield IPv4Address(last)
