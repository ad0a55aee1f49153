"""The reference store: every verb in the simplest correct form. For tests and notebooks.

Nothing outlives the process. The tests compare the other stores with this one.
"""

import itertools
import threading
import time as clock
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence

from msgspec.structs import replace

from tarry.errors import QueueFull
from tarry.model.bound import KEY_ROOM, Bound, KeyBounds
from tarry.model.change import Change
from tarry.model.duration import DAY
from tarry.model.job import HELD, Job, State
from tarry.model.lifecycle import holds_key
from tarry.model.limit import EACH, QUEUE, TASK, KeyLimit, Level, Limit, waiting_lane
from tarry.model.wake import WakeReason, wake_reasons
from tarry.store.memory.flows import MemoryFlows
from tarry.store.memory.history import MemoryHistory
from tarry.store.memory.index import JobIndex, MemoryRooms, NamedValues, Rank, claim_job, position, rank
from tarry.store.memory.limits import MemoryLimits
from tarry.store.memory.waiting import MemoryWaiting
from tarry.store.rules.base import (
    NOTHING,
    PROMOTED_AT_ONCE,
    Backlog,
    Diagnostic,
    Exchange,
    PlaceAnswer,
    Query,
    ShareChange,
    Store,
    Tally,
    Want,
    band,
    drop_order,
    gives_more,
)
from tarry.store.rules.history.journal import record_of_changes, record_of_new
from tarry.store.rules.kept_places import followed_place
from tarry.store.rules.lanes import (
    JobKey,
    Levels,
    earliest,
    lane_level,
    merge_lines,
    take_in_turn,
    turn_name,
    turn_order,
)
from tarry.store.rules.sleeper import Wakeup
from tarry.store.rules.weights.weighted_task import WeightedTask
from tarry.store.rules.weights.weighted_turns import decode_turn, encode_lane
from tarry.store.shared.admission import Admission
from tarry.store.shared.bounded_room import is_old_room
from tarry.store.shared.wakeup.hub import WakeupHub


class MemoryStore(Store):
    """Jobs in a dict, under one lock.

    time: what `time()` answers, in microseconds since the epoch; None: the system's clock. name: must differ for the
    shards of one `ShardedStore`.
    """

    def __init__(self, time: Callable[[], int] | None = None, name: str = "") -> None:
        self.url = f"memory://{name}"
        self._time = time or (lambda: clock.time_ns() // 1000)
        self._lock = threading.Lock()
        self._index = JobIndex()
        self._jobs = self._index.jobs
        self._leases: dict[str, int] = {}
        self._held: dict[str, tuple[str, int]] = {}
        self._paused: set[str] = set()
        self._hub = WakeupHub()
        self._cells = NamedValues()
        self._limiting = MemoryLimits(self._leases, self._cells)
        self._limits, self._levels = self._limiting.limits, self._limiting.levels
        self._turns: dict[str, str] = {}
        self.history: MemoryHistory = MemoryHistory()
        self.waiting = MemoryWaiting(self._lock, self._index)
        self.flows: MemoryFlows = MemoryFlows(self._lock, self._index, self._insert_all, self._lane_of, self._hub.wake)

    # Keeping

    def insert(self, jobs: Sequence[Job]) -> list[bytes]:
        with self._lock:
            return self._insert_all(jobs)

    def insert_bounded(
        self,
        jobs: Sequence[Job],
        bounds: Mapping[str, Bound],
        now: int,
        freed: Collection[str] = (),
        key_bounds: KeyBounds = NOTHING,
    ) -> list[bytes | QueueFull]:
        with self._lock:
            rooms = MemoryRooms(self._cells, self._index)
            return Admission(rooms, jobs, bounds, now, freed, key_bounds).insert(self._insert_all)

    def supersede(self, change: Change, job: Job, now: int) -> bool:
        with self._lock:
            if self._index.find_holder(job, now) not in (None, change.id) or not self._apply_all([change], now)[0][0]:
                return False
            if change.keeps_places:
                self._cells.put(*followed_place(change, self._leases.get(change.owner), now))
            self._insert_all([job])
            return True

    def oldest_waiting(self, queue: str, limit: int) -> list[Job]:
        with self._lock:
            return sorted(self._index.waiting(queue), key=drop_order)[: max(0, limit)]

    def _insert_all(self, jobs: Sequence[Job]) -> list[bytes]:
        new: dict[bytes, Job] = {}
        ids = [self._insert(job, new) for job in jobs]
        # A repeated insert brings no work.
        if new:
            self.history.append(record_of_new(list(new.values())))
            self._hub.wake(WakeReason.WORK)
        return ids

    def _insert(self, job: Job, new: dict[bytes, Job]) -> bytes:
        if job.id in self._jobs:
            return job.id
        # By the job's own time: no verb looks at the clock of the calling process (suite: `timing`).
        holder = self._index.find_holder(job, job.state_since)
        if holder is None:
            new[job.id] = self._index.put(job.id, replace(job, lane=self._lane_of(job)))
        return holder or job.id

    def _lane_of(self, job: Job) -> str | None:
        return waiting_lane(job.task, job.lane, self._limits)

    def exchange(
        self, changes: Sequence[Change], wants: Sequence[Want], limit: int, owner: str, lease: int, now: int
    ) -> Exchange:
        with self._lock:
            valid, more_to_release = self._apply_all(changes, now) if changes else ([], False)
            jobs, again = self._claim(wants, limit, owner, lease, now)
            return Exchange(valid, jobs, earliest(self._index.next_due(), again), more_to_release=more_to_release)

    def _claim(
        self, wants: Sequence[Want], limit: int, owner: str, lease: int, now: int
    ) -> tuple[list[Job], int | None]:
        """The jobs. If there are none: when a rate allows the next start, None if no rate holds one back."""
        wants = [want for want in wants if want.queue not in self._paused]
        if limit <= 0 or not wants:
            return [], None
        self._promote(now)
        # After the promotion, and once for all wants: what one want takes counts for the next.
        levels = Levels(self._limits, self._levels, self._limiting.key_limits, now)
        taken: list[Job] = []
        # Twice: first the share of each want, then, if some gave less, the rest of `limit` to the others.
        for want, count in [(want, want.count) for want in wants] + [(want, limit) for want in wants]:
            taken += self._take(want, min(count, limit - len(taken)), owner, now, levels)
        if not taken:
            return [], levels.again
        self._prolong(owner, lease, now)
        self._hub.wake(WakeReason.STEP)
        # They were taken want by want, but the answer is in the order to run them.
        return sorted(taken, key=rank), None

    def _promote(self, now: int) -> None:
        for id in self._index.due_ids(now)[:PROMOTED_AT_ONCE]:
            self._index.put(id, replace(self._jobs[id], state=State.READY, state_since=now))

    def _take(self, want: Want, count: int, owner: str, now: int, levels: Levels) -> list[Job]:
        open_lines = [self._index.ready.get((want.queue, want.band, late), []) for late in (True, False)]
        tasks = {task: lanes for task, lanes in self._index.laned[want.queue, want.band].items() if any(lanes.values())}
        if count <= 0 or not (any(open_lines) or tasks):
            return []
        most = levels.room(QUEUE + want.queue, count)
        lines = [line[:most] for line in open_lines]
        weighted = {task: turns for task in tasks if (turns := self._weighted_task(want, task)) is not None}
        lines += [
            self._take_in_turn(want, task, lanes, most, levels, weighted) for task, lanes in sorted(tasks.items())
        ]
        jobs = [[self._jobs[id] for _, _, id in line] for line in lines]
        chosen = merge_lines([[(position(job), job) for job in line] for line in jobs], most)
        return self._start(chosen, owner, now, weighted)

    def _take_in_turn(
        self,
        want: Want,
        task: str,
        lanes: Mapping[str, list[Rank]],
        most: int,
        levels: Levels,
        weighted: Mapping[str, WeightedTask],
    ) -> list[Rank]:
        most = levels.room(TASK + task, most)
        if not most:
            return []
        # From the lane after the last served one, around: so each lane gets its turn.
        turn = self._turns.get(turn_name(want.queue, want.band, task))
        order = sorted(lanes, key=turn_order(decode_turn(turn).lane))
        lines = {lane: lanes[lane][: levels.room(lane_level(task, lane), most)] for lane in order if lanes[lane]}
        if task not in weighted:
            return take_in_turn([*lines.values()], most)
        size = sum(bool(line) for lane, line in lines.items() if lane not in weighted[task].weights)
        return weighted[task].merge(lines, size, most)

    def _weighted_task(self, want: Want, task: str) -> WeightedTask | None:
        """None: no key of the task has a weight."""
        each = self._limits.get(EACH + task)
        if each is None or not each.has_weights:
            return None
        turn = self._turns.get(turn_name(want.queue, want.band, task))
        return WeightedTask(self._limiting.weights(task), each.weight, turn)

    def _start(self, jobs: Sequence[Job], owner: str, now: int, weighted: Mapping[str, WeightedTask]) -> list[Job]:
        jobs = self._limiting.within_rates(jobs, now)
        self._limiting.start(jobs, now)
        for job in jobs:
            if job.lane is not None:
                turns, name = weighted.get(job.task), turn_name(job.queue, band(job.priority), job.task)
                self._turns[name] = encode_lane(job.lane) if turns is None else turns.start(job.lane)
        return [self._index.put(job.id, claim_job(job, owner, now)) for job in jobs]

    def _apply_all(self, changes: Sequence[Change], now: int) -> tuple[list[bool], bool]:
        valid = [self._apply(change, now) for change in changes]
        self._limiting.free_kept(changes, valid, now)
        made = [change for change, good in zip(changes, valid, strict=True) if good]
        self.history.append(record_of_changes(made))
        self._hub.wake(*wake_reasons(made, bool(self._limits)))
        return valid, self.flows.settle(made, now)

    def _apply(self, change: Change, now: int) -> bool:
        job = self._jobs.get(change.id)
        if job is None or (job.state, job.epoch, job.owner) != (change.was, change.epoch, change.owner):
            return False
        if change.seen_times not in (None, (job.due, job.expires)):
            return False
        if change.to is None:
            if job.state is State.RUNNING:
                self._limiting.end(job, change, now)
            self._index.remove(job)
            return True
        new = change.apply_to(job)
        # A finished job gets no lane when a limit is set, so it gets it when it comes back.
        if job.state.finished:
            new = replace(new, lane=self._lane_of(new))
        # A finished job that starts anew may find its key in other hands.
        if new.key_held_until and self._index.find_holder(new, now) not in (None, job.id):
            return False
        if job.state is State.RUNNING:
            self._limiting.end(job, change, now)
        self._index.put(job.id, new)
        return True

    def next_due(self) -> int | None:
        with self._lock:
            return self._index.next_due()

    # Owning

    def extend(self, owner: str, held: Collection[tuple[bytes, int]], lease: int, now: int) -> list[bytes]:
        with self._lock:
            if held:
                self._prolong(owner, lease, now)
            return [id for id, epoch in held if not self._owns(owner, id, epoch)]

    def _prolong(self, owner: str, lease: int, now: int) -> None:
        """Extends the owner's lease once it is past half."""
        # Most calls need no write then. A lease promises only half of its length.
        if self._leases.get(owner, 0) < now + lease // 2:
            self._leases[owner] = now + lease

    def _owns(self, owner: str, id: bytes, epoch: int) -> bool:
        job = self._jobs.get(id)
        return job is not None and (job.state, job.owner, job.epoch) == (State.RUNNING, owner, epoch)

    def reclaim(self, now: int, of: str | None = None, limit: int = 1000) -> list[Job]:
        with self._lock:
            return [job for job in self._running_jobs() if self._is_lost(job, of, now)][:limit]

    def _is_lost(self, job: Job, of: str | None, now: int) -> bool:
        return self._leases.get(job.owner, 0) <= now if of is None else job.owner == of

    def owners(self) -> list[str]:
        with self._lock:
            return sorted({job.owner for job in self._running_jobs()})

    def _running_jobs(self) -> list[Job]:
        return [job for _, job in sorted(self._jobs.items()) if job.state is State.RUNNING]

    def hold(self, name: str, owner: str, until: int, now: int) -> bool:
        with self._lock:
            holder, end = self._held.get(name, (owner, 0))
            if holder != owner and now < end <= now + DAY:
                return False
            self._held[name] = owner, until
            return True

    # For people

    def get(self, ids: Sequence[bytes]) -> list[Job | None]:
        with self._lock:
            return [self._jobs.get(id) for id in ids]

    def find(self, query: Query) -> list[Job]:
        with self._lock:
            labelled = None if not query.labels else self._index.labelled.get(query.labels[0], ())
            jobs = (
                self._jobs.items()
                if labelled is None
                else [(id, self._jobs[id]) for id in labelled if id in self._jobs]
            )
            return [job for _, job in sorted(jobs) if query.matches(job)][: query.limit]

    def counts(self) -> list[Tally]:
        with self._lock:
            groups: defaultdict[tuple[str, str, State], list[Job]] = defaultdict(list)
            for job in self._jobs.values():
                groups[job.queue, job.task, job.state].append(job)
        return [
            Tally(*group, len(jobs), min(job.due for job in jobs), sum(job.size for job in jobs))
            for group, jobs in sorted(groups.items())
        ]

    def expiring(self, start: int, end: int, limit: int) -> list[Job]:
        with self._lock:
            found = [job for job in self._jobs.values() if job.state.finished and start <= job.keep_until < end]
        return sorted(found, key=lambda job: (job.keep_until, job.id))[:limit]

    def prune(self, now: int, most_bytes: int, limit: int = 1000, by_queue: Mapping[str, int] | None = None) -> int:
        with self._lock:
            # The nodes of a flow go with it.
            finished = [job for job in self._jobs.values() if job.state.finished and job.keep_until < HELD]
            finished.sort(key=lambda job: (job.keep_until, job.id))
            held = Counter[str]()
            for job in finished:
                held[job.queue] += job.size
            gone: list[Job] = []
            for job in finished:
                # A job that holds a key stays: deleted, it would let a second job with this key start too early.
                excess = held[job.queue] > (by_queue or {}).get(job.queue, most_bytes) and not holds_key(job, now)
                if job.keep_until <= now or excess:
                    held[job.queue] -= job.size
                    gone.append(job)
            for job in gone[:limit]:
                self._index.remove(job)
            rooms = self._cells.with_prefix(KEY_ROOM).items()
            for name in [name for name, value in rooms if is_old_room(value, now)]:
                self._cells.put(name, None)
            return len(gone[:limit])

    def pause(self, queue: str, paused: bool) -> None:
        with self._lock:
            if paused:
                self._paused.add(queue)
            else:
                self._paused.discard(queue)
                self._hub.wake(WakeReason.WORK)

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

    def save_progress(self, owner: str, marks: Sequence[tuple[bytes, int, bytes]]) -> list[bool]:
        with self._lock:
            owned = [self._owns(owner, id, epoch) for id, epoch, _ in marks]
            for id, _, progress in itertools.compress(marks, owned):
                self._jobs[id] = replace(self._jobs[id], progress=progress)
            self._hub.wake(WakeReason.STEP)
            return owned

    def limit(self, name: str, limit: Limit | None) -> None:
        with self._lock:
            self._relimit(name, self._limiting.set_limit(name, limit))

    def change_shares(self, changes: Sequence[ShareChange], now: int) -> list[bool]:
        with self._lock:
            made = [self._limiting.change_share(change, now) for change in changes]
            if gives_more(changes, made):
                self._hub.wake(WakeReason.WORK)
            return made

    def limit_key(self, task: str, lane: str, limit: KeyLimit | None) -> None:
        with self._lock:
            self._relimit(EACH + task, self._limiting.limit_key(task, lane, limit))

    def _relimit(self, name: str, count_anew: bool) -> None:
        if count_anew:
            self._assign_lanes_to_all()
            self._limiting.count_anew(name, self._running_jobs())
        self._hub.wake(WakeReason.WORK)

    def _assign_lanes_to_all(self) -> None:
        # A blocked job gets its lane when it is released.
        for job in [job for job in self._jobs.values() if not job.state.finished and job.state is not State.BLOCKED]:
            if (lane := self._lane_of(job)) != job.lane:
                self._index.put(job.id, replace(job, lane=lane))

    def limits(self) -> dict[str, tuple[Limit, Level]]:
        with self._lock:
            return {name: (limit, self._levels.get(name, Level())) for name, limit in sorted(self._limits.items())}

    def levels(self, names: Sequence[str]) -> list[Level]:
        with self._lock:
            return [self._levels.get(name, Level()) for name in names]

    def take_place(self, name: str, key: JobKey, until: int, cost: int, now: int) -> PlaceAnswer:
        with self._lock:
            return self._limiting.take_place(name, key, until, cost, now)

    def recount(self, now: int) -> int:
        with self._lock:
            wrong = self._limiting.recount(self._running_jobs())
            if wrong:
                self._hub.wake(WakeReason.WORK)
            return wrong

    def kv_list(self, prefix: str) -> dict[str, bytes]:
        with self._lock:
            return self._cells.with_prefix(prefix)

    def kv_get(self, name: str) -> bytes | None:
        with self._lock:
            return self._cells.get(name)

    def kv_cas(self, name: str, value: bytes | None, was: bytes | None) -> bool:
        with self._lock:
            if self._cells.get(name) != was:
                return False
            self._cells.put(name, value)
            return True

    def kv_count(self, prefix: str) -> int:
        with self._lock:
            return len(self._cells.with_prefix(prefix))

    def kv_page(self, prefix: str, after: str, limit: int) -> dict[str, bytes]:
        with self._lock:
            return self._cells.page(prefix, after, limit)

    # Wake-up

    def wakeup(self) -> Wakeup:
        return self._hub.wakeup()

    def wake_for_recall(self) -> None:
        self._hub.wake(WakeReason.RECALL)

    # The process

    def time(self) -> int:
        return self._time()

    def diagnostics(self) -> list[Diagnostic]:
        advice = "for tests and notebooks; to keep jobs, use sqlite:///tarry.db"
        return [Diagnostic("durability", "none: jobs end with the process", advice)]

    def close(self) -> None:
        """Nothing to close: the jobs can still be read."""
