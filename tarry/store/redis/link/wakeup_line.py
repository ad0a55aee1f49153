"""A line for work: each notice of work wakes one of all workers of one kind, on any host.

A kind of worker has a list in the store. A process that brings work puts a token there if there is none
(`lua/wake.lua`), and Redis gives it to the process that has waited longest (BLPOP). A process that dies leaves the line
with its connection.
"""

import time
from collections.abc import Callable
from typing import TypeAlias

from tarry.store.redis.link.base import Script
from tarry.store.redis.link.connection import RedisConnection
from tarry.store.redis.link.redis_errors import ErrorReply, error_of
from tarry.store.redis.link.request import Request, send_requests
from tarry.store.rules.sleeper import WORK
from tarry.store.shared.wakeup.hub import WakeupHub
from tarry.store.shared.wakeup.listener import WakeupListener

Connect: TypeAlias = Callable[[float], RedisConnection]
"""Opens a connection by a deadline, or raises a TarryError."""

WAIT = 10
"""Seconds for which one BLPOP waits."""
ANNOUNCE_EVERY, FORGOTTEN_AFTER = 60.0, 3600
"""Seconds between two announcements of a kind of worker, and seconds after the last one until the kind is forgotten."""

ANNOUNCE = Script(
    "announce",
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


class LineOfWorkers:
    """The line of one kind of worker, those with this topic. prefix: the beginning of the store's keys."""

    def __init__(self, prefix: str, topic: str) -> None:
        self._kind = topic.removeprefix(WORK)
        self._kinds, self.key = f"{prefix}:kinds", f"{prefix}:wake:{self._kind}"

    def announce(self, connection: RedisConnection, deadline: float) -> None:
        """Makes it known that there are such workers."""
        self._ask(connection, ANNOUNCE, deadline, self._kinds, self._kind, str(FORGOTTEN_AFTER))

    def pass_on(self, connection: RedisConnection, deadline: float) -> None:
        """Puts a token back for the next in line."""
        self._ask(connection, PASS_ON, deadline, self.key)

    def _ask(self, connection: RedisConnection, script: Script, deadline: float, *words: str) -> None:
        (answer,) = send_requests(connection, [Request(script, (1, *words))], deadline)
        if isinstance(answer, ErrorReply):
            raise error_of(answer, str(connection.address))


class LineListener(WakeupListener):
    """A process's place in the line of one kind of worker. Its only channel is the topic of these workers."""

    def __init__(self, hub: WakeupHub, connect: Connect, timeout: float, prefix: str, topic: str) -> None:
        super().__init__("tarry-wakeup-line", hub, timeout)
        self._connect, self._topic = connect, topic
        self._line = LineOfWorkers(prefix, topic)
        self._wire: RedisConnection | None = None
        self._announced = 0.0

    def listen(self) -> None:
        connection = self._connect(self.deadline())
        with self.lock:
            self._wire = connection
        try:
            # Confirmed before it waits in line: from the announcement on there are tokens for this kind, and a token
            # stays until a sleeper takes it. So nothing is missed between looking for work and sleeping.
            self._announce(connection)
            self.confirm((self._topic,))
            while self._await_sleeper():
                if time.monotonic() - self._announced > ANNOUNCE_EVERY:
                    self._announce(connection)
                # The workers may have become busy meanwhile: the token goes back, for another process.
                if self._await_token(connection) and not self.hub.wake_one(self._topic):
                    self._line.pass_on(connection, self.deadline())
        finally:
            with self.lock:
                self._wire = None
            connection.close()

    def wake_thread(self) -> None:
        # BLPOP cannot be woken: the connection is broken off. New channels need nothing, there is only the one.
        if self.is_closed and self._wire is not None:
            self._wire.interrupt()

    def _announce(self, connection: RedisConnection) -> None:
        self._line.announce(connection, self.deadline())
        self._announced = time.monotonic()

    def _await_sleeper(self) -> bool:
        """Waits until a sleeper of this process listens. False: the listener is closed."""
        with self.lock:
            self.changed.wait_for(lambda: self.is_closed or self.hub.has_sleepers(self._topic))
            return not self.is_closed

    def _await_token(self, connection: RedisConnection) -> bool:
        # The server may use the whole wait; only then does the usual limit for an answer begin.
        (answer,) = connection.ask([("BLPOP", self._line.key, WAIT)], self.deadline() + WAIT)
        if isinstance(answer, ErrorReply):
            raise error_of(answer, str(connection.address))
        return answer is not None
