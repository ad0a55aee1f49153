"""The listening sockets that a master holds. It never accepts; its children do, which get the sockets by fork.

They outlive the children, so while processes are replaced, connections wait in the kernel and none is refused.

Opens one listening socket.
"""

import contextlib
import logging
import os
import socket
import stat
from collections.abc import Iterable, Mapping, Sequence
from errno import EADDRINUSE
from pathlib import Path
from time import monotonic, sleep

from tarry import files
from tarry.errors import MasterError
from tarry.model.values.listen_address import ListenAddress
from tarry.runtime.sockets.activation import ActivationSockets

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

    def open(self, wanted: Addresses, backlog: int, patience: float = 0.0) -> None:
        """Opens what is not open yet. patience: of `open_socket`, for each. MasterError: one cannot be opened; then
        nothing has changed."""
        missing = [(door, address) for door, each in wanted.items() for address in each if address not in self._open]
        opened: list[ListenAddress] = []
        try:
            for door, address in missing:
                self._open_one(door, address, backlog, patience)
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

    def _open_one(self, door: str, address: ListenAddress, backlog: int, patience: float) -> None:
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
        self._open[address] = open_socket(door, address, backlog, patience)
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


_SOCKET_UMASK = 0o117
"""A unix socket is for its owner and the group."""
_ANY_V4, _ANY_V6 = "0.0.0.0", "::"
_LOOK_AGAIN = 0.05  # Seconds.
_CONNECT_TIMEOUT = 1.0  # Seconds for which another program's full backlog is waited for.


def open_socket(door: str, address: ListenAddress, backlog: int, patience: float = 0.0) -> socket.socket:
    """A socket that listens there, does not block, and does not outlive an exec. patience: seconds for which it waits
    until those that listen there end. MasterError names the setting of that door if nobody can listen there."""
    listening = _open_unix if address.path else _open_tcp
    end, is_told = monotonic() + patience, False
    while True:
        try:
            return listening(address, backlog)
        except OSError as error:
            if error.errno == EADDRINUSE and monotonic() < end:
                if not is_told:
                    _log.info("%s waits up to %g s for %s: somebody still listens there", door, patience, address)
                is_told = True
                sleep(_LOOK_AGAIN)
                continue
            raise MasterError(
                f"{door} cannot listen at {address} ({error.strerror or error}): set {setting_of(door)} to another"
                " address, or end what is there"
            ) from None


def setting_of(door: str) -> str:
    """The setting that says where that door listens."""
    return "metrics.listen" if door == "metrics" else f"server.{door}"


def _open_tcp(address: ListenAddress, backlog: int) -> socket.socket:
    # All addresses of both kinds by one socket, where the kernel has it.
    everywhere = not address.host
    host = address.host or (_ANY_V6 if socket.has_dualstack_ipv6() else _ANY_V4)
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        # Else connections of a master that has just ended would keep the address for a minute.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if listener.family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, not everywhere)
        listener.bind((host, address.port))
        return _listen(listener, backlog)
    except OSError:
        listener.close()
        raise


def _open_unix(address: ListenAddress, backlog: int) -> socket.socket:
    path = Path(address.path)
    files.make_directory(path.parent)
    _remove_stale(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # Not changed afterwards: for an instant anybody could connect.
    before = os.umask(_SOCKET_UMASK)
    try:
        listener.bind(address.path)
        return _listen(listener, backlog)
    except OSError:
        listener.close()
        raise
    finally:
        os.umask(before)


def _listen(listener: socket.socket, backlog: int) -> socket.socket:
    listener.listen(backlog)
    listener.setblocking(False)
    return listener


def _remove_stale(path: Path) -> None:
    """Removes a socket that nobody listens at any more. OSError: somebody does, or it is no socket."""
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise OSError("a file is there, and no socket")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_CONNECT_TIMEOUT)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
    raise OSError(EADDRINUSE, "another program listens there")
