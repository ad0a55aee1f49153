"""A service manager, as far as its socket goes."""

import contextlib
import socket


class NotifySocket:
    def __init__(self, address: str) -> None:
        """address: as in NOTIFY_SOCKET, a path or `@name`."""
        self.address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind("\0" + address[1:] if address.startswith("@") else address)
        self._socket.setblocking(False)
        self.messages: list[str] = []
        """All messages so far."""

    def take(self) -> list[str]:
        """The messages that came since the last call."""
        before = len(self.messages)
        with contextlib.suppress(BlockingIOError):
            while True:
                self.messages.append(self._socket.recv(65536).decode())
        return self.messages[before:]

    def lines(self, name: str) -> list[str]:
        """The values of all lines `name=value` so far."""
        self.take()
        lines = [line for message in self.messages for line in message.split("\n")]
        return [line.partition("=")[2] for line in lines if line.startswith(f"{name}=")]

    def close(self) -> None:
        self._socket.close()
