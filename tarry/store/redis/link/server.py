"""A link to one server: at a fixed address, or at the address of the master that sentinels name."""

import threading
import time
from collections.abc import Sequence
from typing import Any, Protocol

from tarry.errors import StoreAway
from tarry.store.redis.link.access import Access, ServerAddress
from tarry.store.redis.link.connection import RedisConnection
from tarry.store.redis.link.line_wakeup import LineWakeup
from tarry.store.redis.link.pool import RedisPool
from tarry.store.redis.link.redis_errors import ErrorReply, ReplyLost
from tarry.store.redis.link.replicas import Quorum
from tarry.store.redis.link.request import Request, RetryingLink, send_requests
from tarry.store.redis.link.wakeup import redis_hub
from tarry.store.rules.sleeper import Wakeup
from tarry.store.shared.wakeup.hub import WakeupHub


class ServerFinder(Protocol):
    """Finds out where the server is."""

    moves: bool
    """Whether the server may be elsewhere tomorrow. Then a server that is a replica is not the one."""

    def find(self, deadline: float) -> ServerAddress:
        """Where it is. StoreAway: no sentinel can say."""

    def doubt(self, address: ServerAddress) -> None:
        """Notes that the server was not at this address."""


class FixedServer:
    """A server that is always at the same address."""

    moves = False

    def __init__(self, address: ServerAddress) -> None:
        self._address = address

    def find(self, deadline: float) -> ServerAddress:
        return self._address

    def doubt(self, address: ServerAddress) -> None:
        """Nothing: there is no other address."""


class ServerLink(RetryingLink):
    """A `RedisLink` to one server. Opens nothing before the first call."""

    def __init__(self, url: str, finder: ServerFinder, access: Access, quorum: Quorum = Quorum()) -> None:  # noqa: B008
        super().__init__(access.timeout, quorum)
        self.url = url
        self._finder, self._access = finder, access
        self._lock = threading.Lock()
        self._pool: RedisPool | None = None
        self._hubs: dict[str, WakeupHub] = {}

    def wakeup(self, prefix: str) -> Wakeup:
        return self._hub(prefix).wakeup()

    def worker_wakeup(self, prefix: str) -> Wakeup:
        return LineWakeup(self._hub(prefix), self._connect, self.command, self._access.timeout, prefix)

    def _hub(self, prefix: str) -> WakeupHub:
        with self._lock:
            if prefix not in self._hubs:
                self._hubs[prefix] = redis_hub(self._connect, self._access.timeout, [prefix], in_line=True)
        return self._hubs[prefix]

    def close(self) -> None:
        for hub in self._hubs.values():
            hub.close()
        if self._pool is not None:
            self._pool.close()

    def check(self) -> None:
        """Connects, so that a mistake shows early. ConfigError, StoreError, StoreUnavailable."""
        self._send_once([Request(None, ("PING",))], time.monotonic() + self._access.timeout)

    def _send_once(self, requests: Sequence[Request], deadline: float) -> list[Any]:
        pool = self._current_pool(deadline)
        try:
            connection = pool.borrow(deadline)
            try:
                self._require_master(connection)
                self._last.used = (pool, connection)
                return self._check_master(pool, send_requests(connection, requests, deadline))
            finally:
                pool.give_back(connection)
        except (StoreAway, ReplyLost):
            self._finder.doubt(pool.address)
            raise

    def _current_pool(self, deadline: float) -> RedisPool:
        # Without the lock while the finder gives the same address: this is on the way of each call.
        address, pool = self._finder.find(deadline), self._pool
        if pool is not None and pool.address is address:
            return pool
        with self._lock:
            if self._pool is None or self._pool.address != address:
                # The old master may still answer: what threads have borrowed there must not be lent again.
                if self._pool is not None:
                    self._pool.close()
                self._pool = RedisPool(address, self._access)
            return self._pool

    def _require_master(self, connection: RedisConnection) -> None:
        if self._finder.moves and connection.role != "master":
            connection.close()
            raise StoreAway(f"{connection.address} is a replica now; send it again")

    def _check_master(self, pool: RedisPool, answers: list[Any]) -> list[Any]:
        """The answers of a master. READONLY becomes an error that is retried."""
        # The server has become a replica, and sentinels know the new master. As READONLY the caller would fail.
        if self._finder.moves and any(map(_read_only, answers)):
            pool.close()
            self._finder.doubt(pool.address)
            return [
                ErrorReply("MASTERDOWN it is a replica now") if _read_only(answer) else answer for answer in answers
            ]
        return answers

    def _connect(self, deadline: float) -> RedisConnection:
        """A connection for wake-up alone."""
        address = self._finder.find(deadline)
        try:
            connection = RedisConnection(address, self._access, deadline)
            self._require_master(connection)
            return connection
        except StoreAway:
            self._finder.doubt(address)
            raise


def _read_only(answer: Any) -> bool:
    return isinstance(answer, ErrorReply) and answer.code == "READONLY"
