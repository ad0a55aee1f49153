"""What holds for one key of a task, and how far it is used."""

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from tarry.client.limits.key_numbers import task_bounds
from tarry.model.bound import TaskBounds
from tarry.model.duration import SECOND
from tarry.model.job import State
from tarry.model.limit import EACH, KeyLimit, Level, Limit
from tarry.store.rules import key_limits
from tarry.store.rules.base import Store
from tarry.store.rules.lanes import lane_level
from tarry.store.rules.waiting import WaitingLane, merge_lanes

MOST_COUNTED = 1000
"""So many jobs of a key that wait are counted in each queue."""


class TenantFacts(Struct, frozen=True):
    """What holds for one key of a task, and how far it is used."""

    limit: int | None
    """So many at once: its own number, or that for each key; None: no bound. It holds again after a pause."""
    rate: str | None
    """So many starts in a period, as `100 in 1 s`; None: no bound."""
    weight: int
    """How many starts it has while other keys have as many as their weights say."""
    max_waiting: int | None
    """How many of its jobs may wait: its own number, or that of each key; None: any number."""
    is_paused: bool
    """Nothing of it starts until it is resumed."""
    has_own: bool
    """Whether anything holds for this key alone."""
    running: int
    """How many of its jobs run; 0 also where nothing limits the keys of the task, so that nothing counts them."""
    waiting: int
    """How many are ready, up to 1,000 of each queue."""
    waits_at_least: bool
    """There may be more that are ready."""
    oldest: float | None
    """Since when the first of them waits, in seconds since the epoch; None: none does."""


def tenant_facts(store: Store, task: str, lane: str) -> TenantFacts:
    """As `Tenant.facts`; also for a key that has nothing of its own. StoreError."""
    own = key_limits.read_key_limit(store, task, lane)
    return _facts(store, task, {lane: own}, task_bounds(store, task))[lane]


def tenants_with_own(store: Store, task: str, after: str | None, most: int) -> dict[str, TenantFacts]:
    """Of the keys of a task that have anything of their own, the first `most` behind `after`, by lane. StoreError."""
    found = key_limits.read_key_limits(store, task)
    bounds = task_bounds(store, task)
    lanes = [lane for lane in sorted(found.keys() | bounds.keys.keys()) if after is None or lane > after]
    return _facts(store, task, {lane: found.get(lane) for lane in lanes[:most]}, bounds)


def _facts(store: Store, task: str, keys: Mapping[str, KeyLimit | None], bounds: TaskBounds) -> dict[str, TenantFacts]:
    each, _ = store.limits().get(EACH + task, (Limit(), Level()))
    levels = store.levels([lane_level(task, lane) for lane in keys])
    queues = sorted({tally.queue for tally in store.counts() if (tally.task, tally.state) == (task, State.READY)})
    return {
        lane: replace(
            _tenant(own, each, level, _count_waiting(store, queues, task, lane)),
            max_waiting=bounds.of_key(lane),
            has_own=own is not None or lane in bounds.keys,
        )
        for (lane, own), level in zip(keys.items(), levels, strict=True)
    }


def _tenant(own: KeyLimit | None, each: Limit, level: Level, waiting: WaitingLane) -> TenantFacts:
    limit = each if own is None else replace(own, is_paused=False).over(each)
    return TenantFacts(
        limit.most,
        limit.rate_text,
        each.weight if own is None or own.weight is None else own.weight,
        None,
        own is not None and own.is_paused,
        own is not None,
        level.running,
        waiting.count.count,
        waiting.count.at_least,
        None if waiting.oldest is None else waiting.oldest / SECOND,
    )


def _count_waiting(store: Store, queues: Sequence[str], task: str, lane: str) -> WaitingLane:
    found = [store.waiting.lane(queue, task, lane, MOST_COUNTED) for queue in queues]
    return merge_lanes(found, MOST_COUNTED * max(1, len(queues)))
