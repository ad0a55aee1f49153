"""Forgetting finished jobs, for stores that have them in the order in which they are to go, and keep no sums.

Everything is done in steps of a bounded size, so that nobody waits for more than one of them. What the finished jobs of
each queue weigh is summed up step by step too: at most `SUMMED` jobs a call, and the next call goes on from there.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from tarry.model.limit import EACH

Place = tuple[int, bytes]
"""`until` and id: where a job stands among the finished ones."""
FORGOTTEN_AT_ONCE = 50
LOOKED_AT_ONCE = 1000
SUMMED = 100_000
"""Jobs that one call looks at to sum up their bytes: with fewer, each call is exact."""
BEFORE_ALL: Place = (-1, b"")


class Finished(Struct, frozen=True, gc=False):
    """A finished job. free: nothing but its room is the matter, since it holds no key."""

    until: int
    id: bytes
    queue: str
    size: int
    free: bool

    @property
    def place(self) -> Place:
        """Where it stands."""
        return self.until, self.id


class FinishedJobs(Protocol):
    """What a store has to offer. Each call is short, whatever is kept."""

    def bound(self) -> int:
        """No queue keeps more bytes than that."""

    def after(self, place: Place, now: int, count: int) -> Sequence[Finished]:
        """The next so many, in their order."""

    def weights(self, place: Place, count: int) -> tuple[Mapping[str, int], Place | None]:
        """The bytes of the next so many by queue, and where the last of them stands; None: none come after them."""

    def forget(self, jobs: Sequence[Finished]) -> int:
        """Deletes those that are still so; answers how many."""

    def drop_levels(self, name: str, now: int, count: int) -> str | None:
        """Looks at the next so many levels of keys, and drops those that are not used any more; answers the last name,
        None if none come after it."""


class Pruning:
    """Of one store in one process; where it is lasts from call to call. For one thread at a time."""

    def __init__(self, jobs: FinishedJobs) -> None:
        self._jobs = jobs
        self._asked: tuple[int, Mapping[str, int]] = (0, {})
        self._level = EACH
        """The level that was looked at last."""
        self._start_anew()

    def _start_anew(self) -> None:
        self._weights = Counter[str]()
        self._summed = BEFORE_ALL
        """Up to there the weights have all."""
        self._excess: dict[str, int] = {}
        """By queue: the bytes that are too many, once all are summed up."""
        self._lightened = BEFORE_ALL
        """Up to there the excess has been taken off."""

    def prune(self, now: int, most_bytes: int, limit: int, by_queue: Mapping[str, int]) -> int:
        """As `Store.prune`."""
        if self._asked != (most_bytes, by_queue):
            self._asked = most_bytes, dict(by_queue)
            self._start_anew()
        self._level = self._jobs.drop_levels(self._level, now, LOOKED_AT_ONCE) or EACH
        gone = self._forget_due(now, limit)
        if gone >= limit or self._jobs.bound() <= min([most_bytes, *by_queue.values()]):
            return gone
        if not self._excess and self._sum_up():
            over = {queue: size - by_queue.get(queue, most_bytes) for queue, size in self._weights.items()}
            self._start_anew()
            self._excess = {queue: size for queue, size in over.items() if size > 0}
        return gone + self._lighten(now, limit - gone)

    def _forget_due(self, now: int, limit: int) -> int:
        gone, place = 0, BEFORE_ALL
        while gone < limit:
            asked = min(FORGOTTEN_AT_ONCE, limit - gone)
            due = [job for job in self._jobs.after(place, now, asked) if job.until <= now]
            if due:
                gone += self._jobs.forget(due)
                self._unweigh(due)
                place = due[-1].place
            if len(due) < asked:
                break
        return gone

    def _unweigh(self, jobs: Sequence[Finished]) -> None:
        """These are gone: where they were counted, they weigh nothing any more."""
        for job in jobs:
            if job.place <= self._summed:
                self._weights[job.queue] -= job.size
            if job.queue in self._excess:
                _take_off(self._excess, job)

    def _sum_up(self) -> bool:
        """Whether the sums have all now."""
        for _ in range(0, SUMMED, LOOKED_AT_ONCE):
            weights, last = self._jobs.weights(self._summed, LOOKED_AT_ONCE)
            self._weights.update(weights)
            if last is None:
                return True
            self._summed = last
        return False

    def _lighten(self, now: int, limit: int) -> int:
        """Forgets the earliest of those queues that keep too much, until they do not."""
        gone = looked = 0
        while self._excess and gone < limit and looked < SUMMED:
            jobs = self._jobs.after(self._lightened, now, LOOKED_AT_ONCE)
            for start in range(0, len(jobs), FORGOTTEN_AT_ONCE):
                heavy = self._heavy(jobs[start : start + FORGOTTEN_AT_ONCE], limit - gone)
                gone += self._jobs.forget(heavy) if heavy else 0
            if len(jobs) < LOOKED_AT_ONCE and gone < limit:
                self._start_anew()
            looked += len(jobs)
        return gone

    def _heavy(self, jobs: Sequence[Finished], most: int) -> list[Finished]:
        """Those of the next jobs that have to go, at most so many."""
        heavy: list[Finished] = []
        for job in jobs:
            if len(heavy) == most or not self._excess:
                break
            self._lightened = job.place
            if job.free and job.queue in self._excess:
                heavy.append(job)
                _take_off(self._excess, job)
        return heavy


def _take_off(excess: dict[str, int], job: Finished) -> None:
    """A queue without any excess is not in it."""
    excess[job.queue] -= job.size
    if excess[job.queue] <= 0:
        del excess[job.queue]
