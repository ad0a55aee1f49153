"""Group commit: what is given at the same moment goes in one call of the store, and each gets an answer of its own.

Three ways in. A thread that waits (`do`) makes the call itself if nobody else does: a single caller pays nothing for
the group, and a hundred share one fsync. For a coroutine (`ado`) and for whoever wants no more than a reply (`submit`)
a thread of the group makes the call, since it would block their event loop.
"""

import contextlib
import logging
import math
import threading
import time
import weakref
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice, repeat
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from msgspec import Struct

from tarry.errors import PartlyUnavailable, StoreAway, StoreUnavailable
from tarry.platform import at_fork
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
SWEEP = 0.25
"""The most seconds between two looks for tickets whose time is over."""
GATHER = 0.002
"""Seconds that a group waits at most for those who were answered."""
GATHER_FROM = 4
"""Answers of one call from which on it waits for them."""
GATHERED = 100
"""Tickets in line that are enough for the next call."""


class CommitBounds(Struct, frozen=True):
    """What one call takes, and what may wait for it. A ticket that is larger than a call goes alone."""

    call_items: int = 500
    call_bytes: float = math.inf
    tickets: int = 1_000_000
    """That wait."""
    bytes: float = math.inf
    """Of the tickets that wait."""


NO_BOUNDS = CommitBounds()


class CommitTicket(Struct, Generic[T, R], eq=False):
    """An item in line, and its answer."""

    item: T
    reply: Callable[[Any], object] | None = None
    """Called once with the answer or an error, on the thread of its event loop; None: nobody is told."""
    deadline: float = math.inf
    """By the clock of the group; from then on it is not sent any more."""
    unanswered_at: float = math.inf
    """From then on it is told that no answer came."""
    items: int = 1
    size: int = 0
    """Bytes; both say how much of a call it takes."""
    loop: Any = None
    """See `submit`."""
    result: Any = None
    error: BaseException | None = None
    done: bool = False


class BatchWindow:
    """Waits for those who were answered to ask again: one call for all costs little more than for some.

    `expect` and `note` are called under one lock, `wait` without it.
    """

    def __init__(self) -> None:
        self._missing = 0
        self._all_came = threading.Event()

    def expect(self, answered: int) -> None:
        """So many are about to be answered."""
        self._missing = answered
        self._all_came.clear()

    def note(self, count: int) -> None:
        """So many ask."""
        if self._missing > 0:
            self._missing -= count
            if self._missing <= 0:
                self._all_came.set()

    def wait(self) -> bool:
        """Until as many asked as were to be answered at the last `expect`, GATHER seconds at most; whether they did."""
        return self._all_came.wait(GATHER)


class GroupCommit(Generic[T, R]):
    """Turns `call(items) -> results` into a call for one item. What its users see otherwise, its subclasses say.

    limit: seconds that a caller waits; None: no limit. gathers: before its next call the thread waits for those who
    were answered. clock: seconds, as time.monotonic(). A forked child has none of what waits in its parent.
    """

    def __init__(
        self,
        call: Callable[[list[T]], Sequence[R]],
        bounds: CommitBounds = NO_BOUNDS,
        limit: float | None = None,
        *,
        name: str = "tarry-flusher",
        log: logging.Logger = log,
        gathers: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._call, self._bounds, self._limit = call, bounds, limit
        self._name, self._log, self._clock = name, log, clock
        self._window = BatchWindow() if gathers else None
        self._begin()
        _groups.add(self)

    def _begin(self) -> None:
        self.refused = 0
        """How many tickets were not sent: too many waited, or these for too long, or until the end."""
        self._waiting: deque[CommitTicket[T, R]] = deque()
        self._bytes = 0
        # RLocks: of the turn, because it can tell whether the calling thread has it; of the line, since a signal's
        # handler may give something, too.
        self._turn, self._lock = threading.RLock(), threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._signal: SimpleQueue[bool] = SimpleQueue()
        self._is_signalled = self._is_closed = False
        self._sent = 0
        """How many tickets are in the call that is under way."""
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._expiry: _Expiry[T, R] | None = None

    @property
    def waiting(self) -> int:
        """Tickets that wait for their call."""
        return len(self._waiting)

    # For threads

    def do(self, item: T, end: float | None = None) -> R:
        """Blocks until the call of this item is done, and returns the item's result.

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
            return self._do_with_others(CommitTicket(item), end)
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

    def _do_with_others(self, ticket: CommitTicket[T, R], end: float | None) -> R:
        """Waits for the turn, and makes calls until one was for this ticket. The caller releases the turn."""
        turn = self._turn
        self._waiting.append(ticket)
        try:
            if not turn.acquire(blocking=False):
                # Not in one long acquire: an interrupt of the task must end the wait.
                is_ours = shield.wait(partial(turn.acquire, True), _left(end))
                if not ticket.done and (not is_ours or self._is_too_late(end)):
                    raise self.late_error() if self._withdraw(ticket) else self.unanswered_error()
            # A call takes the oldest first, so this ticket may be behind more than one.
            while not ticket.done:
                self._commit(end)
        except BaseException:
            self._withdraw(ticket)
            raise
        if ticket.error is not None:
            raise ticket.error
        return ticket.result  # type: ignore[no-any-return]

    def _is_too_late(self, end: float | None) -> bool:
        return end is not None and end - time.monotonic() < MIN_LEFT * (self._limit or 0.0)

    # For event loops

    async def ado(self, item: T) -> R:
        """The same, awaited."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()
        end = math.inf if self._limit is None else self._clock() + self._limit
        with shielded:
            self.submit(CommitTicket(item, partial(resolve, future), end, end), loop)
        return await future

    def submit(self, ticket: CommitTicket[T, R], loop: "asyncio.AbstractEventLoop") -> None:
        """Puts the ticket in line, on the thread of this loop; there its reply comes, too. If there is no room, see
        `choose_refused`."""
        ticket.loop = loop
        self.add(ticket)
        if ticket.unanswered_at < math.inf:
            expiry = self._expiry
            # A timer belongs to its loop; a process may run one loop after the other, as each `asyncio.run` does.
            if expiry is None or expiry.loop is not loop:
                self._expiry = expiry = _Expiry(self, loop, self._clock)
            expiry.add(ticket)

    def add(self, ticket: CommitTicket[T, R]) -> None:
        """Puts a ticket in line of which nobody is told, in any thread."""
        bounds, size = self._bounds, ticket.size
        with self._lock:
            if self._is_closed:
                refused, error = [ticket], self.closed_error()
            elif len(self._waiting) >= bounds.tickets or self._bytes + size > bounds.bytes:
                refused, error = self._make_room(ticket), self.full_error()
            else:
                refused, error = [], None
            if error is None or ticket not in refused:
                self._waiting.append(ticket)
                self._bytes += size
                if self._window is not None:
                    self._window.note(1)
                # One signal is enough for all that come before the thread looks.
                if not self._is_signalled:
                    self._is_signalled = True
                    self._wake_thread()
        if error is not None:
            self._refuse(refused, error)

    def _wake_thread(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._signal.put(True)

    def _make_room(self, new: CommitTicket[T, R]) -> list[CommitTicket[T, R]]:
        """Takes out of the line who is refused for the new one, and returns them; the new one, if there is no room."""
        waiting, bounds = self._waiting, self._bounds
        refused: list[CommitTicket[T, R]] = []
        while waiting and (len(waiting) >= bounds.tickets or self._bytes + new.size > bounds.bytes):
            refused.append(victim := self.choose_refused(waiting, new))
            if victim is new:
                break
            self._withdraw(victim)
        return refused

    def flush(self, timeout: float) -> bool:
        """Waits until the thread has sent all that waits, up to so many seconds; returns whether it has."""
        with self._lock:
            return self._changed.wait_for(lambda: not self._waiting and not self._sent, timeout)

    def close(self, timeout: float = 5.0) -> None:
        """Sends what waits, then ends the thread; what comes later is refused, but for `do`. timeout: seconds to wait
        for that; what waits longer is refused, too. May be called twice."""
        with self._lock:
            self._is_closed, thread = True, self._thread
        self._closing.set()
        if thread is not None:
            self._signal.put(False)
            # The thread may be inside a call of a store that hangs.
            thread.join(timeout)
        with self._lock:
            left, self._bytes = list(self._waiting), 0
            self._waiting.clear()
        if left:
            self._refuse(left, self.closed_error())

    # What subclasses may say otherwise

    def choose_refused(self, waiting: "deque[CommitTicket[T, R]]", new: CommitTicket[T, R]) -> CommitTicket[T, R]:
        """Of those that wait and the new one: the one that is refused when there is no room for all."""
        return new

    def full_error(self) -> Exception:
        """For a ticket that is refused since too many wait."""
        return _unsent(f"{self.waiting} calls wait for the store already; nothing was sent to it")

    def late_error(self) -> Exception:
        """For a ticket that has waited for too long, and was not sent."""
        return _unsent(
            f"the store has been busy or away, and of {self._limit:g} s too little is left; nothing was sent to it"
        )

    def unanswered_error(self) -> Exception:
        """For a ticket that was sent, and has no answer."""
        return StoreUnavailable(f"no answer from the store within {self._limit:g} s; it may be stored all the same")

    def closed_error(self) -> Exception:
        """For a ticket that comes after the end."""
        return _unsent("this program is ending; nothing was sent to the store")

    def fail(self, sent: Sequence[CommitTicket[T, R]], error: Exception) -> bool:
        """The call for these has failed. True: they wait on, as the first in line. Here: each is called alone, so that
        one bad item does not fail the others; not if the store is unavailable."""
        is_useful = len(sent) > 1 and not isinstance(error, StoreUnavailable)
        for ticket in sent:
            try:
                if not is_useful:
                    raise error
                ticket.result = self._call([ticket.item])[0]
            except Exception as why:
                ticket.error = why
        return False

    # The calls

    def _run(self) -> None:
        guard = TurnGuard(self._log, "sending what waits together")
        while self._signal.get():
            # Reset before the first is taken, so that a ticket that comes from now on signals again.
            self._is_signalled = False
            with self._turn:
                while self._waiting:
                    with guard:
                        self._commit(None if self._limit is None else time.monotonic() + self._limit)

    def _commit(self, end: float | None) -> None:
        """Makes the call for the first tickets in line, until `end`. Only with the turn."""
        batch: list[CommitTicket[T, R]] = []
        sent = batch
        try:
            self._take(batch)
            sent = self._without_late(batch)
            with until(end):
                results = self._call([ticket.item for ticket in sent]) if sent else ()
            for ticket, result in zip(sent, results, strict=True):
                ticket.result = result
        except PartlyUnavailable as error:
            # Some shards answered: their callers get the result, only the others an error.
            for at, ticket in enumerate(sent):
                ticket.error = error.missing.get(at)
                ticket.result = error.answer[at]
        except Exception as error:
            with until(end):
                if self.fail(sent, error):
                    self._put_back(sent)
                    batch = [ticket for ticket in batch if ticket.error is not None]
        except BaseException:
            # For example Ctrl-C in this thread: the other callers must not wait for ever.
            for ticket in batch:
                ticket.error = StoreUnavailable("the call was interrupted before its answer came")
            raise
        finally:
            self._finish(batch)

    def _take(self, batch: list[CommitTicket[T, R]]) -> None:
        """Moves the tickets of one call from the line to the batch."""
        with self._lock:
            count, size = self._count_for_call(list(islice(self._waiting, self._bounds.call_items)))
            # One call in C: in a Python loop, an exception between the line and the batch could lose a ticket.
            with contextlib.suppress(IndexError):  # a ticket was withdrawn in the meantime
                batch.extend(map(deque.popleft, repeat(self._waiting, count)))
            self._bytes -= size
            self._sent = len(batch)

    def _count_for_call(self, first: Sequence[CommitTicket[T, R]]) -> tuple[int, int]:
        """How many of these go in one call, and their bytes."""
        bounds = self._bounds
        items = size = 0
        if self._bytes:
            for count, ticket in enumerate(first):
                if items >= bounds.call_items or size >= bounds.call_bytes:
                    return count, size
                items += ticket.items
                size += ticket.size
        return len(first), size

    def _without_late(self, batch: list[CommitTicket[T, R]]) -> list[CommitTicket[T, R]]:
        """Those that are to be sent; those whose time is over get their error."""
        now = self._clock()
        late = [ticket for ticket in batch if ticket.deadline <= now]
        if not late:
            return batch
        for ticket in late:
            ticket.error = self.late_error()
        self.refused += len(late)
        return [ticket for ticket in batch if ticket.error is None]

    def _finish(self, batch: Sequence[CommitTicket[T, R]]) -> None:
        if self._window is not None:
            with self._lock:
                self._window.expect(len(batch))
        _answer(batch)
        with self._lock:
            self._sent = 0
            self._changed.notify_all()
        if self._window is None or len(batch) < GATHER_FROM or self._is_closed or len(self._waiting) >= GATHERED:
            return
        # Those that were answered send their next one.
        self._window.wait()

    # Tickets that are not sent

    def expire(self, ticket: CommitTicket[T, R], now: float) -> None:
        """Answers the ticket if its time is over, at `now` by the clock. On the thread of its loop."""
        if self._withdraw(ticket):
            self.refused += 1
            ticket.error = self.late_error()
        elif ticket.unanswered_at <= now:
            ticket.error = self.unanswered_error()
        else:
            return
        _reply([ticket])

    def _refuse(self, tickets: Sequence[CommitTicket[T, R]], error: Exception) -> None:
        self.refused += len(tickets)
        for ticket in tickets:
            ticket.error = error
        _answer(tickets)

    def _put_back(self, tickets: Sequence[CommitTicket[T, R]]) -> None:
        with self._lock:
            self._waiting.extendleft(reversed(tickets))
            self._bytes += sum(ticket.size for ticket in tickets)

    def _withdraw(self, ticket: CommitTicket[T, R]) -> bool:
        """Removes the ticket from the line; False if it is in a call already."""
        try:
            self._waiting.remove(ticket)
        except ValueError:
            return False
        if ticket.size:
            with self._lock:
                self._bytes -= ticket.size
        return True


class _Expiry(Generic[T, R]):
    """Looks for tickets of one event loop whose time is over. One timer for all of them."""

    def __init__(self, group: GroupCommit[T, R], loop: "asyncio.AbstractEventLoop", clock: Callable[[], float]) -> None:
        self.loop = loop
        self._group, self._clock = group, clock
        self._waiting: deque[CommitTicket[T, R]] = deque()
        self._is_set = False
        # Without a pause: the timer is one.
        self._guard = TurnGuard(log, "answering those who have waited for too long", lambda seconds: None)

    def add(self, ticket: CommitTicket[T, R]) -> None:
        waiting = self._waiting
        # Answered tickets go at the next call, else the queue keeps the tickets of a whole limit in memory.
        while waiting and waiting[0].reply is None:
            waiting.popleft()
        waiting.append(ticket)
        if not self._is_set:
            self._set(self._clock())

    def _sweep(self) -> None:
        self._is_set = False
        now = -math.inf
        try:
            now = self._clock()
            for ticket in [ticket for ticket in self._waiting if ticket.deadline <= now and ticket.reply is not None]:
                # One that cannot be answered must not cost the others their answers.
                with self._guard:
                    self._group.expire(ticket, now)
            self._waiting = deque(ticket for ticket in self._waiting if ticket.reply is not None)
        finally:
            # Whatever has failed: without the next look nobody would be answered any more.
            if self._waiting and not self._is_set:
                self._set(now)

    def _set(self, now: float) -> None:
        self._is_set = True
        # Nearly all wait for equally long, so the first of them is the first whose time is over.
        first = self._waiting[0]
        left = (first.deadline if first.deadline > now else first.unanswered_at) - now
        self.loop.call_later(min(SWEEP, max(0.0, left)), self._sweep)


def resolve(future: "asyncio.Future[Any]", answer: Any) -> None:
    """Gives the future its result, or its error, unless whoever waited has gone."""
    if future.done():
        return
    if isinstance(answer, BaseException):
        future.set_exception(answer)
    else:
        future.set_result(answer)


def _left(end: float | None) -> float | None:
    return None if end is None else end - time.monotonic()


def _unsent(text: str) -> StoreUnavailable:
    error = StoreUnavailable(text)
    error.stored = False
    return error


def _answer(tickets: Sequence[CommitTicket[T, R]]) -> None:
    """Has each reply called on its event loop."""
    loops: dict[asyncio.AbstractEventLoop, list[CommitTicket[T, R]]] = defaultdict(list)
    for ticket in tickets:
        ticket.done = True
        if ticket.loop is not None:
            loops[ticket.loop].append(ticket)
    # One call for each loop, not for each ticket: every call wakes the loop through its socket.
    for loop, group in loops.items():
        # RuntimeError: the loop was closed in the meantime, and nobody waits there any more.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_reply, group)


def _reply(tickets: Sequence[CommitTicket[T, R]]) -> None:
    for ticket in tickets:
        # Only here, on the thread of its loop, is a ticket found answered: so it is answered once.
        reply, ticket.reply = ticket.reply, None
        if reply is None:
            continue
        try:
            reply(ticket.result if ticket.error is None else ticket.error)
        except Exception as error:
            log.error("an answer could not be given", exc_info=error)


# Weak, so that it keeps none alive.
_groups: "weakref.WeakSet[GroupCommit[Any, Any]]" = weakref.WeakSet()


def _begin_in_child() -> None:
    for group in list(_groups):
        group._begin()


at_fork(after_in_child=_begin_in_child)
