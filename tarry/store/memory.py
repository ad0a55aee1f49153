"""The reference: every verb in the shortest form that is obviously right. For tests and notebooks.

Nothing outlives the process. What other stores do is compared with what this one does.
"""

import threading
import time as clock
from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from msgspec.structs import replace

from tarry.model.change import Change
from tarry.model.job import Job, State
from tarry.store.base import PROMOTED_AT_ONCE, Fact, Query, Store, Tally, Want, band
from tarry.store.bell import RESULT, Bell, one_of_each

Rank = tuple[int, int, bytes]


class MemoryStore(Store):
    """Jobs in a dict, under one lock.

    time: what `time()` answers, in microseconds since the epoch; None, the system's clock. name: tells several
    apart, as the shards of one `ShardedStore` must be.
    """

    def __init__(self, time: Callable[[], int] | None = None, name: str = "") -> None:
        self.url = f"memory://{name}"
        self._time = time or _system_time
        self._lock = threading.Lock()
        self._jobs: dict[bytes, Job] = {}
        self._keys: dict[tuple[str, str], bytes] = {}
        self._ready: defaultdict[tuple[str, int], list[Rank]] = defaultdict(list)
        self._scheduled: list[Rank] = []
        self._leases: dict[str, int] = {}
        self._held: dict[str, tuple[str, int]] = {}
        self._paused: set[str] = set()
        self._armed: dict[Bell, str] = {}

    # Keeping

    def insert(self, jobs: Sequence[Job]) -> list[bytes]:
        with self._lock:
            known = len(self._jobs)
            ids = [self._insert(job) for job in jobs]
            if len(self._jobs) > known:
                self._ring_work()
            return ids

    def _insert(self, job: Job) -> bytes:
        if job.id in self._jobs:
            return job.id
        holder = self._holder(job)
        if holder is None:
            self._set(job.id, job)
        return holder or job.id

    def claim(self, wants: Sequence[Want], limit: int, owner: str, lease: int, now: int) -> list[Job]:
        with self._lock:
            wants = [want for want in wants if want.queue not in self._paused]
            if limit <= 0 or not wants:
                return []
            self._promote(now)
            taken: list[Job] = []
            for want, count in [(want, want.count) for want in wants] + [(want, limit) for want in wants]:
                taken += self._take(want, min(count, limit - len(taken)), owner, now)
            if taken:
                self._prolong(owner, lease, now)
            return sorted(taken, key=rank)

    def _promote(self, now: int) -> None:
        due = bisect_left(self._scheduled, now + 1, key=lambda item: item[1])
        for _, _, id in self._scheduled[: min(due, PROMOTED_AT_ONCE)]:
            self._set(id, replace(self._jobs[id], state=State.READY, since=now))

    def _take(self, want: Want, count: int, owner: str, now: int) -> list[Job]:
        line = self._ready.get((want.queue, want.band), [])
        jobs = [self._jobs[id] for _, _, id in line[: max(count, 0)]]
        return [self._set(job.id, _claimed(job, owner, now)) for job in jobs]

    def apply(self, changes: Sequence[Change], now: int) -> list[bool]:
        with self._lock:
            valid = [self._apply(change) for change in changes]
            made = {change.to for change, good in zip(changes, valid, strict=True) if good}
            if made & {State.READY, State.SCHEDULED}:
                self._ring_work()
            if None in made or any(to.finished for to in made if to):
                self._ring(bell for bell, topic in self._armed.items() if topic == RESULT)
            return valid

    def _apply(self, change: Change) -> bool:
        job = self._jobs.get(change.id)
        if job is None or (job.state, job.epoch) != (change.was, change.epoch):
            return False
        if change.to is None:
            self._unset(job)
            return True
        new = changed(job, change.to, change)
        if not new.state.finished and self._holder(new) not in (None, job.id):
            return False
        self._set(job.id, new)
        return True

    def next_due(self) -> int | None:
        with self._lock:
            return self._scheduled[0][1] if self._scheduled else None

    # Owning

    def extend(self, owner: str, held: Collection[tuple[bytes, int]], lease: int, now: int) -> list[bytes]:
        with self._lock:
            if held:
                self._prolong(owner, lease, now)
            return [id for id, epoch in held if not self._owns(owner, id, epoch)]

    def _prolong(self, owner: str, lease: int, now: int) -> None:
        """Written only past half: for most calls that is one write less, and the promise is half a lease."""
        if self._leases.get(owner, 0) < now + lease // 2:
            self._leases[owner] = now + lease

    def _owns(self, owner: str, id: bytes, epoch: int) -> bool:
        job = self._jobs.get(id)
        return job is not None and (job.state, job.owner, job.epoch) == (State.RUNNING, owner, epoch)

    def reclaim(self, now: int, of: str | None = None, limit: int = 1000) -> list[Job]:
        with self._lock:
            return [job for job in self._running() if self._is_lost(job, of, now)][:limit]

    def _is_lost(self, job: Job, of: str | None, now: int) -> bool:
        return self._leases.get(job.owner, 0) <= now if of is None else job.owner == of

    def owners(self) -> list[str]:
        with self._lock:
            return sorted({job.owner for job in self._running()})

    def _running(self) -> list[Job]:
        return [job for _, job in sorted(self._jobs.items()) if job.state is State.RUNNING]

    def hold(self, name: str, owner: str, until: int, now: int) -> bool:
        with self._lock:
            holder, end = self._held.get(name, (owner, 0))
            if holder != owner and end > now:
                return False
            self._held[name] = owner, until
            return True

    # For people

    def get(self, ids: Sequence[bytes]) -> list[Job | None]:
        with self._lock:
            return [self._jobs.get(id) for id in ids]

    def find(self, query: Query) -> list[Job]:
        with self._lock:
            return [job for _, job in sorted(self._jobs.items()) if matches(query, job)][: query.limit]

    def counts(self) -> list[Tally]:
        with self._lock:
            groups: defaultdict[tuple[str, str, State], list[Job]] = defaultdict(list)
            for job in self._jobs.values():
                groups[job.queue, job.task, job.state].append(job)
        return [
            Tally(*group, len(jobs), min(job.due for job in jobs), sum(map(size, jobs)))
            for group, jobs in sorted(groups.items())
        ]

    def prune(self, now: int, most_bytes: int, limit: int = 1000, by_queue: Mapping[str, int] | None = None) -> int:
        with self._lock:
            finished = [job for job in self._jobs.values() if job.state.finished]
            finished.sort(key=lambda job: (job.until, job.id))
            held = Counter[str]()
            for job in finished:
                held[job.queue] += size(job)
            gone: list[Job] = []
            for job in finished:
                if job.until <= now or held[job.queue] > (by_queue or {}).get(job.queue, most_bytes):
                    held[job.queue] -= size(job)
                    gone.append(job)
            for job in gone[:limit]:
                self._unset(job)
            return len(gone[:limit])

    def pause(self, queue: str, paused: bool) -> None:
        with self._lock:
            if paused:
                self._paused.add(queue)
            else:
                self._paused.discard(queue)
                self._ring_work()

    def queues(self) -> dict[str, bool]:
        with self._lock:
            ready = {queue for (queue, _), line in self._ready.items() if line}
            return {queue: queue in self._paused for queue in sorted(ready | self._paused)}

    # Bells

    def bell(self) -> Bell:
        return _MemoryBell(self)

    def ring_recall(self) -> None:
        with self._lock:
            self._ring(bell for bell, topic in self._armed.items() if topic != RESULT)

    def _ring_work(self) -> None:
        bells = list(self._armed)
        self._ring(bells[number] for number in one_of_each(enumerate(self._armed.values())))

    def _ring(self, bells: Iterable[Bell]) -> None:
        for bell in list(bells):
            del self._armed[bell]  # it is awake now: the next ring is for another of its kind
            bell.poke()

    # The process

    def time(self) -> int:
        return self._time()

    def facts(self) -> list[Fact]:
        advice = "for tests and notebooks; to keep jobs, use sqlite:///tarry.db"
        return [Fact("durability", "none: jobs end with the process", advice)]

    def close(self) -> None:
        """Nothing is held outside; what it keeps can still be read."""

    # The indexes: every write goes through these two

    def _set(self, id: bytes, job: Job) -> Job:
        if old := self._jobs.get(id):
            self._unset(old)
        self._jobs[id] = job
        if (line := self._line(job)) is not None:
            insort(line, _place(job))
        if job.key is not None and not job.state.finished:
            self._keys[job.task, job.key] = id
        return job

    def _unset(self, job: Job) -> None:
        del self._jobs[job.id]
        if (line := self._line(job)) is not None:
            del line[bisect_left(line, _place(job))]
        if job.key is not None and not job.state.finished:
            del self._keys[job.task, job.key]

    def _line(self, job: Job) -> list[Rank] | None:
        match job.state:
            case State.READY:
                return self._ready[job.queue, band(job.priority)]
            case State.SCHEDULED:
                return self._scheduled
        return None

    def _holder(self, job: Job) -> bytes | None:
        return None if job.key is None else self._keys.get((job.task, job.key))


class _MemoryBell(Bell):
    def __init__(self, store: MemoryStore) -> None:
        super().__init__()
        self._store = store

    def arm(self, topic: str) -> None:
        with self._store._lock:
            self._store._armed[self] = topic

    def disarm(self) -> None:
        with self._store._lock:
            self._store._armed.pop(self, None)


def rank(job: Job) -> Rank:
    """Where a ready job stands in line: higher priority first, then earlier due, then id."""
    return -job.priority, job.due, job.id


def size(job: Job) -> int:
    """The bytes that count against what a queue may keep."""
    return len(job.body) + len(job.note)


def matches(query: Query, job: Job) -> bool:
    """Whether people who ask so want to see it."""
    return (
        job.id > query.after
        and (not query.states or job.state in query.states)
        and query.queue in (None, job.queue)
        and query.task in (None, job.task)
        and query.key in (None, job.key)
        and (query.before is None or job.since < query.before)
    )


def changed(job: Job, to: State, change: Change) -> Job:
    """The job as the change makes it."""
    return replace(
        job,
        state=to,
        owner="",
        since=change.since,
        due=job.due if change.due is None else change.due,
        failures=change.failures,
        losses=change.losses,
        until=change.until if to.finished else 0,
        note=change.note,
        queue=job.queue if change.queue is None else change.queue,
        priority=job.priority if change.priority is None else change.priority,
        expires=job.expires if change.expires is None else change.expires,
    )


def _claimed(job: Job, owner: str, now: int) -> Job:
    return replace(job, state=State.RUNNING, owner=owner, epoch=job.epoch + 1, since=now)


def _place(job: Job) -> Rank:
    return rank(job) if job.state is State.READY else (0, job.due, job.id)


def _system_time() -> int:
    return clock.time_ns() // 1000
