"""The limits that single keys of a task have: a tenant's own numbers.

`Store.limit_key` keeps each as a named value, behind a prefix under the name of the level that it is about. The limit
for each key says whether there are any (`Limit.has_key_limits`): where there are none, no claim looks for them. Of
several stores each one has all of them.
"""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

from msgspec.structs import replace

from tarry.model.limit import KeyLimit, Limit
from tarry.store.rules.base import Store
from tarry.store.rules.lanes import lane_level, limit_name, task_and_lane

PREFIX = "key-limit:"
"""What the names of these values begin with. `lua/limits.lua` has it too."""
_VALUE = re.compile(rb"(-|\d{1,10}) (-|\d{1,10}) (\d{1,18}) \d{1,18} \d{1,18} ([01])")
"""How many at once, the rate's count and period, two numbers that follow from these for Redis' scripts, and whether it
is paused; `-`: as the limit for each key says."""


def value_name(task: str, lane: str) -> str:
    """The name of the value of one key."""
    return PREFIX + lane_level(task, lane)


def prefix_of(task: str) -> str:
    """What the names of the values of all keys of a task begin with."""
    return value_name(task, "")


def read_key_limits(store: Store, task: str) -> dict[str, KeyLimit]:
    """The limits that keys of the task have, by lane. StoreError."""
    found = store.kv_list(prefix_of(task)).items()
    return {task_and_lane(name.removeprefix(PREFIX))[1]: decode(value) for name, value in found}


def read_key_limit(store: Store, task: str, lane: str) -> KeyLimit | None:
    """The limit that this key has; None: that for each key. StoreError."""
    value = store.kv_get(value_name(task, lane))
    return None if value is None else decode(value)


def effective(values: Iterable[tuple[str, bytes]], limits: Mapping[str, Limit]) -> dict[str, Limit]:
    """The limits that hold for these keys, by the names of their levels. values: the named values. limits: as they are
    set, with those for each key."""
    levels = ((name.removeprefix(PREFIX), value) for name, value in values)
    return {
        level: decode(value).over(limits[limit_name(level)]) for level, value in levels if limit_name(level) in limits
    }


def for_each(limit: Limit | None, has_key_limits: bool) -> Limit | None:
    """What a store keeps as the limit for each key of a task, of which `limit` was asked for."""
    if limit is None and not has_key_limits:
        return None
    return replace(limit or Limit(), has_key_limits=has_key_limits)


def encode(limit: KeyLimit) -> bytes:
    """The named value."""
    rate = Limit(None, limit.count or 0, limit.period)
    numbers = limit.most, limit.count, limit.period, rate.at_once, rate.spacing if rate.count else 0
    return " ".join("-" if number is None else str(number) for number in (*numbers, int(limit.is_paused))).encode()


@lru_cache(maxsize=1000)
def decode(value: bytes) -> KeyLimit:
    """The limit in a named value; one that says nothing, if it is none."""
    found = _VALUE.fullmatch(value)
    if found is None:
        # It must not stop all jobs of the task.
        return KeyLimit()
    most, count, period = (None if number == b"-" else int(number) for number in found.groups()[:3])
    return KeyLimit(most, count, period or 0, found[4] == b"1")
