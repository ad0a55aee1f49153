"""Writes acts to the store's log in the background: an act neither waits for that nor fails with it."""

import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Protocol

from tarry.client.audit.log import DONE, PAGE, Act, ActLog, with_id
from tarry.client.clock import Clock
from tarry.client.group_commit import CommitBounds, CommitTicket, GroupCommit
from tarry.errors import TarryError
from tarry.store.rules.base import Store
from tarry.store.shared.backoff import Backoff

log = logging.getLogger("tarry.audit")

MOST_WAITING = 1000
"""Acts that wait for the store; beyond that the oldest of whoever has most of them is left out, and is only in the log
`tarry.audit`."""
MOST_REFUSED = 60
"""Acts of one caller that were refused or failed, in a minute of this process; others are only in the log
`tarry.audit`."""
CLOSE_WITHIN = 2.0
"""Seconds that the end of the process waits for the last acts."""


class ActClient(Protocol):
    """What it needs of the client of a store."""

    @property
    def store(self) -> Store: ...
    @property
    def clock(self) -> Clock: ...


class ActWriter(GroupCommit[Act, None]):
    """Acts on their way to the store. client: called in its thread only, since it may open the store."""

    def __init__(self, client: Callable[[], ActClient]) -> None:
        # A page at most: if the answer is lost, the newest two pages tell whether they are there.
        super().__init__(self._append, CommitBounds(call_items=PAGE, tickets=MOST_WAITING), name="tarry-audit", log=log)
        self._client = client
        self._backoff = Backoff(log, "acts come to the log of acts again")
        self._minute, self._refused_by = 0, Counter[str]()

    def record(self, act: Act) -> None:
        """Has the act written soon. Never blocks for long, never raises."""
        if self._is_one_too_many(act):
            self.refused += 1
        else:
            # With its id, so that it is there once, however often it is tried.
            self.add(CommitTicket(with_id(act)))

    def _is_one_too_many(self, act: Act) -> bool:
        """Whether the act was refused, as too many others of this minute."""
        if act.outcome == DONE:
            return False
        with self._lock:
            minute = int(time.monotonic() // 60)
            if minute != self._minute:
                self._minute, self._refused_by = minute, Counter()
            self._refused_by[act.who] += 1
            return self._refused_by[act.who] > MOST_REFUSED

    def choose_refused(
        self, waiting: deque[CommitTicket[Act, None]], new: CommitTicket[Act, None]
    ) -> CommitTicket[Act, None]:
        """The oldest act of the caller that has most of those that wait."""
        ((who, _),) = Counter(ticket.item.who for ticket in waiting).most_common(1)
        return next(ticket for ticket in waiting if ticket.item.who == who)

    def close(self, timeout: float = CLOSE_WITHIN) -> None:
        """See `GroupCommit.close`. Logs how many acts are left out."""
        super().close(timeout)
        left, self.refused = self.refused + self._sent, 0
        if left:
            why = "it was not available, or too many were refused at once"
            log.warning("%d acts are not in the log of acts of the store: %s", left, why)

    def fail(self, sent: Sequence[CommitTicket[Act, None]], error: Exception) -> bool:
        """They wait on, until the store is back or this process ends."""
        now = time.monotonic()
        # One line for an outage, however long it is.
        if self._backoff.fail(now):
            known = isinstance(error, TarryError)
            log.warning("acts come to the log of acts later: %s", error, exc_info=None if known else error)
        if not self._closing.wait(self._backoff.left(now)):
            return True
        self.refused += len(sent)
        return False

    def _append(self, acts: list[Act]) -> list[None]:
        client = self._client()
        ActLog(client.store).append(acts, client.clock.now())
        self._backoff.succeed()
        return [None] * len(acts)
