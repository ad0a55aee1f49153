"""One connection to a Redis server, with a time limit on everything. hiredis packs commands and parses replies."""

import select
import socket
import ssl
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import hiredis

from tarry.errors import StoreError
from tarry.store.redis.link.access import Access, ServerAddress, open_socket, sign_in
from tarry.store.redis.link.base import Word
from tarry.store.redis.link.redis_errors import ErrorReply, ReplyLost
from tarry.store.shared.uncertain import MAYBE

READ_SIZE = 64 * 1024
SLACK = 0.005
"""Seconds by which a call may go past its deadline."""
_NOTHING = object()


class RedisConnection:
    """One connection; for one thread at a time. Deadlines are moments of the monotonic clock."""

    calls_functions = True
    """False once the server has refused to load or call functions: then scripts do the same."""

    def __init__(self, address: ServerAddress, access: Access, deadline: float) -> None:
        self.address = address
        self.loaded_scripts: set[str] = set()
        """The SHAs of scripts that the server has."""
        self.broken = False
        """Whether it must not be used again. True also during a call."""
        self._reader = hiredis.Reader(replyError=ErrorReply, notEnoughData=_NOTHING)
        self._buffer = memoryview(bytearray(READ_SIZE))
        # The socket is our own, so that each call has a deadline, and `close` in a forked child sends nothing.
        self._socket = open_socket(address, access, deadline)
        self._timeout_for = self._timeout_until = 0.0
        """The deadline for which the socket's timeout was set, and until when that is exact enough."""
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        try:
            self.role = sign_in(self.ask, address, access, deadline)
        except BaseException:
            self.close()
            raise

    def ask(self, commands: Sequence[Sequence[Word]], deadline: float) -> list[Any]:
        """The answers, with error replies among them, in one round trip. ReplyLost: the connection broke."""
        self.send(commands, deadline)
        # Of earlier calls nothing is left to take.
        self.read(deadline)
        return self.receive(len(commands), deadline)

    def send(self, commands: Sequence[Sequence[Word]], deadline: float) -> None:
        """Only sends; the caller must then receive as many answers."""
        packed = b"".join([hiredis.pack_command(tuple(words)) for words in commands])  # type: ignore[arg-type]
        # Until all answers have come: a call that is interrupted leaves an answer unread, and the next call would take
        # it for its own.
        self.broken = True
        try:
            self._set_timeout(deadline)
            self._socket.sendall(packed)
        except OSError as error:
            raise self._lost(error) from None

    def receive(self, count: int, deadline: float) -> list[Any]:
        """So many answers; then the connection may be used again."""
        answers = self.take(count)
        while len(answers) < count:
            self.read(deadline)
            answers += self.take(count - len(answers))
        self.broken = False
        return answers

    def take(self, most: int = 1000) -> list[Any]:
        """Answers that have come and were not taken yet, without waiting. StoreError: it is not Redis's protocol."""
        answers: list[Any] = []
        gets = self._reader.gets
        try:
            while len(answers) < most and (answer := gets()) is not _NOTHING:
                answers.append(answer)
        except hiredis.ProtocolError:
            raise StoreError(f"{self.address} is no Redis: it speaks another protocol") from None
        return answers

    def read(self, deadline: float) -> None:
        """Waits until the server sends something, for `take` to answer."""
        try:
            self._set_timeout(deadline)
            size = self._socket.recv_into(self._buffer)
        except OSError as error:
            raise self._lost(error) from None
        if not size:
            raise self._lost(ConnectionResetError("it hung up"))
        self._reader.feed(self._buffer[:size])  # type: ignore[arg-type]

    @property
    def is_stale(self) -> bool:
        """Whether it broke while no thread used it."""
        # Unasked, the server sends only the end of the connection, and what belongs to TLS alone.
        if self.broken or not self._poll.poll(0):
            return self.broken
        self._timeout_for = 0.0
        try:
            self._socket.settimeout(0)
            self._socket.recv(1)
        except (BlockingIOError, ssl.SSLWantReadError):
            return False
        except OSError:
            return True
        return True

    @property
    def has_pending(self) -> bool:
        """Whether TLS has read more than was taken; a poll does not see that."""
        return isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0

    def fileno(self) -> int:
        """The descriptor that becomes readable."""
        return self._socket.fileno()

    def timeout_error(self) -> ReplyLost:
        """The error to raise when the server is silent for too long."""
        return self._lost(TimeoutError())

    def interrupt(self) -> None:
        """For another thread: a call that waits for an answer raises ReplyLost. Not in a forked child: it would end the
        parent's connection."""
        self.broken = True
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Closes the socket and sends nothing, so that a forked child does not end its parent's connection."""
        self.broken = True
        self._socket.close()

    def __del__(self) -> None:
        # Spares Python's warning where a store was never closed.
        if hasattr(self, "_socket"):
            self._socket.close()

    def _set_timeout(self, deadline: float) -> None:
        now = time.monotonic()
        # Each change is a system call, so the limit that was set when the call was sent also holds for its answer.
        if deadline != self._timeout_for or now > self._timeout_until:
            # Never 0, which would mean not to wait at all, nor less, which is an error.
            self._socket.settimeout(max(deadline - now, 0.001))
            self._timeout_for, self._timeout_until = deadline, now + SLACK

    def _lost(self, error: OSError) -> ReplyLost:
        if isinstance(error, TimeoutError):
            return ReplyLost(f"{self.address}: no answer in time, and {MAYBE}", silent=True)
        return ReplyLost(f"{self.address}: the connection broke: {error.strerror or error}; {MAYBE}")
