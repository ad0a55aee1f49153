"""What people and programs see of queues: `tarry queues --json`, and the HTTP API."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import filterfalse
from typing import Any

from msgspec import Struct

from tarry.client.bounds import BoundsInUse
from tarry.config.config import Config, Pool
from tarry.model.bound import WAITING_STATES
from tarry.model.duration import MINUTE, SECOND
from tarry.model.flow.own_queues import is_own_queue
from tarry.model.job import State
from tarry.model.limit import QUEUE, Level, Limit
from tarry.store.queries.history_reading import Period, view
from tarry.store.rules.base import HIGH, LOW, NORMAL, Store, Tally
from tarry.store.rules.history.sums import MINUTES
from tarry.store.rules.partial_result import reachable_part
from tarry.store.rules.waiting import CappedCount
from tarry.tasks.definition import TaskDefinition

WAITING = WAITING_STATES
NO_BOUNDS = BoundsInUse({}, {})
MOST_COUNTED = 10_000
"""The most ready jobs that are counted in each band."""
RATE_MINUTES = 5
"""Whole minutes from which it is predicted when a queue is empty."""


class QueueRecord(Struct, frozen=True):
    """A queue: how many jobs it has in each state. Times are seconds since the epoch."""

    queue: str
    paused: bool
    scheduled: int
    ready: int
    running: int
    done: int
    dead: int
    cancelled: int
    blocked: int
    """Jobs of flows that wait for other jobs, and the flows themselves until they end."""
    oldest_ready: float | None
    """When the job that is ready for the longest was due; null: none is ready."""
    at_once: int | None
    """How many of its jobs may run at once, over all hosts; null: no limit."""
    rate: str | None
    """How many may start in a period; null: no limit."""
    max_waiting: int | None
    """How many of its jobs may wait, ready and scheduled; null: any number."""
    when_full: str | None
    """What becomes of a new job then: `refuse` or `drop_oldest`; null: there is no bound."""
    dropped: int
    """How many were ever dropped because the queue was full."""
    served: bool
    """Whether a pool of these settings serves it."""


class QueueBands(Struct, frozen=True):
    """How many jobs are ready in each band of priority; up to 10,000 are counted in each."""

    high: CappedCount
    normal: CappedCount
    low: CappedCount


class QueueDetail(QueueRecord, frozen=True):
    """A queue, with what is read of one queue only."""

    bands: QueueBands
    came: int
    """New jobs in the last five whole minutes, those for later among them."""
    left: int
    """Jobs that ended in the last five whole minutes."""
    drains_in: float | None
    """In so many seconds no job is ready any more, if jobs go on to come and end as in these minutes; null: no more end
    than come."""


def queue_detail(record: QueueRecord, store: Store, now: int) -> QueueDetail:
    """The record with what is read of one queue only; of several stores, from those that are there. StoreError."""
    bands = reachable_part(lambda: store.waiting.bands(record.queue, MOST_COUNTED))
    minutes = Period(MINUTES, (now // MINUTE - RATE_MINUTES) * 60, now // MINUTE * 60)
    total = reachable_part(lambda: view(store.history, minutes, lambda queue, task: queue == record.queue)).total
    return QueueDetail(
        **{field: getattr(record, field) for field in QueueRecord.__struct_fields__},
        bands=QueueBands(bands[HIGH], bands[NORMAL], bands[LOW]),
        came=total.put,
        left=total.left,
        drains_in=seconds_to_drain(record.ready, total.put, total.left, RATE_MINUTES * 60),
    )


def seconds_to_drain(ready: int, came: int, left: int, seconds: float) -> float | None:
    """In how many seconds no job is ready any more, if each `seconds` so many come and leave as in the last ones; None:
    that does not happen."""
    if not ready:
        return 0.0
    return ready * seconds / (left - came) if left > came else None


def queue_records(
    counts: Sequence[Tally],
    paused: Mapping[str, bool],
    limits: Mapping[str, tuple[Limit, Level]],
    serves: Callable[[str], bool],
    also: Iterable[str] = (),
    bounds: BoundsInUse = NO_BOUNDS,
) -> list[QueueRecord]:
    """The queues that have jobs, are or were paused, or are in `also`, by name; without those of broadcasts. counts,
    paused, limits: as the store gives them."""
    names = sorted(set(also).union(filterfalse(is_own_queue, {tally.queue for tally in counts} | paused.keys())))
    return [
        _record(name, counts, paused.get(name, False), limits.get(QUEUE + name), serves(name), bounds) for name in names
    ]


def _record(
    name: str,
    counts: Sequence[Tally],
    paused: bool,
    limit: tuple[Limit, Level] | None,
    served: bool,
    bounds: BoundsInUse,
) -> QueueRecord:
    bound = bounds.bounds.get(name)
    tallies = [tally for tally in counts if tally.queue == name]
    by_state = {state.value: sum(tally.count for tally in tallies if tally.state is state) for state in State}
    ready = [tally.oldest for tally in tallies if tally.state is State.READY]
    return QueueRecord(
        name,
        paused,
        **by_state,
        oldest_ready=min(ready) / SECOND if ready else None,
        at_once=None if limit is None else limit[0].most,
        rate=None if limit is None else limit[0].rate_text,
        max_waiting=None if bound is None else bound.most,
        when_full=None if bound is None else bound.when_full,
        dropped=bounds.dropped.get(name, 0),
        served=served,
    )


def declared_queues(config: Config, tasks: Iterable[TaskDefinition[Any, Any]]) -> set[str]:
    """All queues that belong to a task or are in the settings."""
    named = {name for pool in config.pools.values() for name in pool.queues if pool.queues != "*"}
    return {task.queue for task in tasks} | config.queues.keys() | named


def serves(pool: Pool, queue: str) -> bool:
    """Whether the pool serves that queue."""
    return pool.queues == "*" or queue in pool.queues


def is_served(config: Config, queue: str) -> bool:
    """Whether any configured pool serves that queue."""
    return any(serves(pool, queue) for pool in config.pools.values())


def waiting_by(counts: Iterable[Tally], key: Callable[[Tally], str]) -> dict[str, int]:
    """How many jobs are ready or scheduled, by what `key` gives of their tally: its queue, or its task."""
    found: dict[str, int] = {}
    for tally in counts:
        if tally.state in WAITING and tally.count:
            found[key(tally)] = found.get(key(tally), 0) + tally.count
    return found
