"""Waiting in line for work: of all workers of one kind, on whatever host, each ring wakes one.

A kind of worker has a list in the store. Whoever rings puts a token there if there is none (`lua/ring.lua`), and Redis
gives it to the one that has waited longest (BLPOP). A token waits for a sleeper too, so nothing is missed between
looking and sleeping; and one that reaches a process whose workers are busy by then goes back. Who dies in line is out
of it with its connection.
"""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from tarry.errors import TarryError
from tarry.store.redis.link import Script
from tarry.store.redis.link_refusal import Refusal, error_of
from tarry.store.redis.link_request import Request, asked
from tarry.store.redis.link_wire import Wire
from tarry.store.shared.bell import WORK
from tarry.store.shared.patience import Backoff

WAIT = 10
"""Seconds for which one BLPOP waits."""
PRESENT_EVERY, FORGOTTEN_AFTER = 60.0, 3600
"""Seconds: a kind of worker says so often that there is such a kind, and counts as gone when it did not for so long."""
LASTS = 2.0
"""Seconds after which a connection that breaks was a good one: the next is tried soon."""

PRESENT = Script(
    "present",
    """#!lua flags=allow-oom
    local now = redis.call('TIME')[1]
    redis.call('ZADD', KEYS[1], now, ARGV[1])
    redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', '(' .. now - ARGV[2])
    """,
    repeatable=True,
)
PASS_ON = Script(
    "pass_on",
    """#!lua flags=allow-oom
    if redis.call('EXISTS', KEYS[1]) == 0 then redis.call('RPUSH', KEYS[1], '1') end
    """,
    repeatable=True,
)


class Ringing(Protocol):
    """A bell."""

    def ring(self) -> None:
        """Wakes who sleeps on it."""


class Sleepers(Protocol):
    """Who sleeps in this process."""

    @property
    def news(self) -> threading.Condition:
        """Guards the rest, and is notified when one begins to sleep."""

    def sleepers(self, topic: str) -> Sequence[Ringing]:
        """Who sleeps for that topic now."""


class Turn:
    """A process's place in the line of one kind of worker: a thread, with a connection of its own."""

    def __init__(
        self, connect: Callable[[float], Wire], timeout: float, base: str, topic: str, process: Sleepers
    ) -> None:
        self._connect, self._timeout, self._topic, self._process = connect, timeout, topic, process
        store, kind = base.removesuffix("bell"), topic.removeprefix(WORK)
        self._kinds, self._kind, self._line = f"{store}kinds", kind, f"{store}wake:{kind}"
        self.wanted = True
        self.heard = False
        self.deaf = False
        """It has no connection, and cannot have one just now."""
        self.waiting = False
        """It stands in line."""
        self._closed = False
        self._wire: Wire | None = None
        self._presented = 0.0
        self._thread = threading.Thread(target=self._run, name="tarry-turn", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Returns once the thread has ended."""
        with self._process.news:
            self._closed = True
            if self._wire is not None:
                self._wire.interrupt()
            self._process.news.notify_all()
        self._thread.join(self._timeout + 1)

    def _run(self) -> None:
        backoff = Backoff()
        while not self._closed:
            began = time.monotonic()
            try:
                self._stand(self._connect(began + self._timeout))
            except TarryError:
                self._lose()
            if time.monotonic() - began > self._timeout + LASTS:
                backoff.succeed()
            backoff.fail(now := time.monotonic())
            with self._process.news:
                self._process.news.wait_for(lambda: self._closed, backoff.left(now))

    def _stand(self, wire: Wire) -> None:
        """Until the connection breaks."""
        with self._process.news:
            self._wire = wire
        try:
            self._present(wire)
            with self._process.news:
                self._found()
            while self._someone_sleeps():
                if time.monotonic() - self._presented > PRESENT_EVERY:
                    self._present(wire)
                if self._turn_came(wire) and not self._woke():
                    self._ask(wire, PASS_ON, self._line)
        finally:
            with self._process.news:
                self._wire = None
            wire.close()

    def _present(self, wire: Wire) -> None:
        self._ask(wire, PRESENT, self._kinds, self._kind, str(FORGOTTEN_AFTER))
        self._presented = time.monotonic()

    def _found(self) -> None:
        missed = self.deaf
        self.heard, self.deaf = True, False
        if missed:
            self._ring_all()
        self._process.news.notify_all()

    def _lose(self) -> None:
        with self._process.news:
            was_deaf = self.deaf
            self.heard, self.deaf = False, True
            if not was_deaf:
                self._ring_all()
            self._process.news.notify_all()

    def _ring_all(self) -> None:
        for bell in self._process.sleepers(self._topic):
            bell.ring()

    def _someone_sleeps(self) -> bool:
        """Waits until that is so; False: it is over."""
        with self._process.news:
            self.waiting = False
            self._process.news.wait_for(lambda: self._closed or self._process.sleepers(self._topic))
            self.waiting = not self._closed
            return self.waiting

    def _turn_came(self, wire: Wire) -> bool:
        (answer,) = wire.ask([("BLPOP", self._line, WAIT)], time.monotonic() + WAIT + self._timeout)
        if isinstance(answer, Refusal):
            raise error_of(answer, str(wire.place))
        return answer is not None

    def _woke(self) -> bool:
        with self._process.news:
            for bell in self._process.sleepers(self._topic)[:1]:
                bell.ring()
                return True
        return False

    def _ask(self, wire: Wire, script: Script, *words: Any) -> None:
        (answer,) = asked(wire, [Request(script, (1, *words))], time.monotonic() + self._timeout)
        if isinstance(answer, Refusal):
            raise error_of(answer, str(wire.place))
