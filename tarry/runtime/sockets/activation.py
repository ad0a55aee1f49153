"""Listening sockets that the service manager opened: systemd's socket activation; see sd_listen_fds(3)."""

import os
import socket
from collections.abc import Iterator, MutableMapping
from itertools import repeat

from tarry.errors import MasterError

_FIRST = 3
_UNNAMED = "unknown"
_VARIABLES = ("LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES")


class ActivationSockets:
    """The sockets by the names of their units (`FileDescriptorName=`); sockets of the same name keep their order.

    They stay open for the life of this object, also over reloads, so no connection is ever refused.
    """

    def __init__(self, environ: MutableMapping[str, str] = os.environ) -> None:
        """Takes the sockets that are meant for this process, and removes the variables.

        MasterError: a socket that the variables name is not there.
        """
        count, pid, names = (environ.pop(name, "") for name in _VARIABLES)
        self.by_name: dict[str, list[socket.socket]] = {}
        # With another pid the variables were meant for a process before us, which passed them on.
        if count and pid == str(os.getpid()):
            for fd, name in _declared_sockets(count, names):
                self.by_name.setdefault(name, []).append(_open_socket(fd, name))

    def take_first(self, many: int) -> list[socket.socket]:
        """Removes the first so many of all, in the order of their descriptors, and returns them."""
        taken = [one for each in self.by_name.values() for one in each if one.fileno() < _FIRST + many]
        self.by_name = {name: [one for one in each if one not in taken] for name, each in self.by_name.items()}
        for one in taken:
            one.setblocking(False)
        return taken

    def close(self) -> None:
        """Closes our descriptors; the service manager keeps its own."""
        for sockets in self.by_name.values():
            for one in sockets:
                one.close()


def _declared_sockets(count: str, names: str) -> Iterator[tuple[int, str]]:
    named = names.split(":") if names else []
    number = int(count) if count.isdecimal() else -1
    if number < 0 or (named and len(named) != number):
        raise MasterError(f"LISTEN_FDS={count} with LISTEN_FDNAMES={names}: the service manager does not mean this")
    for n, name in enumerate(named or repeat(_UNNAMED, number)):
        yield _FIRST + n, name or _UNNAMED


def _open_socket(fd: int, name: str) -> socket.socket:
    try:
        # Programs that our processes execute must not have the socket.
        os.set_inheritable(fd, False)
        return socket.socket(fileno=fd)
    except OSError as error:
        raise MasterError(
            f"descriptor {fd} ({name}) from the service manager is no socket ({error.strerror}): see the .socket unit"
        ) from None
