"""Sends log lines as datagrams to a socket that may be gone, full, or not there yet. Never waits for it."""

import errno
import logging
import os
import socket
from typing import Any

from tarry.runtime.logs.fallback import StderrFallback

SocketAddress = str | tuple[Any, ...]


class DatagramHandler(logging.Handler):
    """Sends each record as `pack` encodes it. A line that cannot be sent at once goes to stderr. It tries the
    socket again with growing pauses, and a line says when it is back."""

    def __init__(self, family: int, address: SocketAddress, shown: str) -> None:
        super().__init__()
        self._family, self._address = family, address
        self._fallback = StderrFallback(shown)
        self._socket: socket.socket | None = None

    def pack(self, record: logging.LogRecord) -> bytes:
        """Encodes the record as a datagram."""
        raise NotImplementedError

    def emit(self, record: logging.LogRecord) -> None:
        """Sends one record; does not wait and does not raise."""
        try:
            if self._fallback.is_due and self._try_send(self.pack(record)):
                return
            self._fallback.write(self.format(record))
        except Exception:
            self.handleError(record)

    def reopen(self) -> None:
        """Tries the socket again at the next line, without a pause."""
        self._fallback.retry_now()

    def close(self) -> None:
        """Closes the socket; no lines may follow."""
        self._disconnect()
        super().close()

    def _try_send(self, datagram: bytes) -> bool:
        try:
            self._send(datagram)
        except OSError as error:
            self._fallback.record_failure(error.strerror or type(error).__name__)
            return False
        if note := self._fallback.record_success():
            self._send_note(note)
        return True

    def _send(self, datagram: bytes) -> None:
        """Sends; connects again if the connection is gone, as the other side may have restarted. OSError."""
        if self._socket is not None:
            try:
                self._socket.send(datagram)
                return
            except OSError as error:
                # The connection is sound: a new one would be as full, or the line as long.
                if error.errno in _FULL:
                    raise
                self._disconnect()
        self._connect().send(datagram)

    def _connect(self) -> socket.socket:
        line = socket.socket(self._family, socket.SOCK_DGRAM)
        # A reader that is too slow must not hold up this process.
        line.setblocking(False)
        try:
            line.connect(self._address)
        except OSError:
            line.close()
            raise
        self._socket = line
        return line

    def _disconnect(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send_note(self, message: str) -> None:
        record = logging.LogRecord("tarry.log", logging.WARNING, __file__, 0, message, None, None)
        try:
            self._send(self.pack(record))
        except OSError as error:
            self._fallback.record_failure(error.strerror or type(error).__name__)


_FULL = (errno.EAGAIN, errno.ENOBUFS, errno.EMSGSIZE)


def truncate(data: bytes, most: int) -> bytes:
    """Cuts UTF-8 to at most so many bytes, without half characters."""
    if len(data) <= most:
        return data
    return data[: most - 3].decode("utf-8", "ignore").encode() + b"..."


def host_name() -> str:
    """The name of this host."""
    return os.uname().nodename
