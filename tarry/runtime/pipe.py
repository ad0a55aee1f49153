"""JSON messages both ways between the master and a child, over a socket pair. End of file: the other side is gone."""

import contextlib
import select
import socket
from typing import Any

import msgspec

PipeMessage = dict[str, Any]

_MAX_LINE = 1_000_000  # Bytes of a line. A longer one is not ours and is dropped.


class MessagePipe:
    """One side of the pair. Reading never waits; sending waits only if asked to."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._in, self._out = b"", b""
        self.at_eof = False
        """The other side has closed; no more messages come."""
        sock.setblocking(False)

    def fileno(self) -> int:
        """Readable when messages came, and at end of file."""
        return self._socket.fileno()

    def is_open(self) -> bool:
        """False: code in this process has closed our descriptor. Cheap: the call does not release the GIL."""
        try:
            self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE)
        except OSError:
            return False
        return True

    @property
    def has_unsent(self) -> bool:
        """True: call `flush` when the socket becomes writable."""
        return bool(self._out)

    def send(self, message: PipeMessage, wait: bool = False) -> None:
        """Sends what the socket takes now, and the rest at the next `flush`. wait: blocks until all is sent."""
        self._out += msgspec.json.encode(message) + b"\n"
        self.flush()
        while wait and self._out:
            room = select.poll()  # not select(): a busy worker has descriptors above 1024
            room.register(self._socket, select.POLLOUT)
            room.poll()
            self.flush()

    def flush(self) -> None:
        """Sends what is unsent, as far as the socket takes it."""
        try:
            while self._out:
                self._out = self._out[self._socket.send(self._out) :]
        except BlockingIOError:
            return
        except OSError:
            self._out = b""  # the other side is gone; `receive` sets at_eof

    def receive(self) -> list[PipeMessage]:
        """The complete messages that came. Lines that are no JSON objects are skipped."""
        try:
            while not self.at_eof:
                more = self._socket.recv(65536)
                self._in += more
                self.at_eof = not more
        except BlockingIOError:
            pass
        except OSError:
            # A reset connection is an end, too.
            self.at_eof = True
        *lines, rest = self._in.split(b"\n")
        self._in = rest if len(rest) <= _MAX_LINE else b""
        return [message for line in lines if (message := _decode(line)) is not None]

    def close(self) -> None:
        """Closes this side only."""
        self._socket.close()


def _decode(line: bytes) -> PipeMessage | None:
    # User code may write to any descriptor, also to this one.
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
        message = msgspec.json.decode(line)
        return message if isinstance(message, dict) else None
    return None
