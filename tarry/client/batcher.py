"""Group commit: calls made at the same moment become one store call.

Whoever finds the turn free flushes for all who wait, so a lone caller pays nothing for it and a hundred share one
fsync. Coroutines never flush themselves, since that would block their loop; a thread does it for them.
"""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import repeat
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from tarry.errors import PartlyUnavailable, StoreAway, StoreUnavailable
from tarry.store.shared.deadline import until
from tarry.tasks import shield
from tarry.tasks.lazily import asyncio
from tarry.tasks.shield import shielded

T = TypeVar("T")
R = TypeVar("R")
LEAST = 0.4
"""Who comes to the turn with less than this part of the limit left sends nothing any more: of 5 s that are the 2 that a
driver takes at least to find that a connection cannot be made."""


class _Ticket(Generic[T, R]):
    """One caller's place in the next batch."""

    __slots__ = ("done", "error", "future", "item", "result")

    def __init__(self, item: T, future: "asyncio.Future[R] | None" = None) -> None:
        self.item = item
        self.future = future
        self.result: R | None = None
        self.error: BaseException | None = None
        self.done = False


class _Alarm(Generic[T, R]):
    """One timer for all that wait on one loop: each for as long, so who came first is the first to give up."""

    def __init__(
        self, loop: "asyncio.AbstractEventLoop", limit: float, why: Callable[[_Ticket[T, R]], Exception]
    ) -> None:
        self.loop = loop
        self._limit = limit
        self._why = why
        self._waiting: deque[tuple[float, _Ticket[T, R], asyncio.Future[R]]] = deque()
        self._set = False

    def add(self, ticket: _Ticket[T, R], future: "asyncio.Future[R]") -> None:
        waiting = self._waiting
        while waiting and waiting[0][2].done():
            waiting.popleft()
        waiting.append((self.loop.time() + self._limit, ticket, future))
        if not self._set:
            self._set = True
            self.loop.call_later(self._limit, self._ring)

    def _ring(self) -> None:
        waiting, now = self._waiting, self.loop.time()
        while waiting and (waiting[0][2].done() or waiting[0][0] <= now):
            _, ticket, future = waiting.popleft()
            if not future.done():
                future.set_exception(self._why(ticket))
        self._set = bool(waiting)
        if waiting:
            self.loop.call_at(waiting[0][0], self._ring)


class Batcher(Generic[T, R]):
    """Turns `call(list of items) -> list of results` into a call for one item, safe from threads and coroutines."""

    def __init__(self, call: Callable[[list[T]], list[R]], most: int = 500, limit: float | None = None) -> None:
        self._call = call
        self._most = most
        self._limit = limit
        self._waiting: deque[_Ticket[T, R]] = deque()
        # Of this kind for one reason: it can tell whether the calling thread has it.
        self._turn = threading.RLock()
        self._starting = threading.Lock()
        self._signal: SimpleQueue[bool] = SimpleQueue()
        self._signalled = False
        self._flusher: threading.Thread | None = None
        self._alarm: _Alarm[T, R] | None = None

    def do(self, item: T, end: float | None = None) -> R:
        """The result for this item; blocks until its batch is done. StoreUnavailable if that takes longer than the
        limit, or until `end` (time.monotonic()): the wait for the calls for others and the own call together."""
        if end is None and self._limit is not None:
            end = time.monotonic() + self._limit
        ticket: _Ticket[T, R] = _Ticket(item)
        turn: Any = self._turn
        if turn._is_owned():
            raise StoreAway("an enqueue inside an enqueue of the same thread: nothing was sent to the store")
        self._waiting.append(ticket)
        # An exception may come between any two steps here, from a signal's handler for instance: whether the turn is
        # ours is asked at the end, not noted on the way.
        try:
            if not turn.acquire(blocking=False):
                came = shield.wait(partial(turn.acquire, True), _left(end))
                if not ticket.done and (not came or self._too_late(end)):
                    raise self._given_up(ticket)
            while not ticket.done:
                self._flush(end)
        except BaseException:
            self._withdraw(ticket)
            raise
        finally:
            if turn._is_owned():
                turn.release()
        if ticket.error is not None:
            raise ticket.error
        return ticket.result  # type: ignore[return-value]

    async def ado(self, item: T) -> R:
        """The same, awaited."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()
        ticket = _Ticket(item, future)
        with shielded:
            self._waiting.append(ticket)
            self._call_flusher()
            if self._limit is not None:
                alarm = self._alarm
                if alarm is None or alarm.loop is not loop:
                    self._alarm = alarm = _Alarm(loop, self._limit, self._given_up)
                alarm.add(ticket, future)
        return await future

    def close(self) -> None:
        """Ends the thread that flushes for coroutines."""
        if self._flusher is not None:
            self._signal.put(False)
            self._flusher.join(timeout=5)

    def _given_up(self, ticket: _Ticket[T, R]) -> StoreUnavailable:
        """Why a caller waits no longer. What was not sent yet is not sent any more."""
        if self._withdraw(ticket):
            text = (
                f"the store has been busy or away, and of {self._limit:g} s too little is left; nothing was sent to it"
            )
            error = StoreUnavailable(text)
            error.stored = False
            return error
        return StoreUnavailable(f"no answer from the store within {self._limit:g} s; it may be stored all the same")

    def _too_late(self, end: float | None) -> bool:
        return end is not None and end - time.monotonic() < LEAST * (self._limit or 0.0)

    def _withdraw(self, ticket: _Ticket[T, R]) -> bool:
        """Takes it out of the line; False if it is under way already."""
        try:
            self._waiting.remove(ticket)
        except ValueError:
            return False
        return True

    def _call_flusher(self) -> None:
        if self._flusher is None:
            # A lock of its own: the turn may be another's for as long as a store call takes.
            with self._starting:
                if self._flusher is None:
                    flusher = threading.Thread(target=self._flush_for_loops, name="tarry-flusher", daemon=True)
                    flusher.start()
                    self._flusher = flusher
        if not self._signalled:
            self._signalled = True
            self._signal.put(True)

    def _flush_for_loops(self) -> None:
        while self._signal.get():
            # Before the batch is taken, so that who comes while it is under way signals again.
            self._signalled = False
            with self._turn:
                while self._waiting:
                    self._flush(None if self._limit is None else time.monotonic() + self._limit)

    def _flush(self, end: float | None) -> None:
        """Calls for those in front of the line, until `end`. Only who has the turn."""
        batch: list[_Ticket[T, R]] = []
        try:
            self._take(batch)
            with until(end):
                results = self._call([ticket.item for ticket in batch])
            for ticket, result in zip(batch, results, strict=True):
                ticket.result = result
        except PartlyUnavailable as error:
            for at, ticket in enumerate(batch):
                ticket.error = error.missing.get(at)
                ticket.result = error.answer[at]
        except Exception as error:
            with until(end):
                self._each_alone(batch, error)
        except BaseException:
            # Ctrl-C in the thread that flushes for all: the others must not wait for ever.
            for ticket in batch:
                ticket.error = StoreUnavailable("the call was interrupted before its answer came")
            raise
        finally:
            _tell(batch)

    def _take(self, batch: list[_Ticket[T, R]]) -> None:
        """Into the batch, as many as it may have."""
        waiting = self._waiting
        # In C as a whole: in a loop, an exception could come between the line and the batch and lose a caller.
        with contextlib.suppress(IndexError):  # somebody gave up in the meantime
            batch.extend(map(deque.popleft, repeat(waiting, min(len(waiting), self._most))))

    def _each_alone(self, batch: list[_Ticket[T, R]], error: Exception) -> None:
        """One caller's item must not fail the others; a store that is away fails for all alike."""
        alone = len(batch) > 1 and not isinstance(error, StoreUnavailable)
        for ticket in batch:
            try:
                if not alone:
                    raise error
                ticket.result = self._call([ticket.item])[0]
            except Exception as why:
                ticket.error = why


def _left(end: float | None) -> float | None:
    return None if end is None else end - time.monotonic()


def _tell(batch: list[_Ticket[T, R]]) -> None:
    loops: dict[asyncio.AbstractEventLoop, list[_Ticket[T, R]]] = {}
    for ticket in batch:
        ticket.done = True
        if ticket.future is not None:
            loops.setdefault(ticket.future.get_loop(), []).append(ticket)
    for loop, tickets in loops.items():
        # Closed in the meantime: who waited there is gone.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_resolve, tickets)


def _resolve(tickets: list[_Ticket[T, R]]) -> None:
    for ticket in tickets:
        future = ticket.future
        assert future is not None
        if future.done():
            continue
        if ticket.error is not None:
            future.set_exception(ticket.error)
        else:
            future.set_result(ticket.result)  # type: ignore[arg-type]
