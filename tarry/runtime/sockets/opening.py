"""Opens one listening socket."""

import os
import socket
import stat
from pathlib import Path

from tarry import files
from tarry.errors import MasterError
from tarry.model.listen_address import ListenAddress

_SOCKET_UMASK = 0o117
"""A unix socket is for its owner and the group."""
_ANY_V4, _ANY_V6 = "0.0.0.0", "::"
_CONNECT_TIMEOUT = 1.0  # Seconds for which another program's full backlog is waited for.


def open_socket(door: str, address: ListenAddress, backlog: int) -> socket.socket:
    """A socket that listens there, does not block, and does not outlive an exec. MasterError names the setting of that
    door if nobody can listen there."""
    listening = _open_unix if address.path else _open_tcp
    try:
        return listening(address, backlog)
    except OSError as error:
        raise MasterError(
            f"{door} cannot listen at {address} ({error.strerror or error}): set {setting_of(door)} to another address,"
            " or end what is there"
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
    raise OSError("another program listens there")
