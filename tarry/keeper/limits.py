"""The limits in effect: those of code and configuration, and those set by hand, which take precedence."""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from tarry.model.checks.decoders import decode_json
from tarry.model.checks.unreadable import UNREADABLE
from tarry.model.limit import EACH, QUEUE, TASK, Level, Limit
from tarry.store.rules.base import Store
from tarry.store.rules.cell import change_cell
from tarry.store.rules.partial_result import reachable_part
from tarry.tasks.definition import TaskDefinition

BY_HAND = "limit:"
"""Prefix of the cells that hold limits set by hand, or lifted (`null`); the limit's name follows it."""


class EffectiveLimit(Struct, frozen=True):
    """A limit with its level, and whether it was set by hand."""

    name: str
    limit: Limit
    level: Level
    by_hand: bool


def declare(store: Store, limits: Mapping[str, Limit], tasks: Iterable[str]) -> None:
    """Sets these limits in the store, except where one was set by hand, and removes others of these tasks.

    Every worker calls this before it claims. A queue's limit that is no longer declared stays until it is reset.
    """
    # Only limits of these tasks are removed: a queue's limit may be in another host's configuration.
    # Shards that are away get the limits when they are back.
    now, by_hand = reachable_part(store.limits), reachable_part(lambda: store.kv_list(BY_HAND))
    own = {kind + task for task in tasks for kind in (TASK, EACH)}
    wanted = {name: limits.get(name) for name in {*limits, *(own & now.keys())}}
    wanted |= dict(_readable_overrides(by_hand))
    for name, limit in sorted(wanted.items()):
        known = now[name][0] if name in now else None
        # A shard that was away may have missed what single keys have: `limit` gives it that, too.
        is_incomplete = known is not None and known.has_key_limits and store.topology_version > 0
        if is_incomplete or (known and known.without_keys) != limit:
            reachable_part(lambda: store.limit(name, limit))  # noqa: B023


def _readable_overrides(cells: Mapping[str, bytes]) -> Iterator[tuple[str, Limit | None]]:
    for name, cell in cells.items():
        # A worker could not start because of one that is no limit; the declared one holds then.
        with contextlib.suppress(*UNREADABLE):
            yield name.removeprefix(BY_HAND), decode_json(cell, Limit | None)


def effective_limits(store: Store) -> list[EffectiveLimit]:
    """All limits, by name."""
    by_hand = store.kv_list(BY_HAND)
    return [
        EffectiveLimit(name, limit, level, BY_HAND + name in by_hand) for name, (limit, level) in store.limits().items()
    ]


def set_by_hand(store: Store, name: str, limit: Limit | None) -> None:
    """Sets a limit on all hosts, or lifts it (None), until it is reset; ValueError for a name that is not a limit's."""
    check_name(name)
    # The cell first: a worker that starts in between would set the declared limit again.
    _write_override(store, name, msgspec.json.encode(limit))
    store.limit(name, limit)


def reset(store: Store, name: str, declared: Mapping[str, Limit]) -> None:
    """Restores the limit of code and configuration."""
    check_name(name)
    _write_override(store, name, None)
    store.limit(name, declared.get(name))


def check_name(name: str) -> str:
    """Returns the name; ValueError if no limit can have it."""
    if not name.startswith((QUEUE, TASK, EACH)) or name.endswith(":"):
        raise ValueError(f"{name!r} names no limit: queue:NAME, task:NAME, or each:NAME for each key of a task")
    return name


def limits_of_tasks(tasks: Mapping[str, TaskDefinition[Any, Any]]) -> dict[str, Limit]:
    """The limits that tasks declare, by name."""
    return {name: limit for task in list(tasks.values()) for name, limit in task.limits.items()}


def _write_override(store: Store, name: str, value: bytes | None) -> None:
    change_cell(store, BY_HAND + name, lambda _: value)
