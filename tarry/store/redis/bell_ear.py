"""The thread that listens to what is PUBLISHed, and connects again when it must."""

import select
import socket
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Protocol, TypeAlias

from tarry.errors import TarryError
from tarry.store.redis.link_wire import Wire
from tarry.store.shared.bell import drained
from tarry.store.shared.patience import Backoff

ASK_AFTER = 10.0
"""Seconds of silence after which the server is asked whether it is still there."""
LASTS = 2.0
"""Seconds after which a connection that breaks was a good one: the next is tried soon."""

Connect: TypeAlias = Callable[[float], Wire]


class Listener(Protocol):
    """Whom the ear serves. All three are called by its thread."""

    def due(self) -> Iterable[tuple[str, ...]]:
        """What to tell the server now."""

    def take(self, frames: Iterable[Any]) -> None:
        """What the server said; may raise a TarryError."""

    def deafened(self) -> None:
        """The connection is gone, or cannot be had."""


class Ear:
    """Listens until it is closed."""

    def __init__(self, connect: Connect, timeout: float, listener: Listener) -> None:
        self._connect, self._timeout, self._listener = connect, timeout, listener
        self._hear, self._poke = socket.socketpair()
        self._hear.setblocking(False)
        self._poke.setblocking(False)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tarry-bells", daemon=True)
        self._thread.start()

    def poke(self) -> None:
        """The listener has something to tell the server."""
        with suppress(OSError):
            self._poke.send(b"\0")

    def close(self) -> None:
        """Returns once the thread has ended."""
        self._closed.set()
        self.poke()
        if self._thread is not threading.current_thread():
            self._thread.join(self._timeout + 1)
        self._poke.close()

    def _run(self) -> None:
        backoff = Backoff()
        while not self._closed.is_set():
            try:
                wire = self._connect(time.monotonic() + self._timeout)
            except TarryError:
                self._listener.deafened()
            else:
                began = time.monotonic()
                self._listen(wire)
                if time.monotonic() - began > LASTS:
                    backoff.succeed()
            backoff.fail(now := time.monotonic())
            # No poke ends this: who wants to hear more would have it try without a pause.
            self._closed.wait(backoff.left(now))
        self._hear.close()

    def _listen(self, wire: Wire) -> None:
        """Until it breaks."""
        try:
            while not self._closed.is_set():
                for words in self._listener.due():
                    wire.send([words], self._soon())
                self._await(wire)
                self._listener.take(wire.heard())
        except TarryError:
            pass
        finally:
            wire.close()
            self._listener.deafened()

    def _await(self, wire: Wire) -> None:
        if self._sleep(wire, ASK_AFTER):
            return
        wire.send([("PING",)], self._soon())
        if not self._sleep(wire, self._timeout):
            raise wire.silent()

    def _sleep(self, wire: Wire, seconds: float) -> bool:
        """False: neither did the server say anything in that time, nor was it poked."""
        poll = select.poll()
        poll.register(self._hear, select.POLLIN)
        poll.register(wire.fileno(), select.POLLIN)
        ready = {fd for fd, _ in poll.poll(0 if wire.pending else seconds * 1000)}
        if wire.pending or wire.fileno() in ready:
            wire.feed(self._soon())
        drained(self._hear)
        return bool(ready) or wire.pending

    def _soon(self) -> float:
        return time.monotonic() + self._timeout
