"""The jobs of the memory store, and where each is found: by id, by key, in its line.

Every write goes through `put` and `remove`, so that the indexes agree with the jobs.
"""

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Collection, Sequence
from itertools import islice, takewhile

from msgspec.structs import replace

from tarry.model.bound import WAITING_STATES
from tarry.model.job import MOST_EPOCH, Job, JobLabel, State, indexed_labels
from tarry.model.lifecycle import held_when_claimed, holds_key, is_late
from tarry.store.rules.base import BANDS, band
from tarry.store.rules.lanes import Position

Rank = tuple[int, int, bytes]


class JobIndex:
    """Not thread-safe: the store calls it under its own lock."""

    def __init__(self) -> None:
        self.jobs: dict[bytes, Job] = {}
        self.ready: defaultdict[tuple[str, int, bool], list[Rank]] = defaultdict(list)
        """Ready jobs without a lane: by queue, band, and whether they are late."""
        self.laned: defaultdict[tuple[str, int], defaultdict[str, defaultdict[str, list[Rank]]]] = defaultdict(
            lambda: defaultdict(lambda: defaultdict(list))
        )
        """Ready jobs with a lane: by queue and band, by task, by lane."""
        self._scheduled: list[Rank] = []
        self._keys: dict[tuple[str, str], bytes] = {}
        self.labelled: defaultdict[JobLabel, set[bytes]] = defaultdict(set)
        """The ids of the jobs that have a label."""

    def put(self, id: bytes, job: Job) -> Job:
        """Adds the job, or replaces the one of that id."""
        # Its place in the lines depends on its fields, so it must leave with the old ones.
        if old := self.jobs.get(id):
            self._drop_from_indexes(old)
        self.jobs[id] = job
        if (line := self._line(job)) is not None:
            insort(line, _spot(job))
        if job.key is not None and job.key_held_until:
            self._keys[job.task, job.key] = id
        for label in indexed_labels(job.headers).items():
            self.labelled[label].add(id)
        return job

    def remove(self, job: Job) -> None:
        """Removes a job. job: exactly as it was put, since its fields say where it is."""
        self._drop_from_indexes(job)
        self.jobs.pop(job.id, None)

    def _drop_from_indexes(self, job: Job) -> None:
        # An exception may come between any two steps, from a signal handler for instance, so an entry may be missing.
        if (line := self._line(job)) is not None:
            at, spot = bisect_left(line, _spot(job)), _spot(job)
            if line[at : at + 1] == [spot]:
                del line[at]
        if job.key is not None and self._keys.get((job.task, job.key)) == job.id:
            del self._keys[job.task, job.key]
        for label in indexed_labels(job.headers).items():
            self.labelled[label].discard(job.id)
            if not self.labelled[label]:
                del self.labelled[label]

    def due_ids(self, now: int) -> list[bytes]:
        """The ids of scheduled jobs whose time has come, the earliest first."""
        count = bisect_left(self._scheduled, now + 1, key=lambda item: item[1])
        return [id for _, _, id in self._scheduled[:count]]

    def waiting(self, queue: str) -> list[Job]:
        """The jobs of a queue that are ready or scheduled."""
        return [job for job in self.jobs.values() if job.queue == queue and job.state in WAITING_STATES]

    def next_due(self) -> int | None:
        """When the earliest scheduled job falls due."""
        return self._scheduled[0][1] if self._scheduled else None

    def find_holder(self, job: Job, now: int) -> bytes | None:
        """The job that holds this job's key; None if none does. Takes the key from a holder whose time is over."""
        if job.key is None or (id := self._keys.get((job.task, job.key))) is None:
            return None
        # Nothing happens when a holder's time is over, so check it when another job wants the key.
        if holds_key(self.jobs[id], now):
            return id
        self.put(id, replace(self.jobs[id], key_held_until=0))
        return None

    def _line(self, job: Job) -> list[Rank] | None:
        match job.state:
            case State.READY if job.lane is not None:
                return self.laned[job.queue, band(job.priority)][job.task][job.lane]
            case State.READY:
                return self.ready[job.queue, band(job.priority), is_late(job.due, job.state_since)]
            case State.SCHEDULED:
                return self._scheduled
        return None


def claim_job(job: Job, owner: str, now: int) -> Job:
    """The job as it is once this owner has claimed it."""
    holds = held_when_claimed(job.key_ttl, job.key_held_until)
    return replace(
        job,
        state=State.RUNNING,
        owner=owner,
        epoch=min(job.epoch, MOST_EPOCH - 1) + 1,
        state_since=now,
        key_held_until=holds,
    )


def rank(job: Job) -> Rank:
    """The order of ready jobs that are equally late: higher priority first, then earlier due, then id."""
    return -job.priority, job.due, job.id


def position(job: Job) -> Position:
    """The same, as `merge_lines` wants it."""
    return -job.priority, job.due, is_late(job.due, job.state_since), job.id


def _spot(job: Job) -> Rank:
    return rank(job) if job.state is State.READY else (0, job.due, job.id)


class NamedValues:
    """Bytes by name, and the names in their order. Not thread-safe: the store calls it under its own lock."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}
        self._names: list[str] = []

    def get(self, name: str) -> bytes | None:
        """None: absent."""
        return self._values.get(name)

    def put(self, name: str, value: bytes | None) -> None:
        """Sets the value; None: removes it."""
        # An exception may come between the two steps: then a name stands in the list that has no value, or twice.
        if value is None:
            if self._values.pop(name, None) is not None:
                del self._names[bisect_left(self._names, name)]
            return
        if name not in self._values:
            insort(self._names, name)
        self._values[name] = value

    def with_prefix(self, prefix: str) -> dict[str, bytes]:
        """Those whose names begin so, by name."""
        following = map(self._names.__getitem__, range(bisect_left(self._names, prefix), len(self._names)))
        names = takewhile(lambda name: name.startswith(prefix), following)
        return {name: self._values[name] for name in names if name in self._values}

    def page(self, prefix: str, after: str, limit: int) -> dict[str, bytes]:
        """The first of these behind a name, at most `limit`."""
        start = max(bisect_left(self._names, prefix), bisect_right(self._names, after))
        following = map(self._names.__getitem__, range(start, len(self._names)))
        names = takewhile(lambda name: name.startswith(prefix), following)
        return {name: self._values[name] for name in islice(names, max(0, limit)) if name in self._values}


class MemoryRooms:
    """The rooms of queues with a bound. The caller has the store's lock."""

    def __init__(self, cells: NamedValues, index: JobIndex) -> None:
        self._cells, self._index = cells, index

    def lock(self, name: str) -> bytes | None:
        """The value of a cell, if there is one."""
        return self._cells.get(name)

    def save(self, name: str, value: bytes) -> None:
        """Sets the value of a cell."""
        self._cells.put(name, value)

    def count(self, queue: str, most: int) -> int:
        """How many jobs of a queue wait; at most `most`."""
        return min(most, len(self._index.waiting(queue)))

    def count_key(self, queue: str, task: str, lane: str, most: int) -> int:
        """How many jobs of a lane are ready in a queue; at most `most`."""
        # Looked up so, nothing is added where none waits.
        lines = [tasks.get(task) for one in BANDS if (tasks := self._index.laned.get((queue, one))) is not None]
        return min(most, sum(len(lanes.get(lane) or ()) for lanes in lines if lanes is not None))

    def find_stored(self, ids: Sequence[bytes]) -> Collection[bytes]:
        """Those of these ids under which a job is there."""
        return self._index.jobs.keys() & ids
