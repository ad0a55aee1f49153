"""Waiting until replicas have what was written."""

import time
from typing import NamedTuple

from tarry.errors import StoreError, StoreUnavailable, TarryError
from tarry.store.redis.link import Word
from tarry.store.redis.link_pool import Wires
from tarry.store.redis.link_refusal import PASSING, Lost, Refusal, Unreached, error_of
from tarry.store.redis.link_wire import Wire

GRACE = 1.0
"""Seconds that the server may be late in saying that the time is over."""


class Quorum(NamedTuple):
    """How many replicas must have it, and whether on disk."""

    replicas: int = 1
    to_disk: bool = False

    def at_least(self, replicas: int, to_disk: bool) -> "Quorum":
        """The stricter of both."""
        return Quorum(max(self.replicas, replicas), self.to_disk or to_disk)


def confirmed(used: tuple[Wires, Wire] | None, quorum: Quorum, seconds: float) -> None:
    """WAIT or WAITAOF on the connection that wrote, since the server tells who has all that was written there. It
    must be the same: after a failover another server would be asked, which never saw it."""
    if used is None:
        raise StoreError("nothing was stored from this thread, so there is nothing for replicas to confirm")
    wires, wire = used
    deadline = time.monotonic() + seconds
    words: tuple[Word, ...] = ("WAITAOF", 0, quorum.replicas) if quorum.to_disk else ("WAIT", quorum.replicas)
    try:
        wires.borrow_this(wire, deadline)
        try:
            # The server looks at the time ten times a second. We wait for its answer, so that the connection stays.
            (answer,) = wire.ask([(*words, max(1, round(seconds * 1000)))], deadline + GRACE)
        finally:
            wires.give_back(wire)
    except (Unreached, Lost) as error:
        raise StoreUnavailable(f"stored, but not confirmed by a replica: {error}") from None
    if isinstance(answer, Refusal):
        raise _cannot_wait(answer, str(wires.place))
    if (had := answer[1] if quorum.to_disk else answer) < quorum.replicas:
        what = f"confirmed by {had} of {quorum.replicas} replicas within {seconds:g} s"
        raise StoreUnavailable(f"{wires.place}: stored, but {what}; send it again")


def _cannot_wait(refusal: Refusal, where: str) -> TarryError:
    if "unknown command" in refusal.text:
        return StoreError(f"{where}: stored, but confirm=disk needs Redis 7.2 or later")
    if refusal.code in PASSING or refusal.code != "ERR":
        return error_of(refusal, where)
    return StoreUnavailable(f"{where}: stored, but not confirmed by a replica: {refusal.text}")
