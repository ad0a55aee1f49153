"""What wakes the sleepers of a process: a connection that listens, or, where none can, the passing of time."""

import contextlib
import os
import select
import threading
import time
from collections.abc import Iterable
from typing import Protocol

import psycopg

from tarry.errors import TarryError
from tarry.store.postgres.connection import Connections
from tarry.store.postgres.link import Link, connected
from tarry.store.postgres.ringing import channel
from tarry.store.shared.patience import Backoff

POLL_FROM, POLL_TO = 0.005, 0.25
"""Seconds."""


class Sleepers(Protocol):
    """Those of one process."""

    def heard(self, kinds: Iterable[str]) -> None:
        """Such news came."""

    def wake_all(self) -> None:
        """Nobody knows what was missed: everybody looks."""

    def sleepers(self) -> bool:
        """Whether anybody sleeps."""


class Listener:
    """The connection that listens, and its thread."""

    def __init__(self, bells: Sleepers, connections: Connections, token: str) -> None:
        self._bells, self._connections, self._token = bells, connections, token
        self._changed = threading.Condition()
        self._wanted: set[str] = set()
        self._heard: set[str] = set()
        self._down = self._closed = False
        self._wake, self._woken = os.pipe()
        os.set_blocking(self._woken, False)
        self._thread = threading.Thread(target=self._listen, name="tarry-listening", daemon=True)
        self._thread.start()

    def want(self, kinds: str) -> None:
        """From now on these are heard; returns when that is so, or cannot be for now."""
        if self._heard.issuperset(kinds):
            return
        with self._changed:
            self._wanted |= set(kinds)
            self._poke()
            self._changed.wait_for(
                lambda: self._heard.issuperset(kinds) or self._down or self._closed, self._connections.place.seconds
            )

    def _poke(self) -> None:
        with contextlib.suppress(BlockingIOError, OSError):
            os.write(self._woken, b"\0")

    def close(self) -> None:
        """Nothing is heard any more."""
        with self._changed:
            self._closed = True
            self._poke()
            self._changed.notify_all()
        if self._thread is not threading.current_thread():
            self._thread.join(timeout=2 * self._connections.place.seconds)
        for fd in (self._wake, self._woken):
            os.close(fd)

    def _listen(self) -> None:
        backoff = Backoff()
        while not self._closed:
            link: Link | None = None
            try:
                link = connected(self._connections.place)
                # What comes while a command is under way.
                link.add_notify_handler(lambda notice: self._news(notice.channel, notice.payload))
                self._hear(link, backoff)
            except (psycopg.Error, TarryError):
                pass
            finally:
                if link is not None:
                    link.leave()
            backoff.fail(now := time.monotonic())
            with self._changed:
                self._down = True
                self._heard = set()
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._closed, backoff.left(now))

    def _hear(self, link: Link, backoff: Backoff) -> None:
        missed = self._down
        waiter = select.poll()
        waiter.register(link.pgconn.socket, select.POLLIN)
        waiter.register(self._wake, select.POLLIN)
        while not self._closed:
            if new := self._wanted - self._heard:
                schema = self._connections.place.schema
                link.run("; ".join(f"LISTEN {channel(schema, kind)}" for kind in sorted(new)))
                self._now_heard(new)
                backoff.succeed()
                if missed:
                    missed = False
                    self._bells.wake_all()
            waiter.poll()
            if select.select([self._wake], [], [], 0)[0]:
                os.read(self._wake, 1024)
            self._take(link)

    def _now_heard(self, kinds: set[str]) -> None:
        with self._changed:
            self._heard |= kinds
            self._down = False
            self._changed.notify_all()

    def _take(self, link: Link) -> None:
        link.pgconn.consume_input()
        while (notice := link.pgconn.notifies()) is not None:
            self._news(notice.relname.decode(errors="replace"), notice.extra.decode(errors="replace"))

    def _news(self, where: str, token: str) -> None:
        if token != self._token:
            self._bells.heard(where[-1:])


class Ticker:
    """Wakes all who sleep, more and more seldom."""

    def __init__(self, bells: Sleepers) -> None:
        self._bells = bells
        self._changed = threading.Condition()
        self._pause = POLL_FROM
        self._closed = False
        self._thread = threading.Thread(target=self._tick, name="tarry-polling", daemon=True)
        self._thread.start()

    def want(self, kinds: str) -> None:
        """Somebody sleeps."""
        with self._changed:
            self._changed.notify()

    def stir(self) -> None:
        """Often again, for a while."""
        self._pause = POLL_FROM

    def close(self) -> None:
        """Nobody is woken any more."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not threading.current_thread():
            self._thread.join(timeout=5)

    def _tick(self) -> None:
        while not self._closed:
            with self._changed:
                if not self._bells.sleepers() and not self._closed:
                    self._changed.wait(POLL_TO)
                    continue
                self._changed.wait_for(lambda: self._closed, self._pause)
            self._pause = min(POLL_TO, self._pause * 2)
            self._bells.wake_all()
