"""The reference: the counts of waiting jobs in the simplest correct form."""

import threading
from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence

from tarry.model.job import Job, State
from tarry.model.lifecycle import is_late
from tarry.store.memory.index import JobIndex, Rank, rank
from tarry.store.rules.base import BANDS, band
from tarry.store.rules.waiting import CappedCount, ReadyBefore, WaitingCounts, WaitingLane, capped


class MemoryWaiting(WaitingCounts):
    """The waiting jobs of a memory store. lock: that of the store."""

    def __init__(self, lock: "threading.Lock | threading.RLock", index: JobIndex) -> None:
        self._lock, self._index = lock, index

    def due(self, bounds: Sequence[int], queues: Collection[str] | None, most: int) -> list[CappedCount]:
        parts: list[list[Job]] = [[] for _ in range(len(bounds) + 1)]
        for job in sorted(self._waiting_jobs(State.SCHEDULED), key=lambda job: (job.due, job.id)):
            parts[bisect_right(bounds, job.due)].append(job)
        return [
            CappedCount(sum(queues is None or job.queue in queues for job in part[:most]), len(part) >= most)
            for part in parts
        ]

    def bands(self, queue: str, most: int) -> dict[int, CappedCount]:
        ready = self._ready(queue)
        return {which: capped(sum(band(job.priority) == which for job in ready), most) for which in BANDS}

    def lane(self, queue: str, task: str, lane: str, most: int) -> WaitingLane:
        found = [job.due for job in self._ready(queue) if (job.task, job.lane) == (task, lane)]
        return WaitingLane(capped(len(found), most), min(found, default=None))

    def tasks(self, queue: str, after: str, most: int) -> list[str]:
        found = {job.task for job in self._ready(queue) if job.lane is not None and job.task > after}
        return sorted(found)[:most]

    def _before(self, job: Job, most: int) -> ReadyBefore:
        ready, place = self._ready(job.queue), rank(job)
        laned = [one for one in ready if one.lane is not None]
        ready = [one for one in ready if one.lane is None]
        same = [one for one in ready if one.priority == job.priority]
        return ReadyBefore(
            min(most, sum(one.priority > job.priority for one in ready)),
            _by_kind([one for one in same if rank(one) < place], most),
            _by_kind(same, most),
            min(most, _count_before(laned, place)),
            min(most, len(laned)),
        )

    def _ready(self, queue: str) -> list[Job]:
        return [job for job in self._waiting_jobs(State.READY) if job.queue == queue]

    def _waiting_jobs(self, state: State) -> list[Job]:
        with self._lock:
            return [job for job in self._index.jobs.values() if job.state is state]


def _count_before(jobs: Iterable[Job], place: Rank) -> int:
    return sum(rank(job) < place for job in jobs)


def _by_kind(jobs: Sequence[Job], most: int) -> tuple[int, int]:
    late = sum(is_late(job.due, job.state_since) for job in jobs)
    return min(most, len(jobs) - late), min(most, late)
