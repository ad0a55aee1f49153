"""How often somebody may try to sign in: after failures there are pauses, each twice as long as the one before.

They are for a name from one address, and for an address after many more failures, whatever the name. So nobody is shut
out by what others try elsewhere. Where many people have one address, as behind a proxy, a first try waits for the many
failures of others a second at most after each, and whoever has signed in from there waits for none of them.
"""

from collections import OrderedDict
from collections.abc import Hashable
from ipaddress import IPv6Address, ip_address
from typing import Generic, TypeVar

from msgspec import Struct

from tarry.errors import RateExceeded

FREE, FREE_OF_ADDRESS = 3, 100
"""Failures without a pause."""
FIRST, LONGEST = 1.0, 60.0
"""Seconds of the first pause, and of the longest one."""
FORGOTTEN_AFTER = 900.0
"""Seconds without a failure after which earlier ones no longer count."""
MOST_KEPT = 10_000
"""Names or addresses that are remembered; beyond it the one that was not seen for longest is forgotten."""
_MOST_NAME = 200

K = TypeVar("K", bound=Hashable)


class _Failures(Struct):
    count: int = 0
    last: float = 0.0
    until: float = 0.0
    """No try before."""


class _FailureTable(Generic[K]):
    """The failures of many."""

    def __init__(self, free: int) -> None:
        self._free = free
        self._kept: OrderedDict[K, _Failures] = OrderedDict()

    def pause(self, key: K, now: float, longest: float = LONGEST) -> float:
        """Seconds until the next try; 0: it may come now. longest: seconds of any pause after the last failure."""
        found = self._kept.get(key)
        return 0.0 if found is None else max(0.0, min(found.until, found.last + longest) - now)

    def has(self, key: K, now: float) -> bool:
        """Whether there were failures that still count."""
        found = self._kept.get(key)
        return found is not None and now - found.last <= FORGOTTEN_AFTER

    def note(self, key: K, now: float) -> None:
        found = self._kept.get(key)
        if found is None or now - found.last > FORGOTTEN_AFTER:
            found = self._kept[key] = _Failures()
        found.count, found.last = found.count + 1, now
        if (over := found.count - self._free) >= 0:
            # The count grows for as long as somebody tries, so the shift is bounded.
            found.until = now + min(FIRST * 2 ** min(over, 10), LONGEST)
        self._kept.move_to_end(key)
        if len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)

    def forget(self, key: K) -> None:
        self._kept.pop(key, None)


class SignInTries:
    """The failures of all names and addresses, in one process. Times are seconds of any clock."""

    def __init__(self) -> None:
        self._pairs: _FailureTable[tuple[str, str]] = _FailureTable(FREE)
        self._addresses: _FailureTable[str] = _FailureTable(FREE_OF_ADDRESS)
        self._known: OrderedDict[tuple[str, str], None] = OrderedDict()
        """Names that have signed in, each with its address."""

    def check(self, name: str, address: str, now: float) -> None:
        """RateExceeded if this try comes too soon after failures."""
        pair = _pair(name, address)
        pause = self._pairs.pause(pair, now)
        if pair not in self._known:
            # A guesser with a new name each time gets one try in a second, and not all the time of a processor.
            longest = LONGEST if self._pairs.has(pair, now) else FIRST
            pause = max(pause, self._addresses.pause(pair[1], now, longest))
        if pause:
            raise RateExceeded("too many failures to sign in: wait a moment", pause)

    def note_failure(self, name: str, address: str, now: float) -> None:
        """Counts a wrong name or password."""
        pair = _pair(name, address)
        self._pairs.note(pair, now)
        self._addresses.note(pair[1], now)

    def note_success(self, name: str, address: str) -> None:
        """Forgets the failures of this name from there. Those of the address stay: else a guesser who has one password
        could go on without pauses."""
        pair = _pair(name, address)
        self._pairs.forget(pair)
        self._known[pair] = None
        self._known.move_to_end(pair)
        if len(self._known) > MOST_KEPT:
            self._known.popitem(last=False)


def network_of(address: str) -> str:
    """The address, or of IPv6 the network that one customer of a provider has; a text that is no address: itself."""
    try:
        found = ip_address(address)
    except ValueError:
        # A unix socket has no address.
        return address
    if isinstance(found, IPv6Address) and found.ipv4_mapped is None:
        return str(int(found) >> 64)
    return str(found)


def _pair(name: str, address: str) -> tuple[str, str]:
    return name[:_MOST_NAME], network_of(address)
