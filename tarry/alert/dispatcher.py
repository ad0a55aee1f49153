"""Sends what people are to hear: what comes up together in one message, nobody too often, and what could not be sent
again, for an hour.

Each message goes by a thread of its own, so that a mail server that hangs keeps nobody else waiting.
"""

import logging
import queue
import threading
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from tarry.alert.alarms import DROPPED_AFTER, Alarms, Notice
from tarry.alert.errors import Unsent
from tarry.alert.message import Message, message
from tarry.errors import ConfigError
from tarry.model.duration import MINUTE, SECOND
from tarry.push.endpoint.recipient import Recipient

log = logging.getLogger("tarry.alerts")

AT_ONCE = 8
"""Messages on their way."""
SOON = SECOND
"""Microseconds that what is told at once waits for others: stores that go away together are one message."""
FIRST_PAUSE, LONGEST_PAUSE = 10 * SECOND, 5 * MINUTE
"""Microseconds until the next try, doubled each time."""

Send = Callable[[Recipient, Message], None]
"""Raises Unsent or ConfigError."""


class Trip(Struct):
    """A message on its way to somebody."""

    to: Recipient
    notices: list[Notice]
    why: str = ""
    """It did not arrive."""


class _Failing(Struct):
    """Somebody who could not be told: how often in a row, since when, and when to try again."""

    since: int
    times: int = 0
    again: int = 0


class Post:
    """group, every: microseconds, see `tarry.config.Alerts`. host: who tells."""

    def __init__(self, send: Send, group: int, every: int, host: str) -> None:
        self._send = send
        self._group, self._every, self._host = group, every, host
        self._busy: set[str] = set()
        self._back: queue.SimpleQueue[Trip] = queue.SimpleQueue()
        self._failures: dict[str, _Failing] = {}

    def deliver(self, alarms: Sequence[Alarms], everybody: Callable[[], Mapping[str, Recipient]], now: int) -> None:
        """Takes note of what arrived, and sends on its way what is due. everybody: by their ids; asked only if somebody
        is to hear something. now: microseconds since the epoch."""
        self._take_back(alarms, now)
        if not any(one.kept.owed for one in alarms):
            return
        recipients = everybody()
        self._failures = {id: failed for id, failed in self._failures.items() if id in recipients}
        for one in alarms:
            one.forget(recipients, now - DROPPED_AFTER)
        for id in dict.fromkeys(id for one in alarms for notice in one.kept.owed for id in notice.to):
            notices = [notice for one in alarms for notice in one.owed(id)]
            last = max(one.kept.sent.get(id, 0) for one in alarms)
            if id in recipients and self._is_due(id, notices, last, now):
                self._start(Trip(recipients[id], notices), now)

    def settle(self, alarms: Sequence[Alarms], now: int, wait: float) -> None:
        """At the end: waits so many seconds for what is on its way."""
        while self._busy:
            try:
                trip = self._back.get(timeout=wait)
            except queue.Empty:
                return
            self._arrived(trip, alarms, now)

    def _is_due(self, id: str, notices: Sequence[Notice], last: int, now: int) -> bool:
        if id in self._busy or len(self._busy) >= AT_ONCE:
            return False
        if id in self._failures and now < self._failures[id].again:
            return False
        due = min(notice.at + (min(SOON, self._group) if notice.soon else self._group) for notice in notices)
        return now >= due and not 0 <= now - last < self._every

    def _start(self, trip: Trip, now: int) -> None:
        self._busy.add(trip.to.id)
        told = message(trip.notices, self._host, now)

        def go() -> None:
            try:
                self._send(trip.to, told)
            except (Unsent, ConfigError) as error:
                trip.why = str(error)
            except Exception as error:
                log.exception("a message to %s", trip.to.shown)
                trip.why = type(error).__name__
            self._back.put(trip)

        try:
            threading.Thread(target=go, name="tarry-alert-send", daemon=True).start()
        except RuntimeError as error:  # as many as this host lets us have
            trip.why = str(error)
            self._back.put(trip)

    def _take_back(self, alarms: Sequence[Alarms], now: int) -> None:
        while not self._back.empty():
            self._arrived(self._back.get(), alarms, now)

    def _arrived(self, trip: Trip, alarms: Sequence[Alarms], now: int) -> None:
        id = trip.to.id
        self._busy.discard(id)
        if not trip.why:
            self._failures.pop(id, None)
            for one in alarms:
                one.settle(trip.notices, id, now)
            return
        failing = self._failures.setdefault(id, _Failing(now))
        failing.again = now + min(FIRST_PAUSE << min(failing.times, 10), LONGEST_PAUSE)
        failing.times += 1
        if failing.times == 1:
            log.error("%s could not be told, and is tried again: %s", trip.to.shown, trip.why)
        # Not what waited for its turn: it has to have been tried for so long.
        old = [notice for notice in trip.notices if now - max(notice.at, failing.since) >= DROPPED_AFTER]
        for notice in old:
            log.error("%s was not told for an hour, and now never is: %s (%s)", trip.to.shown, notice.what, trip.why)
        for one in alarms:
            one.settle(old, id, 0)
