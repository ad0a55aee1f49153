"""Sends notices to recipients: notices that come up together go in one message, no recipient gets messages too often,
and a message that could not be sent is tried again for an hour.
"""

import logging
import queue
import threading
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from tarry.alert.alarms import DROPPED_AFTER, Alarms, Notice
from tarry.alert.alert_errors import SendError
from tarry.alert.alert_message import Message, build_message
from tarry.errors import ConfigError
from tarry.model.duration import MINUTE, SECOND
from tarry.push.endpoint.recipient import Recipient

log = logging.getLogger("tarry.alerts")

AT_ONCE = 8
"""Messages that are sent at the same time."""
# Stores that go away together make one message.
SOON = SECOND
"""Microseconds that an urgent notice waits for others."""
FIRST_PAUSE, LONGEST_PAUSE = 10 * SECOND, 5 * MINUTE
"""Microseconds until the next try; the pause doubles after each failure."""

Send = Callable[[Recipient, Message], None]
"""Raises SendError or ConfigError."""


class PendingMessage(Struct):
    """A message that is being sent to one recipient."""

    to: Recipient
    notices: list[Notice]
    why: str = ""
    """Why it could not be sent; empty: it was sent."""


class _RetryState(Struct):
    """Failures in a row for one recipient: since when, how many, and when to try again."""

    since: int
    failures: int = 0
    next_at: int = 0


class Dispatcher:
    """group, every: microseconds, see `tarry.config.config.Alerts`. host: the name of this host, for the messages;
    console: the URL of the console, for their links."""

    def __init__(self, send: Send, group: int, every: int, host: str, console: str = "") -> None:
        self._send = send
        self._group, self._every, self._host, self._console = group, every, host, console
        self._busy: set[str] = set()
        self._results: queue.SimpleQueue[PendingMessage] = queue.SimpleQueue()
        self._retries: dict[str, _RetryState] = {}

    def deliver(
        self, alarms: Sequence[Alarms], get_recipients: Callable[[], Mapping[str, Recipient]], now: int
    ) -> None:
        """Collects the results of messages that were sent, and starts those that are due.

        get_recipients: all recipients by id; called only if a notice is waiting. now: microseconds since the epoch.
        """
        self._collect_results(alarms, now)
        if not any(one.state.owed for one in alarms):
            return
        recipients = get_recipients()
        self._retries = {id: retry for id, retry in self._retries.items() if id in recipients}
        for one in alarms:
            one.forget(recipients, now - DROPPED_AFTER)
        for id in dict.fromkeys(id for one in alarms for notice in one.state.owed for id in notice.to):
            notices = [notice for one in alarms for notice in one.pending_for(id)]
            last, early = (max(times.get(id, 0) for times in each) for each in self._last_sent(alarms))
            if id not in recipients or not self._is_due(id, notices, now):
                continue
            if not self._is_recent(last, now):
                self._start(PendingMessage(recipients[id], notices), now)
            elif any(notice.soon and notice.until for notice in notices) and not self._is_recent(early, now):
                # Whoever was woken by an outage is not left without its end; once, so that one which comes and goes
                # sends no more than two messages within the time between two.
                for one in alarms:
                    one.state.early[id] = now
                self._start(PendingMessage(recipients[id], notices), now)

    @staticmethod
    def _last_sent(alarms: Sequence[Alarms]) -> tuple[list[dict[str, int]], list[dict[str, int]]]:
        return [one.state.sent for one in alarms], [one.state.early for one in alarms]

    def _is_recent(self, at: int, now: int) -> bool:
        # After a clock was set back, the time may be in the future, and must not silence the recipient.
        return 0 <= now - at < self._every

    def flush(self, alarms: Sequence[Alarms], now: int, wait: float) -> None:
        """At the end: waits at most `wait` seconds for each result of the messages that are being sent."""
        while self._busy:
            try:
                pending = self._results.get(timeout=wait)
            except queue.Empty:
                return
            self._handle_result(pending, alarms, now)

    def _is_due(self, id: str, notices: Sequence[Notice], now: int) -> bool:
        if id in self._busy or len(self._busy) >= AT_ONCE:
            return False
        # As in `_is_recent`: a time that is far in the future is of another clock.
        if id in self._retries and now < self._retries[id].next_at <= now + LONGEST_PAUSE:
            return False
        return any(abs(now - one.at) >= (min(SOON, self._group) if one.soon else self._group) for one in notices)

    def _start(self, pending: PendingMessage, now: int) -> None:
        self._busy.add(pending.to.id)
        built = build_message(pending.notices, self._host, now, self._console)

        def send() -> None:
            try:
                self._send(pending.to, built)
            except (SendError, ConfigError) as error:
                pending.why = str(error)
            # Without a result, the recipient would count as busy for ever.
            except Exception as error:
                log.exception("a message to %s", pending.to.shown)
                pending.why = type(error).__name__
            self._results.put(pending)

        try:
            # A thread for each message, and a daemon: a server that hangs must delay neither other recipients nor
            # the end of the process.
            threading.Thread(target=send, name="tarry-alert-send", daemon=True).start()
        except RuntimeError as error:  # this host allows no more threads
            pending.why = str(error)
            self._results.put(pending)

    def _collect_results(self, alarms: Sequence[Alarms], now: int) -> None:
        while not self._results.empty():
            self._handle_result(self._results.get(), alarms, now)

    def _handle_result(self, pending: PendingMessage, alarms: Sequence[Alarms], now: int) -> None:
        id = pending.to.id
        self._busy.discard(id)
        if not pending.why:
            self._retries.pop(id, None)
            for one in alarms:
                one.resolve(pending.notices, id, now)
            return
        retry = self._retries.setdefault(id, _RetryState(now))
        retry.next_at = now + min(FIRST_PAUSE << min(retry.failures, 10), LONGEST_PAUSE)
        retry.failures += 1
        # Once for each row of failures.
        if retry.failures == 1:
            log.error("%s could not be notified; trying again: %s", pending.to.shown, pending.why)
        # Time spent waiting for other messages does not count: it must have been tried for that long.
        old = [notice for notice in pending.notices if now - max(notice.at, retry.since) >= DROPPED_AFTER]
        for notice in old:
            log.error(
                "%s could not be notified for an hour; dropped: %s (%s)", pending.to.shown, notice.what, pending.why
            )
        for one in alarms:
            one.resolve(old, id, 0)
