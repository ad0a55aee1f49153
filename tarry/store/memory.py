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
from tarry.model.job import WAITING, Job, State
from tarry.model.lifecycle import is_late
from tarry.model.limit import QUEUE, TASK, Level, Limit
from tarry.store.base import PROMOTED_AT_ONCE, Backlog, Exchange, Fact, Query, Store, Tally, Want, band
from tarry.store.shared.bell import FOLLOW, RESULT, Bell, one_of_each
from tarry.store.shared.lanes import Levels, Place, counted, dealt, each, earliest, laned, limit_of, merged, miscounted

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
        self._ready: defaultdict[tuple[str, int, bool], list[Rank]] = defaultdict(list)
        self._laned: defaultdict[tuple[str, int], defaultdict[str, defaultdict[str, list[Rank]]]] = _lanes()
        self._scheduled: list[Rank] = []
        self._leases: dict[str, int] = {}
        self._held: dict[str, tuple[str, int]] = {}
        self._paused: set[str] = set()
        self._armed: dict[Bell, str] = {}
        self._cells: dict[str, bytes] = {}
        self._limits: dict[str, Limit] = {}
        self._levels: dict[str, Level] = {}
        self._turns: dict[str, str] = {}

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
        holder = self._holder(job, job.since)
        if holder is None:
            self._set(job.id, replace(job, lane=laned(job.task, job.lane, self._limits)))
        return holder or job.id

    def claim(self, wants: Sequence[Want], limit: int, owner: str, lease: int, now: int) -> list[Job]:
        return self.exchange((), wants, limit, owner, lease, now).jobs

    def exchange(
        self, changes: Sequence[Change], wants: Sequence[Want], limit: int, owner: str, lease: int, now: int
    ) -> Exchange:
        valid = self.apply(changes, now) if changes else []
        with self._lock:
            jobs, again = self._claim(wants, limit, owner, lease, now)
            return Exchange(valid, jobs, earliest(self._next_due(), again))

    def _claim(
        self, wants: Sequence[Want], limit: int, owner: str, lease: int, now: int
    ) -> tuple[list[Job], int | None]:
        """The jobs; with none, when a rate lets start what it held back."""
        wants = [want for want in wants if want.queue not in self._paused]
        if limit <= 0 or not wants:
            return [], None
        self._promote(now)
        levels = Levels(self._limits, self._levels, now)
        taken: list[Job] = []
        for want, count in [(want, want.count) for want in wants] + [(want, limit) for want in wants]:
            taken += self._take(want, min(count, limit - len(taken)), owner, now, levels)
        if not taken:
            return [], levels.again
        self._prolong(owner, lease, now)
        self._ring(bell for bell, topic in self._armed.items() if topic == FOLLOW)
        return sorted(taken, key=rank), None

    def _promote(self, now: int) -> None:
        due = bisect_left(self._scheduled, now + 1, key=lambda item: item[1])
        for _, _, id in self._scheduled[: min(due, PROMOTED_AT_ONCE)]:
            self._set(id, replace(self._jobs[id], state=State.READY, since=now))

    def _take(self, want: Want, count: int, owner: str, now: int, levels: Levels) -> list[Job]:
        open_lines = [self._ready.get((want.queue, want.band, late), []) for late in (True, False)]
        tasks = {task: lanes for task, lanes in self._laned[want.queue, want.band].items() if any(lanes.values())}
        if count <= 0 or not (any(open_lines) or tasks):
            return []
        most = levels.room(QUEUE + want.queue, count)
        lines = [line[:most] for line in open_lines]
        lines += [self._dealt(task, lanes, most, levels) for task, lanes in sorted(tasks.items())]
        jobs = [[self._jobs[id] for _, _, id in line] for line in lines]
        return self._start(merged([[(place(job), job) for job in line] for line in jobs], most), owner, now)

    def _dealt(self, task: str, lanes: Mapping[str, list[Rank]], most: int, levels: Levels) -> list[Rank]:
        most = levels.room(TASK + task, most)
        if not most:
            return []
        turn = self._turns.get(task)
        order = sorted(lanes, key=lambda lane: (turn is not None and lane <= turn, lane))
        return dealt([lanes[lane][: levels.room(each(task, lane), most)] for lane in order if lanes[lane]], most)

    def _start(self, jobs: Sequence[Job], owner: str, now: int) -> list[Job]:
        for name, count in counted([(job.queue, job.task, job.lane) for job in jobs], self._limits).items():
            level = self._levels.get(name, Level())
            self._levels[name] = level.started(self._limits[limit_of(name)], count, now)
        self._turns |= {job.task: job.lane for job in jobs if job.lane is not None}
        return [self._set(job.id, _claimed(job, owner, now)) for job in jobs]

    def _end(self, job: Job, now: int) -> None:
        """It no longer runs: what it took of its limits is free again."""
        for name in counted([(job.queue, job.task, job.lane)], self._limits):
            self._levels[name] = self._levels.get(name, Level()).ended(1)
            self._ring_work()

    def apply(self, changes: Sequence[Change], now: int) -> list[bool]:
        with self._lock:
            valid = [self._apply(change, now) for change in changes]
            made = {change.to for change, good in zip(changes, valid, strict=True) if good}
            if made & {State.READY, State.SCHEDULED}:
                self._ring_work()
            topics = {FOLLOW, RESULT} if None in made or any(to.finished for to in made if to) else {FOLLOW}
            self._ring(bell for bell, topic in self._armed.items() if topic in topics)
            return valid

    def _apply(self, change: Change, now: int) -> bool:
        job = self._jobs.get(change.id)
        if job is None or (job.state, job.epoch, job.owner) != (change.was, change.epoch, change.owner):
            return False
        if change.to is None:
            if job.state is State.RUNNING:
                self._end(job, now)
            self._unset(job)
            return True
        new = changed(job, change.to, change)
        if job.state.finished:
            new = replace(new, lane=laned(new.task, new.lane, self._limits))
        if new.holds and self._holder(new, now) not in (None, job.id):
            return False
        if job.state is State.RUNNING:
            self._end(job, now)
        self._set(job.id, new)
        return True

    def next_due(self) -> int | None:
        with self._lock:
            return self._next_due()

    def _next_due(self) -> int | None:
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

    def leaving(self, start: int, end: int, limit: int) -> list[Job]:
        with self._lock:
            found = [job for job in self._jobs.values() if job.state.finished and start <= job.until < end]
        return sorted(found, key=lambda job: (job.until, job.id))[:limit]

    def prune(self, now: int, most_bytes: int, limit: int = 1000, by_queue: Mapping[str, int] | None = None) -> int:
        with self._lock:
            finished = [job for job in self._jobs.values() if job.state.finished]
            finished.sort(key=lambda job: (job.until, job.id))
            held = Counter[str]()
            for job in finished:
                held[job.queue] += size(job)
            gone: list[Job] = []
            for job in finished:
                excess = held[job.queue] > (by_queue or {}).get(job.queue, most_bytes) and job.holds <= now
                if job.until <= now or excess:
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
            ready = {job.queue for job in self._jobs.values() if job.state is State.READY}
            return {queue: queue in self._paused for queue in sorted(ready | self._paused)}

    def backlog(self, queues: Collection[str] | None, now: int, most: int) -> Backlog:
        with self._lock:
            waiting = [
                job.due
                for job in self._jobs.values()
                if (job.state is State.READY or (job.state is State.SCHEDULED and job.due <= now))
                and job.queue not in self._paused
                and (queues is None or job.queue in queues)
            ]
        return Backlog(min(len(waiting), most), min(waiting, default=now))

    def mark(self, owner: str, marks: Sequence[tuple[bytes, int, bytes]]) -> None:
        with self._lock:
            for id, epoch, progress in marks:
                job = self._jobs.get(id)
                if job is not None and (job.state, job.epoch, job.owner) == (State.RUNNING, epoch, owner):
                    self._jobs[id] = replace(job, progress=progress)
            self._ring(bell for bell, topic in self._armed.items() if topic == FOLLOW)

    def limit(self, name: str, limit: Limit | None) -> None:
        with self._lock:
            known = name in self._limits
            self._limits.pop(name, None)
            if limit is not None:
                self._limits[name] = limit
            if not known or limit is None:
                self._count_anew(name, limit)
            self._ring_work()

    def _count_anew(self, name: str, limit: Limit | None) -> None:
        """Where a limit is known, what runs is counted and jobs have lanes since it is there."""
        for level in [level for level in self._levels if limit_of(level) == name]:
            self._levels[level] = Level(0, self._levels[level].next)
            if limit is None:
                del self._levels[level]
        if limit is None:
            return
        for job in list(self._jobs.values()):
            if not job.state.finished and (lane := laned(job.task, job.lane, self._limits)) != job.lane:
                self._set(job.id, replace(job, lane=lane))
        running = counted([(job.queue, job.task, job.lane) for job in self._running()], {name: limit})
        for level, count in running.items():
            self._levels[level] = Level(count, self._levels.get(level, Level()).next)

    def limits(self) -> dict[str, tuple[Limit, Level]]:
        with self._lock:
            return {name: (limit, self._levels.get(name, Level())) for name, limit in sorted(self._limits.items())}

    def recount(self, now: int) -> int:
        with self._lock:
            jobs = [(job.queue, job.task, job.lane) for job in self._running()]
            wrong = miscounted(jobs, self._limits, {name: level.running for name, level in self._levels.items()})
            for name, running in wrong.items():
                self._levels[name] = Level(running, self._levels.get(name, Level()).next)
            if wrong:
                self._ring_work()
            return len(wrong)

    def cells(self, prefix: str) -> dict[str, bytes]:
        with self._lock:
            return {name: value for name, value in sorted(self._cells.items()) if name.startswith(prefix)}

    def cell(self, name: str) -> bytes | None:
        with self._lock:
            return self._cells.get(name)

    def write(self, name: str, value: bytes | None, was: bytes | None) -> bool:
        with self._lock:
            if self._cells.get(name) != was:
                return False
            if value is None:
                self._cells.pop(name, None)
            else:
                self._cells[name] = value
            return True

    # Bells

    def bell(self) -> Bell:
        return _MemoryBell(self)

    def ring_recall(self) -> None:
        with self._lock:
            self._ring(bell for bell, topic in self._armed.items() if topic not in (RESULT, FOLLOW))

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
            insort(line, _spot(job))
        if job.key is not None and job.holds:
            self._keys[job.task, job.key] = id
        return job

    def _unset(self, job: Job) -> None:
        del self._jobs[job.id]
        if (line := self._line(job)) is not None:
            del line[bisect_left(line, _spot(job))]
        if job.key is not None and job.holds:
            del self._keys[job.task, job.key]

    def _line(self, job: Job) -> list[Rank] | None:
        match job.state:
            case State.READY if job.lane is not None:
                return self._laned[job.queue, band(job.priority)][job.task][job.lane]
            case State.READY:
                return self._ready[job.queue, band(job.priority), is_late(job.due, job.since)]
            case State.SCHEDULED:
                return self._scheduled
        return None

    def _holder(self, job: Job, now: int) -> bytes | None:
        """Who holds the key of this job; one whose time with it is over loses it here."""
        if job.key is None or (id := self._keys.get((job.task, job.key))) is None:
            return None
        if self._jobs[id].holds > now:
            return id
        self._set(id, replace(self._jobs[id], holds=0))
        return None


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
    """Where a ready job stands among those that are as late: higher priority first, then earlier due, then id."""
    return -job.priority, job.due, job.id


def place(job: Job) -> Place:
    """The same, as `merged` wants it."""
    return -job.priority, job.due, is_late(job.due, job.since), job.id


def size(job: Job) -> int:
    """The bytes that count against what a queue may keep."""
    return len(job.body) + len(job.note) + len(job.headers) + len(job.progress)


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
        holds=job.holds if change.holds is None else change.holds,
        body=job.body if change.body is None else change.body,
    )


def _lanes() -> "defaultdict[tuple[str, int], defaultdict[str, defaultdict[str, list[Rank]]]]":
    """Ready jobs with a lane: by queue and band, by task, by lane."""
    return defaultdict(lambda: defaultdict(lambda: defaultdict(list)))


def _claimed(job: Job, owner: str, now: int) -> Job:
    holds = 0 if job.unique == WAITING else job.holds
    return replace(job, state=State.RUNNING, owner=owner, epoch=job.epoch + 1, since=now, holds=holds)


def _spot(job: Job) -> Rank:
    return rank(job) if job.state is State.READY else (0, job.due, job.id)


def _system_time() -> int:
    return clock.time_ns() // 1000
