"""The numbers that one key of a task has of its own, and how many jobs of each key may wait, as tasks declare it."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from tarry.client.bounds import read_task_bounds
from tarry.model.bound import KEY_BOUNDS, MOST_KEYS, TaskBounds, checked_max_waiting
from tarry.model.limit import KeyLimit, Limit
from tarry.store.rules import key_limits
from tarry.store.rules.base import Store
from tarry.store.rules.cell import change_cell
from tarry.store.rules.partial_result import reachable_part
from tarry.tasks.definition import TaskDefinition


def declare_key_bounds(store: Store, tasks: Mapping[str, TaskDefinition[Any, Any]]) -> None:
    """Tells the store what these tasks declare, for producers that do not have their code; StoreError."""
    stored = reachable_part(lambda: store.kv_list(KEY_BOUNDS))
    for name, task in tasks.items():
        if task.max_waiting is not None or KEY_BOUNDS + name in stored:
            _change(store, name, lambda was: replace(was, each=task.max_waiting))  # noqa: B023


def set_key_bound(store: Store, task: str, lane: str, most: int | None) -> None:
    """Sets how many jobs of a key may wait; None: as the task says. ValueError: too many keys have such a number."""

    def change(was: TaskBounds) -> TaskBounds:
        others = {name: number for name, number in was.keys.items() if name != lane}
        if most is not None and len(others) >= MOST_KEYS:
            raise ValueError(
                f"{task}: {MOST_KEYS:,} keys have a max_waiting of their own, and no more may; let that of the task,"
                " @app.task(max_waiting=...), be that of most keys, and reset these"
            )
        return replace(was, keys=others if most is None else dict(sorted({**others, lane: most}.items())))

    _change(store, task, change)


def task_bounds(store: Store, task: str) -> TaskBounds:
    """The numbers of a task and its keys. StoreError; of shards, those that can be reached are asked."""
    return read_task_bounds(reachable_part(lambda: store.kv_get(KEY_BOUNDS + task)))


def _change(store: Store, task: str, change: Callable[[TaskBounds], TaskBounds]) -> None:
    def change_stored(cell: bytes | None) -> bytes | None:
        known = read_task_bounds(cell)
        changed = change(known)
        if changed == known:
            return cell
        return None if changed == TaskBounds() else msgspec.json.encode(changed)

    change_cell(store, KEY_BOUNDS + task, change_stored)


def set_numbers(
    store: Store,
    task: str,
    lane: str,
    numbers: Limit | None,
    *,
    has_rate: bool,
    weight: int | None,
    max_waiting: int | None,
) -> None:
    """What a key has of its own from now on, besides a pause. has_rate: whether its rate is its own. StoreError;
    ValueError: too many keys have such numbers."""
    set_key_bound(store, task, lane, checked_max_waiting(max_waiting))
    change_key_limit(
        store, task, lane, lambda was: was.with_numbers(numbers or Limit(), has_rate=has_rate, weight=weight)
    )


def reset_key(store: Store, task: str, lane: str) -> None:
    """Removes all that a key has of its own; StoreError."""
    set_key_bound(store, task, lane, None)
    store.limit_key(task, lane, None)


def change_key_limit(store: Store, task: str, lane: str, change: Callable[[KeyLimit], KeyLimit]) -> None:
    """Changes what a key has of its own; what says nothing any more is removed. Of two at the same time, the later one
    counts. StoreError; ValueError: too many keys have weights."""
    changed = change(key_limits.read_key_limit(store, task, lane) or KeyLimit())
    if changed.weight is not None:
        key_limits.check_weights(store, task, lane)
    store.limit_key(task, lane, None if changed == KeyLimit() else changed)
