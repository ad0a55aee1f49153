"""Waits until replicas have the last writes of a thread."""

import time
from typing import NamedTuple

from tarry.errors import StoreAway, StoreError, StoreUnavailable, TarryError
from tarry.store.redis.link.base import Word
from tarry.store.redis.link.connection import RedisConnection
from tarry.store.redis.link.pool import RedisPool
from tarry.store.redis.link.redis_errors import TRANSIENT, ErrorReply, ReplyLost, error_of

GRACE = 1.0
"""Seconds that the server may be late to answer that the time is over."""


class Quorum(NamedTuple):
    """How many replicas must have a write, and whether on disk."""

    replicas: int = 1
    to_disk: bool = False

    def at_least(self, replicas: int, to_disk: bool) -> "Quorum":
        """The stricter of both."""
        return Quorum(max(self.replicas, replicas), self.to_disk or to_disk)


def wait_for_replicas(used: tuple[RedisPool, RedisConnection] | None, quorum: Quorum, seconds: float) -> None:
    """Asks with WAIT or WAITAOF on the connection that wrote. StoreUnavailable if too few replicas confirm in time."""
    if used is None:
        raise StoreError("nothing was stored from this thread, so there is nothing for replicas to confirm")
    pool, connection = used
    deadline = time.monotonic() + seconds
    words: tuple[Word, ...] = ("WAITAOF", 0, quorum.replicas) if quorum.to_disk else ("WAIT", quorum.replicas)
    try:
        # It must be this connection: the server counts the replicas that have all that was written on it. A new
        # connection may lead to another server, after a failover, which never saw the write.
        pool.borrow_this(connection, deadline)
        try:
            # The server looks at the time only ten times a second. We wait longer for its answer: else the connection
            # would be lost with the answer unread.
            (answer,) = connection.ask([(*words, max(1, round(seconds * 1000)))], deadline + GRACE)
        finally:
            pool.give_back(connection)
    except (StoreAway, ReplyLost) as error:
        raise StoreUnavailable(f"stored, but not confirmed by a replica: {error}") from None
    if isinstance(answer, ErrorReply):
        raise _wait_error(answer, str(pool.address))
    if (had := answer[1] if quorum.to_disk else answer) < quorum.replicas:
        what = f"confirmed by {had} of {quorum.replicas} replicas within {seconds:g} s"
        raise StoreUnavailable(f"{pool.address}: stored, but {what}; send it again")


def _wait_error(reply: ErrorReply, where: str) -> TarryError:
    if "unknown command" in reply.text:
        return StoreError(f"{where}: stored, but confirm=disk needs Redis 7.2 or later")
    if reply.code in TRANSIENT or reply.code != "ERR":
        return error_of(reply, where)
    return StoreUnavailable(f"{where}: stored, but not confirmed by a replica: {reply.text}")
