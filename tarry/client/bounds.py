"""Queues and keys with a bound: what a producer does where there is no room for a new job.

The bounds of all queues are in one cell of the store, so that they hold for every producer, also for one that has other
settings. A producer reads the cell anew every few seconds.
"""

import contextlib
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from tarry.client.enqueue_listener import EnqueueListener
from tarry.errors import PartlyUnavailable, QueueFull, StoreError, TenantFull
from tarry.model import lifecycle
from tarry.model.bound import BOUNDS, BOUNDS_BY_HAND, DROPPED, KEY_BOUNDS, Bound, KeyBounds, TaskBounds
from tarry.model.checks.decoders import json_decoder
from tarry.model.checks.unreadable import UNREADABLE, stored_number
from tarry.model.job import Job
from tarry.model.quantity import quantity
from tarry.store.rules.base import Store
from tarry.store.rules.cell import change_cell
from tarry.store.rules.partial_result import reachable_part

log = logging.getLogger("tarry.client")
READ_EVERY = 2.0
"""Seconds for which the bounds that were read are trusted."""
WARN_EVERY = 10.0
"""Seconds between two warnings of jobs that were dropped, of all queues together."""
_MOST_ROUNDS = 100
_StoredIds = list[bytes | QueueFull]
_decode = json_decoder(dict[str, Bound]).decode
_decode_task = json_decoder(TaskBounds).decode
_NO_BOUNDS = TaskBounds()


def declare_bounds(store: Store, bounds: Mapping[str, Bound]) -> None:
    """Sets the bounds of these queues in the store, except where one was set by hand; those of other queues stay.
    StoreError."""
    if bounds:
        _change(store, lambda known: {**known, **bounds})


def set_bound_by_hand(store: Store, queue: str, bound: Bound | None, declared: Bound | None = None) -> None:
    """Sets the bound of a queue for all producers, whatever settings say; None: from now on the declared one holds, if
    there is one. StoreError."""

    def change(cell: bytes | None) -> bytes:
        by_hand = {name: one for name, one in read_bounds(cell).items() if name != queue}
        return msgspec.json.encode(by_hand if bound is None else {**by_hand, queue: bound})

    change_cell(store, BOUNDS_BY_HAND, change)
    _change(store, lambda known: {**known, queue: bound or declared or Bound(0)})


def _change(store: Store, change: Callable[[Mapping[str, Bound]], Mapping[str, Bound]]) -> None:
    by_hand = read_bounds(reachable_part(lambda: store.kv_get(BOUNDS_BY_HAND)))

    def change_stored(cell: bytes | None) -> bytes | None:
        known = read_bounds(cell)
        changed = {**change(known), **by_hand}
        return cell if changed == known else msgspec.json.encode(changed)

    change_cell(store, BOUNDS, change_stored)


def read_bounds(cell: bytes | None) -> dict[str, Bound]:
    """The bounds in the value of the cell; none if it cannot be read."""
    try:
        return _decode(cell) if cell else {}
    except UNREADABLE:
        # No job could be enqueued any more: the declared bounds hold.
        return {}


def read_task_bounds(cell: bytes | None) -> TaskBounds:
    """The bounds of a task's keys in the value of its cell; none if it cannot be read."""
    try:
        return _decode_task(cell) if cell else _NO_BOUNDS
    except UNREADABLE:
        return _NO_BOUNDS


class BoundsInUse(Struct, frozen=True):
    """The bounds of queues, and how many jobs were ever dropped from each because it was full; both by queue."""

    bounds: Mapping[str, Bound]
    dropped: Mapping[str, int]


def bounds_in_use(store: Store) -> BoundsInUse:
    """For people. StoreError; of shards, those that can be reached are asked."""
    dropped = reachable_part(lambda: store.kv_list(DROPPED))
    bounds = read_bounds(reachable_part(lambda: store.kv_get(BOUNDS)))
    return BoundsInUse(
        {queue: bound for queue, bound in bounds.items() if bound.most},
        {name.removeprefix(DROPPED): stored_number(value) for name, value in dropped.items()},
    )


class BoundedQueues:
    """Inserts jobs, and keeps queues within their bounds. Safe from threads.

    now: the store's clock in microseconds. declared: bounds that hold until the store has others. declared_for_key: how
    many jobs of each key of a task may wait, as the task says.
    """

    def __init__(
        self,
        store: Store,
        now: Callable[[], int],
        listener: EnqueueListener | None = None,
        declared: Mapping[str, Bound] | None = None,
        declared_for_key: Callable[[str], int | None] = lambda task: None,
    ) -> None:
        self._store, self._now, self._listener = store, now, listener
        self._declared_for_key = declared_for_key
        self._of_tasks: Mapping[str, TaskBounds] = {}
        self._declared = dict(declared or {})
        self._bounds, self._read_at = self._declared, 0.0
        self._dropped = Counter[str]()
        """By queue, what was dropped and is not yet in the log."""
        self._warned_at = 0.0
        self._count_lock = threading.Lock()
        self._uncounted = Counter[str]()
        """By queue, what was dropped and could not be counted in the store."""

    def bounds(self) -> Mapping[str, Bound]:
        """The bounds, by queue."""
        now = time.monotonic()
        if not self._read_at or now - self._read_at > READ_EVERY:
            self._read_at = now
            # While the store is away, the insert itself says so.
            with contextlib.suppress(StoreError):
                cells = reachable_part(lambda: self._store.kv_list(BOUNDS))
                self._bounds = {**self._declared, **read_bounds(cells.get(BOUNDS))}
                self._of_tasks = {
                    name.removeprefix(KEY_BOUNDS): read_task_bounds(cell)
                    for name, cell in cells.items()
                    if name.startswith(KEY_BOUNDS)
                }
        return self._bounds

    def key_bounds(self, jobs: Sequence[Job]) -> KeyBounds:
        """The bounds of the keys of these jobs, after `bounds()`."""
        found: dict[tuple[str, str], int] = {}
        for job in jobs:
            if job.lane is None:
                continue
            most = self._of_tasks.get(job.task, _NO_BOUNDS).of_key(job.lane)
            if most is None:
                most = self._declared_for_key(job.task)
            if most is not None:
                found[job.task, job.lane] = most
        return found

    def read_again(self) -> None:
        """Reads the bounds before the next insert, since this process has just changed them."""
        self._read_at = 0.0

    def insert(self, jobs: Sequence[Job]) -> list[bytes]:
        """`Store.insert`; PartlyUnavailable, with QueueFull for each job that is refused."""
        bounds, key_bounds = self.bounds(), self.key_bounds(jobs)
        if not key_bounds and (not bounds or bounds.keys().isdisjoint(job.queue for job in jobs)):
            return self._store.insert(jobs)
        answers, missing = self._insert_once(jobs, bounds, key_bounds, ())
        if any(isinstance(answer, QueueFull) for answer in answers):
            self._replace_oldest(jobs, answers, missing, bounds, key_bounds)
            missing |= self._refusals(jobs, answers)
        # At the positions of errors the elements mean nothing.
        ids = [job.id if isinstance(answer, QueueFull) else answer for job, answer in zip(jobs, answers, strict=True)]
        if missing:
            raise PartlyUnavailable(str(next(iter(missing.values()))), ids, missing)
        return ids

    def insert_within(self, connection: Any, jobs: Sequence[Job]) -> list[bytes]:
        """`Store.insert_within`; QueueFull. Drops nothing: the caller may roll back, and what was dropped were lost for
        nothing."""
        queues = {job.queue for job in jobs}
        bounds = {queue: bound for queue, bound in self.bounds().items() if queue in queues}
        key_bounds = self.key_bounds(jobs)
        now = self._now() if bounds or key_bounds else 0
        return self._store.insert_within(connection, jobs, bounds, now, key_bounds)

    def _insert_once(
        self, jobs: Sequence[Job], bounds: Mapping[str, Bound], key_bounds: KeyBounds, freed: Sequence[str]
    ) -> tuple[_StoredIds, dict[int, StoreError]]:
        """The answers, and the errors of shards that are away, by position."""
        try:
            return self._store.insert_bounded(jobs, bounds, self._now(), freed, key_bounds), {}
        except PartlyUnavailable as error:
            return list(error.answer), dict(error.missing)

    def _replace_oldest(
        self,
        jobs: Sequence[Job],
        answers: _StoredIds,
        missing: dict[int, StoreError],
        bounds: Mapping[str, Bound],
        key_bounds: KeyBounds,
    ) -> None:
        """Inserts refused jobs in place of the oldest of their queue, where the bound says so."""
        for _ in range(_MOST_ROUNDS):
            left = [at for at, answer in enumerate(answers) if _may_replace(answer, bounds)]
            if not left:
                return
            counts = Counter(jobs[at].queue for at in left)
            for queue, count in counts.items():
                self._drop(queue, max(min(count, bounds[queue].most), bounds[queue].dropped_at_once))
            again, errors = self._insert_once([jobs[at] for at in left], bounds, key_bounds, list(counts))
            for position, at in enumerate(left):
                answers[at] = again[position] if position not in errors else jobs[at].id
            missing |= {left[position]: error for position, error in errors.items()}

    def _drop(self, queue: str, count: int) -> None:
        """Deletes the oldest jobs that wait in the queue."""
        # By a change, so that a job that a worker claims meanwhile is not deleted.
        oldest = reachable_part(lambda: self._store.oldest_waiting(queue, count))
        valid = self._store.apply([lifecycle.forget(job) for job in oldest], self._now())
        gone = [job for job, is_gone in zip(oldest, valid, strict=True) if is_gone]
        if gone and self._listener is not None:
            self._listener.on_manual_change(gone, "deleted")
        self._count(queue, len(gone))
        self._warn(queue, len(gone))

    def _count(self, queue: str, count: int) -> None:
        if not count:
            return
        with self._count_lock:
            count += self._uncounted.pop(queue, 0)
        try:
            change_cell(self._store, DROPPED + queue, lambda was: b"%d" % (stored_number(was) + count))
        except StoreError as error:
            # They are dropped all the same, and are counted with the next ones.
            log.debug("%s dropped from %s are not counted yet: %s", quantity(count), queue, error)
            with self._count_lock:
                self._uncounted[queue] += count

    def _warn(self, queue: str, count: int) -> None:
        self._dropped[queue] += count
        now = time.monotonic()
        if self._dropped.total() and (not self._warned_at or now - self._warned_at > WARN_EVERY):
            self._warned_at, dropped, self._dropped = now, self._dropped, Counter()
            for name, number in sorted(dropped.items()):
                log.warning("queue %s is full: dropped the oldest %s that waited", name, quantity(number))

    def _refusals(self, jobs: Sequence[Job], answers: _StoredIds) -> dict[int, StoreError]:
        """The errors of refused jobs by position."""
        errors = {at: answer for at, answer in enumerate(answers) if isinstance(answer, QueueFull)}
        if not errors:
            return {}
        # A job that is sent again, because an answer was lost, may be stored already: then it is not refused.
        stored = self._store.get([jobs[at].id for at in errors])
        return {at: error for (at, error), job in zip(errors.items(), stored, strict=True) if job is None}


def _may_replace(answer: bytes | QueueFull, bounds: Mapping[str, Bound]) -> bool:
    # A key that is full refuses: the oldest jobs of the queue may be those of others.
    if not isinstance(answer, QueueFull) or isinstance(answer, TenantFull):
        return False
    return bounds[answer.queue].when_full == "drop_oldest"
