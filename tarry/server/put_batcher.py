"""Puts of programs: those that wait together are committed together; when too many wait, the oldest is told so."""

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import Any

from tarry.client.group_commit import CommitBounds, CommitTicket, GroupCommit, resolve
from tarry.client.handle import Handle
from tarry.errors import BodyTooLarge, Busy, Draining, StoreUnavailable
from tarry.model.job import Job
from tarry.tasks.arguments.options import Options
from tarry.tasks.lazy_asyncio import asyncio

log = logging.getLogger("tarry.server")

PutAnswers = list[Handle[Any] | Exception]
InsertWithOptions = Callable[[Sequence[Job], Sequence[Options]], PutAnswers]

MOST_JOBS, MOST_BYTES = 5000, 16 * 2**20
"""Of one commit; a single request may have more."""
LIMIT = 15.0
"""Seconds that a put waits for its commit at most."""
# As long as a client's call of the store takes at most: only one that keeps no limit takes longer.
GRACE = 5.0
"""Seconds after that in which a commit that has begun may end; then the put is answered, whatever the store does."""

_PutItems = tuple[Sequence[Job], Sequence[Options]]
_PutTicket = CommitTicket[_PutItems, PutAnswers]


class PutBatcher(GroupCommit[_PutItems, PutAnswers]):
    """Commits puts. A put that cannot be committed in time is told Busy, and the oldest of too many; it was not sent.

    insert: `Client.insert_each`. most_requests, most_bytes: what may wait. clock: seconds, as time.monotonic().
    is_large: whether the arguments of a job are written elsewhere; such puts have a line and commits of their own.
    """

    def __init__(
        self,
        insert: InsertWithOptions,
        most_requests: int = 1024,
        most_bytes: int = 64 * 2**20,
        limit: float = LIMIT,
        clock: Callable[[], float] = time.monotonic,
        is_large: Callable[[Job], bool] | None = None,
    ) -> None:
        bounds = CommitBounds(MOST_JOBS, MOST_BYTES, most_requests, most_bytes)
        self._is_large = is_large
        self._large: PutBatcher | None = None
        if is_large is not None:
            self._large = PutBatcher(insert, most_requests, most_bytes, limit, clock)
        super().__init__(self._insert_all, bounds, name="tarry-puts", log=log, gathers=True, clock=clock)
        self._insert, self._longest_wait = insert, limit

    @property
    def waiting(self) -> int:
        """Requests that wait for their commit."""
        return super().waiting + (0 if self._large is None else self._large.waiting)

    @property
    def all_refused(self) -> int:
        """How many requests were not sent."""
        return self.refused + (0 if self._large is None else self._large.refused)

    def put(
        self,
        jobs: Sequence[Job],
        options: Sequence[Options],
        reply: Callable[[PutAnswers], None],
        deadline: float | None = None,
    ) -> None:
        """Commits the jobs with the next commit, and calls `reply` once, on this thread, with a handle or an error for
        each. deadline: when the sender stops waiting, by `time.monotonic()`.

        When there is no room, the request that has waited longest is told Busy: what was not committed for so long has
        the least chance to be answered in time. Nothing that was told to be stored is ever dropped.
        """
        if self._is_large is not None and self._large is not None and any(map(self._is_large, jobs)):
            # Else a place that is slow or away would hold up all others.
            self._large.put(jobs, options, reply, deadline)
            return
        loop, latest = asyncio.get_running_loop(), self._clock() + self._longest_wait
        answer_by = latest + GRACE
        latest = latest if deadline is None else min(deadline, latest)
        reply_each, size = partial(_reply_for_each, reply, len(jobs)), sum(job.size for job in jobs)
        if size > self._bounds.bytes:
            why = f"the jobs take {size} bytes; at most {self._bounds.bytes} may wait: send fewer at once"
            loop.call_soon(reply_each, BodyTooLarge(why))
            return
        self.submit(CommitTicket((jobs, options), reply_each, latest, answer_by, len(jobs), size), loop)

    async def aput(self, jobs: Sequence[Job], options: Sequence[Options], deadline: float | None = None) -> PutAnswers:
        """The same, awaited."""
        future: asyncio.Future[PutAnswers] = asyncio.get_running_loop().create_future()
        self.put(jobs, options, partial(resolve, future), deadline)
        return await future

    def close(self, timeout: float = LIMIT) -> None:
        """See `GroupCommit.close`."""
        super().close(timeout)
        if self._large is not None:
            self._large.close(timeout)

    def choose_refused(self, waiting: deque[_PutTicket], new: _PutTicket) -> _PutTicket:
        return waiting[0]

    def full_error(self) -> Exception:
        return Busy(f"the server is busy: {self._bounds.tickets} requests wait already; try again")

    def late_error(self) -> Exception:
        return Busy("the server is busy: this took too long")

    def unanswered_error(self) -> Exception:
        return StoreUnavailable("no answer from the store in time; it may be stored all the same")

    def closed_error(self) -> Exception:
        return Draining("this server is ending: send the request again")

    def _insert_all(self, puts: list[_PutItems]) -> list[PutAnswers]:
        jobs = [job for some, _ in puts for job in some]
        try:
            found = self._insert(jobs, [each for _, options in puts for each in options])
        except Exception as error:
            log.error("%d jobs could not be stored", len(jobs), exc_info=error)
            found = [error] * len(jobs)
        if len(jobs) == len(puts):
            return [[each] for each in found]
        answers = iter(found)
        return [list(islice(answers, len(some))) for some, _ in puts]


def _reply_for_each(reply: Callable[[PutAnswers], None], count: int, answer: PutAnswers | Exception) -> None:
    reply([answer] * count if isinstance(answer, Exception) else answer)
