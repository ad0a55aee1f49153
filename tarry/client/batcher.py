"""Group commit: calls made at the same moment become one call of the store.

The caller that gets the lock makes the call for all that wait: a single caller pays nothing for it, and a hundred share
one fsync. For coroutines a thread makes the call, since it would block their event loop.
"""

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import repeat
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from tarry.errors import PartlyUnavailable, StoreAway, StoreUnavailable
from tarry.store.shared.backoff import TurnGuard
from tarry.store.shared.deadline import until
from tarry.tasks import shield
from tarry.tasks.lazy_asyncio import asyncio
from tarry.tasks.shield import shielded

log = logging.getLogger("tarry.client")

T = TypeVar("T")
R = TypeVar("R")
# Of 5 s these are 2: the least that a driver needs to find that it cannot connect.
MIN_LEFT = 0.4
"""The part of the limit that must be left when a caller gets the lock, else it sends nothing."""


class _CallTicket(Generic[T, R]):
    """A caller's item in the next batch, and its result."""

    __slots__ = ("done", "error", "future", "item", "result")

    def __init__(self, item: T, future: "asyncio.Future[R] | None" = None) -> None:
        self.item = item
        self.future = future
        self.result: R | None = None
        self.error: BaseException | None = None
        self.done = False


class _Timeout(Generic[T, R]):
    """One timer for all tickets of one event loop."""

    def __init__(
        self, loop: "asyncio.AbstractEventLoop", limit: float, make_error: Callable[[_CallTicket[T, R]], Exception]
    ) -> None:
        self.loop = loop
        self._limit = limit
        self._make_error = make_error
        # In order of expiry: all tickets have the same limit, so the first one expires first.
        self._waiting: deque[tuple[float, _CallTicket[T, R], asyncio.Future[R]]] = deque()
        self._is_set = False

    def add(self, ticket: _CallTicket[T, R], future: "asyncio.Future[R]") -> None:
        waiting = self._waiting
        # Answered tickets go at the next call, else the queue keeps the tickets of a whole limit in memory.
        while waiting and waiting[0][2].done():
            waiting.popleft()
        waiting.append((self.loop.time() + self._limit, ticket, future))
        if not self._is_set:
            self._is_set = True
            self.loop.call_later(self._limit, self._expire)

    def _expire(self) -> None:
        waiting, now = self._waiting, self.loop.time()
        while waiting and (waiting[0][2].done() or waiting[0][0] <= now):
            _, ticket, future = waiting.popleft()
            if not future.done():
                future.set_exception(self._make_error(ticket))
        self._is_set = bool(waiting)
        if waiting:
            self.loop.call_at(waiting[0][0], self._expire)


class Batcher(Generic[T, R]):
    """Turns `call(items) -> results` into a call for one item; for threads and coroutines.

    most: the most items in one call. limit: seconds that a caller waits; None: no limit.
    """

    def __init__(self, call: Callable[[list[T]], list[R]], most: int = 500, limit: float | None = None) -> None:
        self._call = call
        self._most = most
        self._limit = limit
        self._waiting: deque[_CallTicket[T, R]] = deque()
        # An RLock, because it can tell whether the calling thread has it.
        self._turn = threading.RLock()
        self._starting = threading.Lock()
        self._signal: SimpleQueue[bool] = SimpleQueue()
        self._signalled = False
        self._flusher: threading.Thread | None = None
        self._timeout: _Timeout[T, R] | None = None

    def do(self, item: T, end: float | None = None) -> R:
        """Blocks until the batch of this item is done, and returns the item's result.

        end: time.monotonic() at which to give up with StoreUnavailable; default: after the limit. The wait for calls
        that are under way counts.
        """
        if end is None and self._limit is not None:
            end = time.monotonic() + self._limit
        turn: Any = self._turn
        # A signal's handler or a finalizer may enqueue while its thread is in the middle of a call of the store.
        if turn._is_owned():
            raise StoreAway("an enqueue inside an enqueue of the same thread: nothing was sent to the store")
        # An exception may come between any two steps here, for instance from a signal's handler.
        try:
            if not self._waiting and turn.acquire(blocking=False):
                return self._call_alone(item, end)
            return self._do_with_others(_CallTicket(item), end)
        finally:
            # This call comes first, with no question before it: CPython lets an exception in after each call, and one
            # after the question would leave the lock held.
            try:  # noqa: SIM105
                turn.release()
            except RuntimeError:
                # The lock was never ours: the limit was over first.
                pass

    def _call_alone(self, item: T, end: float | None) -> R:
        """The call for the only caller: a ticket would cost it four microseconds."""
        try:
            with until(end):
                (result,) = self._call([item])
                return result
        except PartlyUnavailable as error:
            if 0 in error.missing:
                raise error.missing[0] from None
            return error.answer[0]  # type: ignore[no-any-return]

    def _do_with_others(self, ticket: _CallTicket[T, R], end: float | None) -> R:
        """Waits for the turn, and makes calls until one was for this ticket. The caller releases the turn."""
        turn = self._turn
        self._waiting.append(ticket)
        try:
            if not turn.acquire(blocking=False):
                # Not in one long acquire: an interrupt of the task must end the wait.
                is_ours = shield.wait(partial(turn.acquire, True), _left(end))
                if not ticket.done and (not is_ours or self._is_too_late(end)):
                    raise self._timeout_error(ticket)
            # The batch takes the oldest first, so this ticket may be behind more than one batch.
            while not ticket.done:
                self._flush(end)
        except BaseException:
            self._withdraw(ticket)
            raise
        if ticket.error is not None:
            raise ticket.error
        return ticket.result  # type: ignore[return-value]

    async def ado(self, item: T) -> R:
        """The same, awaited."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()
        ticket = _CallTicket(item, future)
        with shielded:
            self._waiting.append(ticket)
            self._call_flusher()
            if self._limit is not None:
                timeout = self._timeout
                # A timer belongs to its loop; a process may run one loop after the other, as each `asyncio.run` does.
                if timeout is None or timeout.loop is not loop:
                    self._timeout = timeout = _Timeout(loop, self._limit, self._timeout_error)
                timeout.add(ticket, future)
        return await future

    def close(self) -> None:
        """Ends the thread that flushes for coroutines."""
        # The join has a limit, since the thread may be inside a call of a store that hangs.
        if self._flusher is not None:
            self._signal.put(False)
            self._flusher.join(timeout=5)

    def _timeout_error(self, ticket: _CallTicket[T, R]) -> StoreUnavailable:
        """The error for a caller whose limit is over. Its item is withdrawn if it was not sent yet."""
        if self._withdraw(ticket):
            text = (
                f"the store has been busy or away, and of {self._limit:g} s too little is left; nothing was sent to it"
            )
            error = StoreUnavailable(text)
            error.stored = False
            return error
        return StoreUnavailable(f"no answer from the store within {self._limit:g} s; it may be stored all the same")

    def _is_too_late(self, end: float | None) -> bool:
        return end is not None and end - time.monotonic() < MIN_LEFT * (self._limit or 0.0)

    def _withdraw(self, ticket: _CallTicket[T, R]) -> bool:
        """Removes the ticket from the queue; False if it is in a call already."""
        try:
            self._waiting.remove(ticket)
        except ValueError:
            return False
        return True

    def _call_flusher(self) -> None:
        if self._flusher is None:
            # Not under the turn: another caller may hold that for as long as a store call takes.
            with self._starting:
                if self._flusher is None:
                    flusher = threading.Thread(target=self._flush_for_loops, name="tarry-flusher", daemon=True)
                    flusher.start()
                    self._flusher = flusher
        # One signal is enough for all that enqueue before the thread looks.
        if not self._signalled:
            self._signalled = True
            self._signal.put(True)

    def _flush_for_loops(self) -> None:
        # Without a pause: each turn takes tickets from the queue, also one that fails.
        guard = TurnGuard(log, "sending what event loops enqueue", lambda seconds: None)
        while self._signal.get():
            # Reset before the batch is taken, so that a ticket that comes from now on signals again.
            self._signalled = False
            with self._turn:
                while self._waiting:
                    with guard:
                        self._flush(None if self._limit is None else time.monotonic() + self._limit)

    def _flush(self, end: float | None) -> None:
        """Makes the call for the first tickets in the queue, until `end`. Only with the turn."""
        batch: list[_CallTicket[T, R]] = []
        try:
            self._take(batch)
            with until(end):
                results = self._call([ticket.item for ticket in batch])
            for ticket, result in zip(batch, results, strict=True):
                ticket.result = result
        except PartlyUnavailable as error:
            # Some shards answered: their callers get the result, only the others an error.
            for at, ticket in enumerate(batch):
                ticket.error = error.missing.get(at)
                ticket.result = error.answer[at]
        except Exception as error:
            with until(end):
                self._call_each(batch, error)
        except BaseException:
            # For example Ctrl-C in this thread: the other callers must not wait for ever.
            for ticket in batch:
                ticket.error = StoreUnavailable("the call was interrupted before its answer came")
            raise
        finally:
            _finish(batch)

    def _take(self, batch: list[_CallTicket[T, R]]) -> None:
        """Moves tickets from the queue to the batch, up to `most`."""
        waiting = self._waiting
        # One call in C: in a Python loop, an exception between the queue and the batch could lose a ticket.
        try:
            batch.extend(map(deque.popleft, repeat(waiting, min(len(waiting), self._most))))
        except IndexError:  # a ticket was withdrawn in the meantime
            return

    def _call_each(self, batch: list[_CallTicket[T, R]], error: Exception) -> None:
        """Calls for each item alone, so that one bad item does not fail the others; not if the store is unavailable."""
        is_useful = len(batch) > 1 and not isinstance(error, StoreUnavailable)
        for ticket in batch:
            try:
                if not is_useful:
                    raise error
                ticket.result = self._call([ticket.item])[0]
            except Exception as why:
                ticket.error = why


def _left(end: float | None) -> float | None:
    return None if end is None else end - time.monotonic()


def _finish(batch: list[_CallTicket[T, R]]) -> None:
    loops: dict[asyncio.AbstractEventLoop, list[_CallTicket[T, R]]] = {}
    for ticket in batch:
        ticket.done = True
        if ticket.future is not None:
            loops.setdefault(ticket.future.get_loop(), []).append(ticket)
    # One call for each loop, not for each ticket: every call wakes the loop through its socket.
    for loop, tickets in loops.items():
        # RuntimeError: the loop was closed in the meantime, and nobody waits there any more.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_resolve, tickets)


def _resolve(tickets: list[_CallTicket[T, R]]) -> None:
    for ticket in tickets:
        future = ticket.future
        assert future is not None
        # The caller's limit is over, or its task was cancelled.
        if future.done():
            continue
        if ticket.error is not None:
            future.set_exception(ticket.error)
        else:
            future.set_result(ticket.result)  # type: ignore[arg-type]
