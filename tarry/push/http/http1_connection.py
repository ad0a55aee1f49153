"""One connection. It carries one request at a time."""

import asyncio
import os
from typing import cast

from tarry.push.http.failure import FailureKind
from tarry.push.http.http1_parser import AnswerError, AnswerParser


class Http1Connection(asyncio.Protocol):
    """Made by `create_connection`."""

    def __init__(self) -> None:
        self.answer = AnswerParser()
        """Of the last request, until the next one begins."""
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        self._deadline = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_open(self) -> bool:
        return not self._transport.is_closing()

    async def request(self, data: bytes, method: str, limit: float) -> None:
        """Sends a request and reads its answer. AnswerError; TimeoutError after `limit` seconds.

        Unless it could take another request, the connection is closed then.
        """
        self.answer.begin(method)
        self._waiter = self._loop.create_future()
        self._expect_by(self._loop.time() + limit)
        self._transport.write(data)
        try:
            await self._waiter
        finally:
            self._waiter = None
            # A server may answer before it has read the whole request.
            if not self.answer.is_reusable or self._transport.get_write_buffer_size():
                self.close()

    def close(self) -> None:
        """Closes it at once. A request under way fails."""
        self._fail(AnswerError(FailureKind.LOCAL, "the sender was closed while the request was under way"))
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses of this one.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        waiter = self._waiter
        if waiter is None or waiter.done():
            # Nobody asked. It would pass for the answer to the next request.
            self._transport.abort()
            return
        try:
            if self.answer.feed(data):
                waiter.set_result(None)
        except AnswerError as error:
            waiter.set_exception(error)

    def connection_lost(self, error: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._waiter is None or self._waiter.done():
            return
        try:
            self.answer.end(system_error(error) if error else "")
            self._waiter.set_result(None)
        except AnswerError as failed:
            self._waiter.set_exception(failed)

    def _expect_by(self, deadline: float) -> None:
        self._deadline = deadline
        # The timer of an earlier request is left as it is: a new one for each request takes a fifth of its Python.
        if self._timer is None or self._timer.when() > deadline:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(deadline, self._check_deadline)

    def _check_deadline(self) -> None:
        self._timer = None
        if self._waiter is None:
            return
        if self._loop.time() >= self._deadline:
            self._fail(TimeoutError())
        else:
            self._expect_by(self._deadline)

    def _fail(self, error: Exception) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)


def system_error(error: Exception) -> str:
    """`Connection refused (os error 111)`, as the HTTP library of the other requests writes it."""
    number = error.errno if isinstance(error, OSError) else None
    return f"{os.strerror(number)} (os error {number})" if number else str(error) or type(error).__name__
