"""The addresses of this host's interfaces, public ones too: services there may be meant for this host only."""

import socket
import time
from ipaddress import ip_address
from pathlib import Path

CACHE_TTL = 5.0
"""Seconds for which the addresses are cached. They change when an interface comes or goes."""
_IPV4, _IPV6 = Path("/proc/net/fib_trie"), Path("/proc/net/if_inet6")


class LocalAddresses:
    """Reads and caches the addresses. Thread-safe: at worst they are read twice."""

    def __init__(self) -> None:
        self._read_at = -CACHE_TTL
        self._known: frozenset[str] = frozenset()

    def __call__(self) -> frozenset[str]:
        """The addresses in the form of `str(ip_address(...))`. Empty if the system does not say."""
        now = time.monotonic()
        if now - self._read_at >= CACHE_TTL:
            self._known, self._read_at = _read(), now
        return self._known


def _read() -> frozenset[str]:
    found = _of_fib_trie(_text(_IPV4)) | _of_if_inet6(_text(_IPV6))
    # Systems other than Linux have neither file.
    return frozenset(found or _by_name())


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _of_fib_trie(text: str) -> set[str]:
    """The IPv4 addresses of the routing table: a line `|-- 192.0.2.2`, then `/32 host LOCAL`."""
    found, last = set(), ""
    for line in text.splitlines():
        words = line.split()
        if words[:1] == ["|--"]:
            last = words[1]
        elif words[1:] == ["host", "LOCAL"] and words[0] == "/32":
            found.add(last)
    return found


def _of_if_inet6(text: str) -> set[str]:
    return {str(ip_address(bytes.fromhex(line.split()[0]))) for line in text.splitlines()}


def _by_name() -> set[str]:
    """The addresses of the host's own name, for systems other than Linux."""
    try:
        # A link-local address has its interface behind it: fe80::1%eth0.
        return {str(address[0]).partition("%")[0] for *_, address in socket.getaddrinfo(socket.gethostname(), None)}
    except OSError:
        return set()


own_addresses = LocalAddresses()
"""Shared by the process, since reading takes a system call or two."""
