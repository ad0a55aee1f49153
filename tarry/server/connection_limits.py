"""How many connections a door has: counted and bounded, in all and for each address."""

import contextlib
import socket
from collections import Counter
from collections.abc import Callable
from typing import Any

from tarry import platform

IDLE_PROBE = 30
"""Seconds of silence after which the kernel asks whether the peer's host is still there."""
USER_TIMEOUT = 60
"""Seconds after which a peer that acknowledges nothing, as when its power fails, counts as gone."""


class Connections:
    """The connections of one door of one process. Its methods are for the thread of the event loop.

    most_per_address: of one client address; 0: as many as `most`. Unix sockets have no address, and no such bound.
    """

    def __init__(self, most: int, most_per_address: int = 0) -> None:
        self.most, self.most_per_address = most, most_per_address or most
        self.open = 0
        self.accepted = 0
        """All that were admitted since the process began."""
        self.refused = 0
        self.coming = 0
        """Accepted ones of which it is not known yet whether they are admitted."""
        self.make_room: Callable[[str], bool] = lambda address: False
        """Ends one of this address (empty: of any) whose client holds a place without use; False: there is none. Called
        where all places are taken."""
        self._on_room: list[Callable[[], None]] = []
        self._by_address: Counter[str] = Counter()

    @property
    def has_room(self) -> bool:
        """Whether one more could be admitted, besides those that are coming."""
        return self.open + self.coming < self.most

    def on_room(self, call: Callable[[], None]) -> None:
        """From now on calls this each time when there is one less."""
        self._on_room.append(call)

    def arrived(self) -> None:
        """One of `coming` was admitted or refused, or has ended before that."""
        self.coming -= 1
        self._tell_of_room()

    def admit(self, address: str) -> bool:
        """Counts a new connection, which `leave` ends; False if it must be closed at once, and is not counted."""
        is_one_too_many = bool(address) and self._by_address[address] >= self.most_per_address
        if (is_one_too_many or self.open >= self.most) and not self.make_room(address if is_one_too_many else ""):
            self.refused += 1
            return False
        self.open += 1
        self.accepted += 1
        if address:
            self._by_address[address] += 1
        return True

    def leave(self, address: str) -> None:
        """An admitted connection has ended."""
        self.open -= 1
        if address:
            self._by_address[address] -= 1
            # Else every address that ever came would stay in memory.
            if not self._by_address[address]:
                del self._by_address[address]
        self._tell_of_room()

    def _tell_of_room(self) -> None:
        if self._on_room and self.has_room:
            for call in self._on_room:
                call()


def peer_address(transport: Any) -> str:
    """The address of the peer, without its port; empty for a unix socket."""
    name = transport.get_extra_info("peername")
    return str(name[0]) if isinstance(name, tuple) and name else ""


def has_addresses(transport: Any) -> bool:
    """Whether its peers have addresses; those of a unix socket have none."""
    connected = transport.get_extra_info("socket")
    return connected is not None and connected.family in (socket.AF_INET, socket.AF_INET6)


def watch_peer(transport: Any) -> None:
    """Has the kernel find out when the peer's host is gone."""
    if not has_addresses(transport):
        return
    connected = transport.get_extra_info("socket")
    # Not every kernel can.
    with contextlib.suppress(OSError):
        platform.watch_peer(connected, IDLE_PROBE, USER_TIMEOUT)
