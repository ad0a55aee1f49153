"""A few connections to one server, for the threads of a process to share."""

import time

from tarry.errors import ConfigError, StoreAway, StoreUnavailable
from tarry.store.redis.link.access import Access, ServerAddress
from tarry.store.redis.link.connection import RedisConnection
from tarry.store.shared.pool import ConnectionPool

MOST = 8


class RedisPool(ConnectionPool[RedisConnection]):
    """At most `most` connections. Deadlines are moments of time.monotonic()."""

    def __init__(self, address: ServerAddress, access: Access, most: int = MOST) -> None:
        super().__init__(most)
        self.address, self.access = address, access
        self._has_connected = False

    def borrow(self, deadline: float) -> RedisConnection:
        """A connection that looks sound. StoreAway if there is none in time."""
        # By a list, so that the connection is not lost if an exception comes between two steps (`ConnectionPool.take`).
        taken: list[RedisConnection] = []
        self.take(taken, deadline - time.monotonic())
        return taken[0]

    def borrow_this(self, connection: RedisConnection, deadline: float) -> None:
        """Borrows this very connection, once no other thread uses it. StoreAway if it is gone."""
        if not self.take_this(connection, deadline - time.monotonic()):
            raise StoreAway(f"{self.address}: the connection broke")

    def close(self) -> None:
        """Closes the connections; the pool may be used again."""
        # Not for good: the link closes the pool of a server that was replaced, and that server may come back.
        self.drop_all()

    def _open(self, end: float) -> RedisConnection:
        try:
            connection = RedisConnection(self.address, self.access, min(end, time.monotonic() + self.access.timeout))
        except ConfigError as error:
            if self._has_connected:
                # Signing in has worked before: a setting was changed and may be changed back. Workers must wait for it.
                raise StoreUnavailable(str(error)) from None
            raise
        self._has_connected = True
        return connection

    def _prepare(self, connection: RedisConnection) -> bool:
        return not connection.is_stale

    def _restore(self, connection: RedisConnection, error: BaseException | None) -> bool:
        return not connection.broken

    def _discard(self, connection: RedisConnection) -> None:
        connection.close()

    def _busy_error(self) -> Exception:
        return StoreAway(f"{self.address}: all {self._most} connections are in use; send it again")
