"""Deletes finished jobs, for stores that can read them in the order of `keep_until` and keep no sums of their bytes.

The bytes of each queue's finished jobs are summed up step by step: at most `SUMMED` jobs in a call, and the next call
goes on from there.
"""

# All steps have a bounded size, so that other calls of the store wait for no more than one step.

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from tarry.model.bound import KEY_ROOM
from tarry.model.duration import MINUTE
from tarry.model.limit import EACH

PrunedPlace = tuple[int, bytes]
"""`keep_until` and id: where a job stands among the finished ones."""
FORGOTTEN_AT_ONCE = 50
LOOKED_AT_ONCE = 1000
SUMMED = 100_000
"""How many jobs one call reads to sum up their bytes. With no more jobs than this, each call is exact."""
BEFORE_ALL: PrunedPlace = (-1, b"")
LanePlace = tuple[str, int, str, str]
"""Queue, band, task and lane, as the store's table of open lanes has them."""
BEFORE_ALL_LANES: LanePlace = ("", -2, "", "")
PIECES_OF_LANES = 10
"""So many times LOOKED_AT_ONCE open lanes are looked at in a call, as long as some of them are empty; and rooms."""


class Finished(Struct, frozen=True, gc=False):
    """A finished job. free: it holds no key, so it may be deleted early to save room."""

    until: int
    id: bytes
    queue: str
    size: int
    free: bool

    @property
    def place(self) -> PrunedPlace:
        """Where the job stands."""
        return self.until, self.id


class FinishedJobs(Protocol):
    """What `Pruning` needs from a store. Each call is short, however many jobs are kept."""

    def bound(self) -> int:
        """A number of bytes that no queue exceeds."""

    def after(self, place: PrunedPlace, now: int, count: int) -> Sequence[Finished]:
        """The next `count` jobs after this place, in order."""

    def weights(self, place: PrunedPlace, count: int) -> tuple[Mapping[str, int], PrunedPlace | None]:
        """The bytes of the next `count` jobs by queue, and the place of the last of them; None: no more come after."""

    def forget(self, jobs: Sequence[Finished]) -> int:
        """Deletes those of these jobs that have not changed; returns how many."""

    def drop_levels(self, name: str, now: int, count: int) -> str | None:
        """Checks the next `count` levels of keys and drops unused ones; returns the last name, None at the end."""

    def drop_lanes(self, place: LanePlace, count: int) -> tuple[LanePlace | None, int]:
        """Checks the next `count` open lanes and drops those where no job waits. Returns the last place, None at the
        end, and how many were dropped."""

    def drop_rooms(self, name: str, now: int, count: int) -> str | None:
        """Checks the next `count` rooms of keys and drops old ones; returns the last name, None at the end."""


class Pruning:
    """Prunes one store from one process. It keeps its place from call to call. For one thread at a time."""

    def __init__(self, jobs: FinishedJobs) -> None:
        self._jobs = jobs
        self._asked: tuple[int, Mapping[str, int]] = (0, {})
        self._level = EACH
        """The level that was checked last."""
        self._lane = BEFORE_ALL_LANES
        """The open lane that was checked last."""
        self._room = KEY_ROOM
        """The room of a key that was checked last."""
        self._rooms_at = 0
        """When all rooms were checked last."""
        self._start_anew()

    def _start_anew(self) -> None:
        self._weights = Counter[str]()
        self._summed = BEFORE_ALL
        """The weights have all jobs up to this place."""
        self._excess: dict[str, int] = {}
        """By queue, once all jobs are summed up: the bytes above its limit."""
        self._lightened = BEFORE_ALL
        """All jobs up to this place were considered for deletion."""

    def prune(self, now: int, most_bytes: int, limit: int, by_queue: Mapping[str, int]) -> int:
        """The same as `Store.prune`."""
        # The excess was computed for other limits.
        if self._asked != (most_bytes, by_queue):
            self._asked = most_bytes, dict(by_queue)
            self._start_anew()
        self._level = self._jobs.drop_levels(self._level, now, LOOKED_AT_ONCE) or EACH
        self._drop_lanes()
        self._drop_rooms(now)
        gone = self._forget_due(now, limit)
        # The bound is cheap, and mostly no queue can be over its limit: then nothing needs to be summed up.
        if gone >= limit or self._jobs.bound() <= min([most_bytes, *by_queue.values()]):
            return gone
        if not self._excess and self._sum_up():
            over = {queue: size - by_queue.get(queue, most_bytes) for queue, size in self._weights.items()}
            self._start_anew()
            self._excess = {queue: size for queue, size in over.items() if size > 0}
        return gone + self._lighten(now, limit - gone)

    def _drop_lanes(self) -> None:
        # A claim drops a lane with its last job; here are those whose jobs were cancelled, deleted or moved.
        for _ in range(PIECES_OF_LANES):
            last, dropped = self._jobs.drop_lanes(self._lane, LOOKED_AT_ONCE)
            self._lane = last or BEFORE_ALL_LANES
            if last is None or not dropped:
                return

    def _drop_rooms(self, now: int) -> None:
        # Once a minute, since most stores have none, and an idle one is to be asked little.
        if 0 <= now - self._rooms_at < MINUTE:
            return
        for _ in range(PIECES_OF_LANES):
            self._room = self._jobs.drop_rooms(self._room, now, LOOKED_AT_ONCE) or KEY_ROOM
            if self._room == KEY_ROOM:
                self._rooms_at = now
                return

    def _forget_due(self, now: int, limit: int) -> int:
        gone, place = 0, BEFORE_ALL
        while gone < limit:
            asked = min(FORGOTTEN_AT_ONCE, limit - gone)
            due = [job for job in self._jobs.after(place, now, asked) if job.until <= now]
            if due:
                gone += self._jobs.forget(due)
                self._unweigh(due)
                # Go on behind them: those that have changed, and so were not deleted, must not be read again.
                place = due[-1].place
            if len(due) < asked:
                break
        return gone

    def _unweigh(self, jobs: Sequence[Finished]) -> None:
        """Takes deleted jobs out of the sums."""
        for job in jobs:
            # A job after the place of the sums was not counted yet.
            if job.place <= self._summed:
                self._weights[job.queue] -= job.size
            if job.queue in self._excess:
                _take_off(self._excess, job)

    def _sum_up(self) -> bool:
        """Sums up some more jobs; returns whether all are summed up."""
        for _ in range(0, SUMMED, LOOKED_AT_ONCE):
            weights, last = self._jobs.weights(self._summed, LOOKED_AT_ONCE)
            self._weights.update(weights)
            if last is None:
                return True
            self._summed = last
        return False

    def _lighten(self, now: int, limit: int) -> int:
        """Deletes the earliest jobs of queues that keep too much, until they keep no more than they may."""
        gone = looked = 0
        while self._excess and gone < limit and looked < SUMMED:
            jobs = self._jobs.after(self._lightened, now, LOOKED_AT_ONCE)
            for start in range(0, len(jobs), FORGOTTEN_AT_ONCE):
                heavy = self._heavy(jobs[start : start + FORGOTTEN_AT_ONCE], limit - gone)
                gone += self._jobs.forget(heavy) if heavy else 0
            # All jobs were considered: what is left of the excess belongs to jobs that hold keys or have changed.
            if len(jobs) < LOOKED_AT_ONCE and gone < limit:
                self._start_anew()
            looked += len(jobs)
        return gone

    def _heavy(self, jobs: Sequence[Finished], most: int) -> list[Finished]:
        """Those of the next jobs that must be deleted, at most `most`."""
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
    """Takes the bytes of a job off its queue's excess; removes a queue that has none left."""
    excess[job.queue] -= job.size
    if excess[job.queue] <= 0:
        del excess[job.queue]
