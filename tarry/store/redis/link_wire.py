"""One connection to a Redis server, with a time limit on everything.

hiredis packs and parses; the socket is our own, so that each call has a deadline and a fork harms nobody.
"""

import select
import socket
import ssl
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import hiredis

from tarry.errors import StoreError
from tarry.store.redis.link import Word
from tarry.store.redis.link_door import Access, Place, connected, let_in
from tarry.store.redis.link_refusal import Lost, Refusal

READ_SIZE = 64 * 1024
_NOTHING = object()


class Wire:
    """One connection; for one thread at a time. Deadlines are moments of the monotonic clock."""

    def __init__(self, place: Place, access: Access, deadline: float) -> None:
        self.place = place
        self.known: set[str] = set()
        """The SHAs of scripts that the server has."""
        self.broken = False
        """It must not be used again. Also while it is in use: who is interrupted there leaves an answer unread."""
        self._reader = hiredis.Reader(replyError=Refusal, notEnoughData=_NOTHING)
        self._buffer = memoryview(bytearray(READ_SIZE))
        self._socket = connected(place, access, deadline)
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        try:
            self.role = let_in(self, access, deadline)
        except BaseException:
            self.close()
            raise

    def ask(self, commands: Sequence[Sequence[Word]], deadline: float) -> list[Any]:
        """The answers, in one round trip; those that are errors stand among them as Refusal. Lost: it broke."""
        self.send(commands, deadline)
        return self.receive(len(commands), deadline)

    def send(self, commands: Sequence[Sequence[Word]], deadline: float) -> None:
        """Only sends: as many answers must then be received."""
        packed = b"".join([hiredis.pack_command(tuple(words)) for words in commands])  # type: ignore[arg-type]
        self.broken = True
        try:
            self._limit(deadline)
            self._socket.sendall(packed)
        except OSError as error:
            raise self._lost(error) from None

    def receive(self, count: int, deadline: float) -> list[Any]:
        """So many answers; then it may be used again."""
        answers: list[Any] = []
        while len(answers) < count:
            answers += self.heard(count - len(answers)) or self.feed(deadline)
        self.broken = False
        return answers

    def heard(self, most: int = 1000) -> list[Any]:
        """What has come up to now and was not taken. StoreError: that is not Redis's protocol."""
        answers: list[Any] = []
        gets = self._reader.gets
        try:
            while len(answers) < most and (answer := gets()) is not _NOTHING:
                answers.append(answer)
        except hiredis.ProtocolError:
            raise StoreError(f"{self.place} is no Redis: it speaks another protocol") from None
        return answers

    def feed(self, deadline: float) -> tuple[()]:
        """Waits until the server says something; nothing of it is taken yet."""
        try:
            self._limit(deadline)
            size = self._socket.recv_into(self._buffer)
        except OSError as error:
            raise self._lost(error) from None
        if not size:
            raise self._lost(ConnectionResetError("it hung up"))
        self._reader.feed(self._buffer[:size])  # type: ignore[arg-type]
        return ()

    @property
    def stale(self) -> bool:
        """Whether it broke while nobody used it: nothing comes unasked but the end, and what belongs to TLS."""
        if self.broken or not self._poll.poll(0):
            return self.broken
        try:
            self._socket.settimeout(0)
            self._socket.recv(1)
        except (BlockingIOError, ssl.SSLWantReadError):
            return False
        except OSError:
            return True
        return True

    @property
    def pending(self) -> bool:
        """Whether TLS has read more than was taken, of which no poll will tell."""
        return isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0

    def fileno(self) -> int:
        """What becomes readable."""
        return self._socket.fileno()

    def silent(self) -> Lost:
        """It has said nothing for too long."""
        return self._lost(TimeoutError())

    def interrupt(self) -> None:
        """From another thread: who waits for an answer gets Lost. Not in a forked child: it would end the parent's."""
        self.broken = True
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Without a word to the server, so that it harms no parent."""
        self.broken = True
        self._socket.close()

    def __del__(self) -> None:
        # Nobody is told either; only Python is spared a warning where a store was never closed.
        if hasattr(self, "_socket"):
            self._socket.close()

    def _limit(self, deadline: float) -> None:
        self._socket.settimeout(max(deadline - time.monotonic(), 0.001))

    def _lost(self, error: OSError) -> Lost:
        if isinstance(error, TimeoutError):
            return Lost(f"{self.place}: no answer in time; send it again", silent=True)
        return Lost(f"{self.place}: the connection broke: {error.strerror or error}; send it again")
