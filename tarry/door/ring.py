"""The ring of puts: those that wait together are committed together; when too many wait, the oldest is told so."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any

from tarry.client.handle import Handle
from tarry.door.gathering import GATHER_FROM, BatchWindow
from tarry.errors import BodyTooLarge, Busy, Draining, StoreUnavailable
from tarry.model.job import Job
from tarry.store.shared.backoff import TurnGuard
from tarry.tasks.arguments.options import Options
from tarry.tasks.lazy_asyncio import asyncio

log = logging.getLogger("tarry.door")

PutAnswers = list[Handle[Any] | Exception]
InsertWithOptions = Callable[[Sequence[Job], Sequence[Options]], PutAnswers]

MOST_JOBS, MOST_BYTES = 5000, 16 * 2**20
"""Of one commit; a single request may have more."""
LIMIT = 15.0
"""Seconds that a put waits for its commit at most."""
# As long as a client's call of the store takes at most: only one that keeps no limit takes longer.
GRACE = 5.0
"""Seconds after that in which a commit that has begun may end; then the put is answered, whatever the store does."""
SWEEP = 0.25
"""Seconds between two looks for puts whose time is over."""
GATHERED = 100
"""How many waiting requests are enough for the next commit."""
_BUSY, _LATE = "the server is busy: %d requests wait already; try again", "the server is busy: this took too long"
_DRAINING = "this server is ending: send the request again"


class _Put:
    """A request that waits for its commit, or is in one."""

    __slots__ = ("deadline", "hangs_at", "jobs", "loop", "options", "reply", "size")

    def __init__(self, jobs: Sequence[Job], options: Sequence[Options], deadline: float, hangs_at: float) -> None:
        self.jobs, self.options, self.deadline, self.hangs_at = jobs, options, deadline, hangs_at
        self.size = sum(job.size for job in jobs)
        self.loop = asyncio.get_running_loop()
        self.reply: Callable[[PutAnswers], None] | None = None


class PutBatcher:
    """Commits puts, in one thread. Its methods are for the thread of an event loop.

    insert: `Client.insert_each`. most_requests, most_bytes: what may wait. clock: seconds, as time.monotonic().
    """

    def __init__(
        self,
        insert: InsertWithOptions,
        *,
        most_requests: int = 1024,
        most_bytes: int = 64 * 2**20,
        limit: float = LIMIT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._insert, self._most_requests, self._most_bytes = insert, most_requests, most_bytes
        self._limit, self._clock = limit, clock
        self.busy = 0
        """How many requests were refused since too many waited, or since they had waited for too long."""
        self._waiting: deque[_Put] = deque()
        self._bytes = 0
        self._committing: list[_Put] = []
        self._lock, self._gathering = threading.Lock(), BatchWindow()
        self._signal: SimpleQueue[bool] = SimpleQueue()
        self._is_signalled = self._is_closed = False
        self._thread: threading.Thread | None = None
        self._sweeper: asyncio.AbstractEventLoop | None = None

    @property
    def waiting(self) -> int:
        """Requests that wait for their commit."""
        return len(self._waiting)

    def put(
        self,
        jobs: Sequence[Job],
        options: Sequence[Options],
        reply: Callable[[PutAnswers], None],
        deadline: float | None = None,
    ) -> None:
        """Commits the jobs with the next commit, and calls `reply` once, on this thread, with a handle or an error for
        each. deadline: when the sender stops waiting, by `time.monotonic()`.

        When the ring is full the request that has waited longest is told Busy: what was not committed for so long has
        the least chance to be answered in time. Nothing that was told to be stored is ever dropped.
        """
        latest = self._clock() + self._limit
        new = _Put(jobs, options, latest if deadline is None else min(deadline, latest), latest + GRACE)
        new.reply = reply
        refused = self._admit(new)
        if refused:
            self._refuse(refused)
        if self._sweeper is not new.loop:
            self._sweeper = new.loop
            new.loop.call_later(SWEEP, self._sweep, new.loop)

    async def aput(self, jobs: Sequence[Job], options: Sequence[Options], deadline: float | None = None) -> PutAnswers:
        """The same, awaited."""
        future: asyncio.Future[PutAnswers] = asyncio.get_running_loop().create_future()

        def reply(answers: PutAnswers) -> None:
            # Whoever waited may have gone.
            if not future.done():
                future.set_result(answers)

        self.put(jobs, options, reply, deadline)
        return await future

    def close(self, timeout: float = LIMIT) -> None:
        """Commits what waits, then ends the thread; later puts are told Draining. timeout: seconds to wait for that;
        what waits longer is told Draining too."""
        with self._lock:
            self._is_closed, thread = True, self._thread
        if thread is not None:
            self._signal.put(False)
            thread.join(timeout)
        with self._lock:
            left, self._waiting, self._bytes = list(self._waiting), deque(), 0
        _answer([(put, _same_error(put, Draining(_DRAINING))) for put in left])

    def _admit(self, new: _Put) -> list[tuple[_Put, Exception]]:
        """Lets the request wait; returns those that are not to wait any longer."""
        if new.size > self._most_bytes:
            why = f"the jobs take {new.size} bytes; at most {self._most_bytes} may wait: send fewer at once"
            return [(new, BodyTooLarge(why))]
        with self._lock:
            if self._is_closed:
                return [(new, Draining(_DRAINING))]
            refused: list[tuple[_Put, Exception]] = []
            while self._waiting and (
                len(self._waiting) >= self._most_requests or self._bytes + new.size > self._most_bytes
            ):
                refused.append((self._waiting.popleft(), Busy(_BUSY % self._most_requests)))
                self._bytes -= refused[-1][0].size
            self._waiting.append(new)
            self._bytes += new.size
            self._gathering.note(1)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="tarry-put-ring", daemon=True)
                self._thread.start()
            # One signal is enough for all that come before the thread looks.
            if not self._is_signalled:
                self._is_signalled = True
                self._signal.put(True)
            return refused

    def _refuse(self, refused: list[tuple[_Put, Exception]]) -> None:
        self.busy += sum(isinstance(error, Busy) for _, error in refused)
        _answer([(put, _same_error(put, error)) for put, error in refused])

    def _run(self) -> None:
        goes_on, guard = True, TurnGuard(log, "storing jobs of the doors")
        while goes_on:
            goes_on = self._signal.get()
            # Before the ring is looked at, so that a put that comes from now on signals again.
            self._is_signalled = False
            is_empty = False
            while not is_empty:
                with guard:
                    is_empty = not self._commit_next()

    def _commit_next(self) -> bool:
        """Commits what waits, as much as one call takes; False: nothing waits."""
        taken = self._take()
        if not taken:
            return False
        self._commit(taken)
        if len(taken) >= GATHER_FROM and len(self._waiting) < GATHERED and not self._is_closed:
            # Those that were answered send their next put.
            self._gathering.wait()
        return True

    def _take(self) -> list[_Put]:
        """The requests of the next commit; those whose time is over are answered."""
        taken: list[_Put] = []
        late: list[tuple[_Put, Exception]] = []
        jobs = size = 0
        now = self._clock()
        with self._lock:
            while self._waiting and jobs < MOST_JOBS and size < MOST_BYTES:
                put = self._waiting.popleft()
                self._bytes -= put.size
                if put.deadline <= now:
                    late.append((put, Busy(_LATE)))
                    continue
                taken.append(put)
                jobs, size = jobs + len(put.jobs), size + put.size
            self._committing = taken
        if late:
            self._refuse(late)
        return taken

    def _commit(self, taken: list[_Put]) -> None:
        jobs = [job for put in taken for job in put.jobs]
        try:
            found = self._insert(jobs, [options for put in taken for options in put.options])
        except Exception as error:
            log.error("%d jobs could not be stored", len(jobs), exc_info=error)
            found = [error] * len(jobs)
        answers, at = [], 0
        for put in taken:
            answers.append((put, found[at : at + len(put.jobs)]))
            at += len(put.jobs)
        with self._lock:
            self._committing = []
            self._gathering.expect(len(taken))
        _answer(answers)

    def _sweep(self, loop: "asyncio.AbstractEventLoop") -> None:
        """Answers requests whose time is over, also if the store hangs. Runs on the event loop from time to time."""
        now = self._clock()
        with self._lock:
            late = [put for put in self._waiting if put.deadline <= now]
            if late:
                self._waiting = deque(put for put in self._waiting if put.deadline > now)
                self._bytes -= sum(put.size for put in late)
            hanging = [put for put in self._committing if put.hangs_at <= now]
            is_idle = not self._waiting and not self._committing
        if late:
            self._refuse([(put, Busy(_LATE)) for put in late])
        if hanging:
            unsure = "no answer from the store in time; it may be stored all the same"
            _answer([(put, _same_error(put, StoreUnavailable(unsure))) for put in hanging])
        if is_idle:
            self._sweeper = None
        elif self._sweeper is loop:
            loop.call_later(SWEEP, self._sweep, loop)


def _same_error(put: _Put, error: Exception) -> PutAnswers:
    return [error] * len(put.jobs)


def _answer(answers: Sequence[tuple[_Put, PutAnswers]]) -> None:
    """Has each reply called on its event loop."""
    loops: dict[asyncio.AbstractEventLoop, list[tuple[_Put, PutAnswers]]] = {}
    for answer in answers:
        loops.setdefault(answer[0].loop, []).append(answer)
    # One call for each loop, not for each request: every call wakes the loop through its socket.
    for loop, group in loops.items():
        try:
            loop.call_soon_threadsafe(_reply, group)
        except RuntimeError:
            # The loop was closed in the meantime, and nobody waits there any more.
            continue


def _reply(answers: Sequence[tuple[_Put, PutAnswers]]) -> None:
    for put, answer in answers:
        # Only here, on the thread of its loop, is a request found answered: so it is answered once.
        reply, put.reply = put.reply, None
        if reply is None:
            continue
        try:
            reply(answer)
        except Exception as error:
            log.error("the answer to a put could not be given", exc_info=error)
