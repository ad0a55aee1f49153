"""The listening sockets that a master holds. It never accepts; its children do, which get the sockets by fork.

They outlive the children, so while processes are replaced, connections wait in the kernel and none is refused.
"""

import contextlib
import logging
import os
import socket
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tarry.model.listen_address import ListenAddress
from tarry.runtime.sockets.activation import ActivationSockets
from tarry.runtime.sockets.opening import open_socket, setting_of

Addresses = Mapping[str, Sequence[ListenAddress]]
"""What to listen at, by the name of the door."""
Sockets = dict[str, list[socket.socket]]
"""What to accept at, by the name of the door."""

_log = logging.getLogger("tarry.master")


class Listeners:
    """Opens sockets when a plan wants them, and closes them when none does."""

    def __init__(self, activated: ActivationSockets, own: int = 0) -> None:
        """activated: used in place of new ones where name and address are those of a door. own: how many of these the
        master before this one had opened; they are this one's from now on."""
        self._activated = activated
        self._inherited = {listened_at(one): one for one in activated.take_first(own)}
        self._shared: set[ListenAddress] = set()
        """Inherited ones, while the master before this one lives."""
        self._open: dict[ListenAddress, socket.socket] = {}
        self._doors: dict[ListenAddress, str] = {}
        self._inodes: dict[ListenAddress, int] = {}
        self._given = {listened_at(one): one for one in self._all_given()}

    def open(self, wanted: Addresses, backlog: int) -> None:
        """Opens what is not open yet. MasterError: one cannot be opened; then nothing has changed."""
        missing = [(door, address) for door, each in wanted.items() for address in each if address not in self._open]
        opened: list[ListenAddress] = []
        try:
            for door, address in missing:
                self._open_one(door, address, backlog)
                opened.append(address)
        except BaseException:
            self._close(opened)
            raise
        # The backlog may have changed.
        for one in self._open.values():
            one.listen(backlog)
        if missing:
            self._warn_of_unused(wanted)
        while self._inherited:
            self._inherited.popitem()[1].close()

    def keep_only(self, wanted: Addresses) -> None:
        """Closes all others. Children that accept at them still have their own."""
        kept = {address for each in wanted.values() for address in each}
        self._close([address for address in self._open if address not in kept])

    def sockets_for(self, wanted: Addresses) -> Sockets:
        """The open sockets of these addresses."""
        return {door: [self._open[address] for address in each] for door, each in wanted.items()}

    def shown(self) -> dict[str, list[str]]:
        """The open addresses as text, by the name of the door."""
        found: dict[str, list[str]] = {}
        for address in self._open:
            found.setdefault(self._doors[address], []).append(str(address))
        return found

    def close_in_child(self, wanted: Addresses) -> Sockets:
        """In a forked child: closes all but those that it accepts at, and returns these."""
        kept = self.sockets_for(wanted)
        ours = {one for each in kept.values() for one in each}
        for one in {*self._open.values(), *self._all_given()} - ours:
            one.close()
        return kept

    def descriptors(self) -> tuple[list[tuple[str, socket.socket]], list[tuple[str, socket.socket]]]:
        """What another master needs to take the place of this one: the sockets opened here, and the service manager's,
        each with its name."""
        given = [(name, one) for name, each in self._activated.by_name.items() for one in each]
        own = [(self._doors[at], one) for at, one in self._open.items() if one not in self._all_given()]
        return own, given

    def own(self) -> None:
        """The master before this one is to end: what it opened is now closed and removed here."""
        for address in self._shared:
            self._note_inode(address)
        self._shared.clear()

    def disown(self) -> None:
        """Another master takes the place of this one: the paths of sockets stay."""
        self._inodes.clear()

    def close(self) -> None:
        """Closes all."""
        self._close(list(self._open))
        self._activated.close()

    def _open_one(self, door: str, address: ListenAddress, backlog: int) -> None:
        given = self._given.get(address)
        self._doors[address] = door
        if given is not None and given in self._activated.by_name.get(door, ()):
            given.setblocking(False)
            self._open[address] = given
            return
        if (inherited := self._inherited.pop(address, None)) is not None:
            self._open[address] = inherited
            self._shared.add(address)
            return
        self._open[address] = open_socket(door, address, backlog)
        self._note_inode(address)

    def _note_inode(self, address: ListenAddress) -> None:
        with contextlib.suppress(OSError):
            if address.path:
                self._inodes[address] = os.stat(address.path).st_ino

    def _warn_of_unused(self, wanted: Addresses) -> None:
        for door in wanted:
            for unused in {listened_at(one) for one in self._activated.by_name.get(door, ())} - set(wanted[door]):
                _log.warning(
                    "the service manager's %s at %s is not used: %s does not name it", door, unused, setting_of(door)
                )

    def _close(self, addresses: Iterable[ListenAddress]) -> None:
        for address in addresses:
            one = self._open.pop(address)
            self._shared.discard(address)
            # The service manager's stay open: a later reload may want them again.
            if one not in self._all_given():
                self._remove_path(address)
                one.close()

    def _remove_path(self, address: ListenAddress) -> None:
        inode = self._inodes.pop(address, None)
        with contextlib.suppress(OSError):
            # Else it is another program's by now.
            if inode is not None and os.stat(address.path).st_ino == inode:
                Path(address.path).unlink()

    def _all_given(self) -> list[socket.socket]:
        return [one for each in self._activated.by_name.values() for one in each]


def listened_at(listener: socket.socket) -> ListenAddress:
    """Where it listens."""
    name = listener.getsockname()
    if listener.family == socket.AF_UNIX:
        return ListenAddress(path=name if isinstance(name, str) else name.decode(errors="replace"))
    if listener.family not in (socket.AF_INET, socket.AF_INET6):
        return ListenAddress()
    everywhere = name[0] == "::" and not listener.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)
    return ListenAddress("" if everywhere else name[0], name[1])
