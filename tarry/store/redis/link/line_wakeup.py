"""A worker's own place in the line for work (`wakeup_line`), where it waits together with its next claim.

It waits by BLPOP, and the server runs a command that was sent behind that as soon as the wait ends. So the claim needs
no round trip after the wake-up, and no thread has to pass the wake-up on. The worker stands in line only while it
sleeps: a token that comes at another time stays for whoever sleeps next.
"""

import os
import select
import time
from collections.abc import Callable, Sequence
from typing import Any

from tarry.errors import StoreError, TarryError
from tarry.store.redis.link import functions
from tarry.store.redis.link.base import ScriptCall, Word
from tarry.store.redis.link.connection import RedisConnection
from tarry.store.redis.link.redis_errors import TRANSIENT, ErrorReply, ReplyLost, error_of
from tarry.store.redis.link.request import Request, script_request
from tarry.store.redis.link.wakeup_line import ANNOUNCE_EVERY, Connect, LineOfWorkers
from tarry.store.rules.sleeper import FULL, WORK
from tarry.store.shared.backoff import Backoff
from tarry.store.shared.wakeup.hub import HubWakeup, WakeupHub

LONG, LATE = 1.0, 0.25
"""Seconds from which on the server itself ends a wait, and by how many it may then be late."""
_ASK_AGAIN = 0.002
"""Seconds between two calls that end the wait."""
# Kept on purpose: a forked child must neither use nor close its parent's connection.
_inherited: list[RedisConnection] = []


class LineWakeup(HubWakeup):
    """See `Wakeup`. connect: opens a connection by a deadline. command: runs a command on another connection. timeout:
    seconds that the server has for an answer."""

    def __init__(
        self, hub: WakeupHub, connect: Connect, command: Callable[..., Any], timeout: float, prefix: str
    ) -> None:
        super().__init__(hub)
        self._connect, self._command, self._timeout, self._prefix = connect, command, timeout, prefix
        self._line: LineOfWorkers | None = None
        """The line in which it waits while it sleeps."""
        self._announced = 0.0
        self._connection: RedisConnection | None = None
        self._number = 0
        """The connection's number on the server."""
        self._asked = ""
        """The topic it listens to, of which the hub may know only a part."""
        self._may_unblock = True
        """False once the account was refused what ends a wait in line: then work comes by way of the hub."""
        self._backoff = Backoff()
        self._pid = os.getpid()

    def listen(self, topic: str) -> None:
        stands_in_line = topic.startswith(WORK) and self._may_unblock
        line = LineOfWorkers(self._prefix, topic) if stands_in_line else None
        # By way of the hub a worker with room hears only of jobs that are called back.
        super().listen(FULL if line else topic)
        self._asked, self._line = topic, line
        # From the announcement on there are tokens for this kind of worker, and a token stays until somebody takes it.
        self._stand_ready()

    def ignore(self) -> None:
        self._line = None
        super().ignore()

    def is_receiving(self) -> bool:
        return super().is_receiving() and (self._line is None or self._connection is not None)

    def sleep(self, seconds: float, also: Sequence[int] = ()) -> bytes:
        try:
            return self.sleep_with(None, seconds, also)[0]
        except StoreError:
            # Who sleeps looks by itself now, and until there is a connection again.
            return b""

    def sleep_with(self, call: ScriptCall | None, seconds: float, also: Sequence[int] = ()) -> tuple[bytes, Any]:
        """As `sleep`; when the sleep ends, for whatever reason, the server makes the call. Returns also its answer;
        None: the call was not made. StoreError: it may have been made."""
        connection = self._stand_ready()
        if connection is None or self._ready(0.0, also):
            return super().sleep(seconds, also), None
        # As a script it would be a long text, which were sent at each sleep.
        request = script_request(call) if call is not None and connection.calls_functions else None
        try:
            woken, answer = self._wait_in_line(connection, request, self.limit_sleep(seconds), also)
        except TarryError as error:
            self._lose()
            raise ReplyLost(str(error)) from None
        except BaseException:
            # An answer may be left unread.
            self._drop()
            raise
        return woken, _check(answer, self._prefix)

    def close(self) -> None:
        super().close()
        self._drop()

    def _wait_in_line(
        self, connection: RedisConnection, request: Request | None, seconds: float, also: Sequence[int]
    ) -> tuple[bytes, Any]:
        # The server looks ten times a second whose wait is over, so only a long wait is left to it.
        is_long = seconds >= LONG
        assert self._line is not None
        wait: tuple[Word, ...] = ("BLPOP", self._line.key, seconds if is_long else seconds + LONG)
        commands = [wait] if request is None else [wait, request.command(set(), True)]
        connection.send(commands, self._deadline())
        ready = self._ready(seconds + LATE if is_long else seconds, (*also, connection.fileno()))
        if connection.fileno() not in ready:
            self._end_wait(connection)
        token, *answers = connection.receive(len(commands), self._deadline())
        self._backoff.succeed()
        if isinstance(token, ErrorReply):
            # It must not wait so. The answer counts all the same.
            self._lose()
            token = None
        return self._take(connection, token is not None, request is None), answers[0] if answers else None

    def _end_wait(self, connection: RedisConnection) -> None:
        """Makes the server end the wait."""
        end = self._deadline()
        while True:
            self._command("CLIENT", "UNBLOCK", self._number)
            # Sent on two connections, the wait may come after its end.
            if self._ready(_ASK_AGAIN, [connection.fileno()], False):
                return
            if time.monotonic() > end:
                raise connection.timeout_error()

    def _take(self, connection: RedisConnection, has_token: bool, may_pass_on: bool) -> bytes:
        """Forgets the wake-ups up to now. Returns one byte for each."""
        woken, line = self.clear(), self._line
        if has_token and line is not None:
            # As every event, this one ends the listening.
            self.ignore()
            if woken and may_pass_on:
                # Woken for another reason too, it may look for no work. Another one must.
                line.pass_on(connection, self._deadline())
            woken += b"\1"
        return woken

    def _ready(self, seconds: float, also: Sequence[int], own: bool = True) -> set[int]:
        """Which descriptors become readable; own: with that by which this sleeper is woken."""
        poll = select.poll()
        for fd in (*(self.filenos() if own else ()), *also):
            poll.register(fd, select.POLLIN)
        return {fd for fd, _ in poll.poll(max(0.0, seconds) * 1000)}

    def _stand_ready(self) -> RedisConnection | None:
        """The connection to wait on; None: it need not wait in line, or there is none."""
        if self._connection is not None and self._pid != os.getpid():
            _inherited.append(self._connection)
            self._connection = None
        if self._line is None:
            return None
        if self._connection is not None and self._connection.is_stale:
            self._drop()
        now = time.monotonic()
        if self._backoff.left(now):
            return None
        try:
            connection = self._open_connection(now, self._line)
        except TarryError:
            self._lose()
            return None
        if connection is None:
            self._drop()
            self._may_unblock = False
            self.listen(self._asked)
        return connection

    def _open_connection(self, now: float, line: LineOfWorkers) -> RedisConnection | None:
        """None: nothing may end a wait on it."""
        if self._connection is None:
            self._connection, self._pid, self._announced = self._connect(self._deadline()), os.getpid(), 0.0
            # Asked for before the first wait: no client has the number 0.
            answers = self._connection.ask([("CLIENT", "ID"), ("CLIENT", "UNBLOCK", 0)], self._deadline())
            if refused := [answer for answer in answers if isinstance(answer, ErrorReply)]:
                if refused[0].code not in ("NOPERM", "ERR"):
                    raise error_of(refused[0], str(self._connection.address))
                return None
            self._number = answers[0]
        if not self._announced or now - self._announced > ANNOUNCE_EVERY:
            line.announce(self._connection, self._deadline())
            self._announced = now
        return self._connection

    def _lose(self) -> None:
        self._drop()
        self._backoff.fail(time.monotonic())

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _deadline(self) -> float:
        return time.monotonic() + self._timeout


def _check(answer: Any, where: str) -> Any:
    """The answer; None if the server did not begin the call."""
    if not isinstance(answer, ErrorReply):
        return answer
    # The next call on another connection loads the library, or waits until the server can.
    if functions.is_not_loaded(answer) or functions.is_refused(answer) or answer.code in TRANSIENT:
        return None
    raise StoreError(f"{where}: {answer.text}")
