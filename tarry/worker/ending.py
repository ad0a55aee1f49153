"""The end of a worker whose store is away: bounded in time, also while the thread that speaks with the store hangs."""

import select
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from tarry.store.shared.bell import drained

LEAVES_TO_OTHERS = 0.25
"""Seconds that the worker's own thread has to hear of news."""
LOOK_EVERY = 0.1
SAYS_AFTER = 1.0
"""Seconds until it is said that the store is waited for."""


class Ending(Protocol):
    """A worker, as far as its end goes. All may be called from any thread."""

    def heed(self) -> None:
        """Takes note of what came from outside."""

    def is_leaving(self) -> bool:
        """It was told to end."""

    def end_by(self) -> float:
        """By time.monotonic(): when it has to be over, whatever runs; inf: when what runs has finished."""

    def executes(self) -> bool:
        """A job is still run."""

    def hurries(self) -> bool:
        """Who told it to end waits for that. Where it is only replaced, nobody does, and no outcome need be lost."""

    def say_waiting(self) -> None:
        """Says that it waits for the store."""

    def give_up(self) -> None:
        """Ends the process, and names what could not be settled."""


class EndLimit:
    """A thread that ends the worker's process `within` seconds after its last job, once it was told to end."""

    def __init__(self, worker: Ending, outside: Sequence[int], within: float) -> None:
        self._worker, self._outside, self._within = worker, outside, within
        self._hear, self._poke = socket.socketpair()
        self._hear.setblocking(False)
        self._poke.setblocking(False)
        self._closed = False
        threading.Thread(target=self._watch, name="tarry-end", daemon=True).start()

    def poke(self) -> None:
        """There is news; also from a signal's handler."""
        with suppress(OSError):
            self._poke.send(b"\0")

    def close(self) -> None:
        """The worker has ended, and the process goes on."""
        self._closed = True
        self.poke()

    def _watch(self) -> None:
        while not self._worker.is_leaving() and not self._closed:
            self._await_news()
            time.sleep(LEAVES_TO_OTHERS)
            if not self._closed:
                self._worker.heed()
        self._limit()
        self._hear.close()
        self._poke.close()

    def _limit(self) -> None:
        idle_since, said = time.monotonic(), False
        while not self._closed:
            now = time.monotonic()
            if self._worker.executes() or not self._worker.hurries():
                idle_since = now
            if now - idle_since >= SAYS_AFTER and not said:
                said = True
                self._worker.say_waiting()
            if now - idle_since >= self._within or now >= self._worker.end_by():
                self._worker.give_up()
            time.sleep(LOOK_EVERY)

    def _await_news(self) -> None:
        sleeper = select.poll()
        for fd in (self._hear.fileno(), *self._outside):
            sleeper.register(fd, select.POLLIN)
        sleeper.poll()
        drained(self._hear)
